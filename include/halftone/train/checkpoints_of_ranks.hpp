// SPDX-License-Identifier: MIT
/// \file
/// Saves and resumes a run of trainers that train together, as train/checkpoints.hpp does that of one, for data parallel ones
/// and those of a divided model (ranks/shard.hpp):
///
///     ht::shard sharded{device, model, comm, ht::zero3{"h.*"}};
///     ht::trainer trainer{device, model, {..., .output_dir = "run", .save_steps = 100, .resume_from_checkpoint = "newest"}};
///     ht::join(trainer, sharded);
///     ht::trainer_checkpoints checkpoints{trainer, comm};      // after join()
///     trainer.train(data);
///
/// All ranks do this, with the same arguments and a folder that they share. Each writes what it holds, or an equal share of
/// what all hold, before the next step begins (ranks/checkpoint.hpp). What is saved on some ranks is resumed on any number, under
/// any strategy, with the same bits of parameters and moments, also by a trainer alone; on as many ranks, the losses that
/// follow have the same bits, too.
///
/// Ranks agree: rank 0's metrics choose the best model; stop() on any rank ends the step for all, which save. If one rank
/// cannot write, the checkpoint is dropped on all: on_save_failed is called once, with the rank's number, training goes on, and
/// earlier checkpoints stay.
#pragma once

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <halftone/ranks/checkpoint.hpp>
#include <halftone/train/checkpoints.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The files of trainers that train together: each rank writes its part. All functions are collective, but for those that
/// only look.
class checkpoints_of_ranks {
  public:
    static constexpr bool is_beside = false;
    checkpoints_of_ranks(communicator& comm, const std::string& folder) : comm_(&comm), folder_(folder) {}

    /// Throws state_error for a trainer that has not joined these ranks.
    void check_ranks(int rank, int count) const {
        if (rank == comm_->rank() && count == comm_->size()) return;
        fail<state_error>("trainer_checkpoints: this is rank ", comm_->rank(), " of ", comm_->size(), ", and its trainer is rank ", rank,
                          " of ", count, "; call ht::join before");
    }
    bool is_first() const { return comm_->rank() == 0; }
    template <class T>
    T of_first(T value) const {
        static_assert(std::is_trivially_copyable_v<T>);
        comm_->broadcast("checkpoint.decision", &value, sizeof value, 0);
        return value;
    }
    template <class F>
    void on_all(const F& f) const {
        on_all_ranks(*comm_, "checkpoint.folder", f);
    }

    /// Saves; wait() throws on all ranks the io_error for which it failed on one.
    template <class... Parts>
    void save(const checkpoint_options& o, Parts&... parts) {
        try {
            save_checkpoint(*comm_, folder_, o, parts...);
        } catch (const io_error&) {
            failure_ = std::current_exception();
        }
    }
    bool is_saving() const { return false; }
    void wait() {
        if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

    const std::filesystem::path& folder() const { return folder_; }
    template <class... Parts>
    checkpoint_info load(const std::filesystem::path& path, const load_checkpoint_options& o, Parts&... parts) {
        return load_checkpoint(*comm_, path, o, parts...);
    }
    template <class... Parts>
    std::optional<checkpoint_info> load_newest(const load_checkpoint_options& o, Parts&... parts) {
        return load_newest_checkpoint(*comm_, folder_, o, parts...);
    }

  private:
    communicator* comm_;
    std::filesystem::path folder_;
    std::exception_ptr failure_;
};

}  // namespace detail

template <class Trainer, class Ranks, class... Parts>
    requires(std::is_base_of_v<communicator, Ranks> && (!std::is_same_v<std::remove_const_t<Parts>, trainer_checkpoint_options> && ...))
trainer_checkpoints(Trainer&, Ranks&, Parts&...) -> trainer_checkpoints<detail::checkpoints_of_ranks, Trainer, Parts...>;
template <class Trainer, class Ranks, class... Parts>
    requires std::is_base_of_v<communicator, Ranks>
trainer_checkpoints(Trainer&, Ranks&, const trainer_checkpoint_options&, Parts&...)
    -> trainer_checkpoints<detail::checkpoints_of_ranks, Trainer, Parts...>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
