// SPDX-License-Identifier: MIT
/// \file
/// Trainers of several ranks that train one model together (ranks/data_parallel.hpp).
///
///     ht::run_ranks(4, [&](ht::communicator& comm) {             // ranks/threads.hpp; or processes, ranks/mpi.hpp
///         ht::cpu device{{.threads = 1}};
///         ...                                                    // a model, data and a trainer, as for one rank
///         ht::join(trainer, comm);
///         trainer.train(data);
///     });
#pragma once

#include <memory>
#include <utility>

#include <halftone/ranks/data_parallel.hpp>
#include <halftone/train/trainer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A trainer's ranks, with what exchanges their gradients.
template <class Parallel>
class parallel_ranks final : public trainer_ranks {
  public:
    template <class Device, class Accumulator>
    parallel_ranks(Device& device, communicator& comm, Accumulator& acc, const data_parallel_options& options)
        : trainer_ranks(comm.rank(), comm.size()), comm_(&comm), parallel_(device, comm, acc, options) {}

    step_losses add_up(const step_losses& own) override {
        return {all_reduce_sum(*comm_, "losses", own.sum), all_reduce_sum(*comm_, "weights of losses", own.weight)};
    }
    extent add_up(extent own) override { return all_reduce_sum(*comm_, "tokens", own); }
    bool is_any(bool own) override { return all_reduce_max(*comm_, "stop", own ? 1 : 0) != 0; }

  private:
    communicator* comm_;
    Parallel parallel_;
};

}  // namespace detail

/// From now on the trainer trains with the other ranks of `comm`, which must outlive it; all ranks have the same model,
/// arguments and data, and rank 0's parameters are copied to all. A step's batch is that of all ranks:
/// per_device_train_batch_size rows for each rank and micro-batch, of which each rank takes its part. Losses, evaluations
/// and figures are those of all ranks; callbacks are called on rank 0 alone, and stop() on one rank stops all. Dropout draws
/// other numbers on each rank. Steps are not captured.
///
/// This, train() and evaluate() are collective. Throws argument_error for arguments that let a rank choose micro-batches of
/// its own (auto_find_batch_size, memory.budget) and as data_parallel does, and state_error if called twice.
template <class Device, class Model, class Kind, class Options>
void join(trainer<Device, Model, Kind, Options>& t, communicator& comm) {
    t.join([&](Device& device, auto& acc, const training_arguments& arguments) -> std::unique_ptr<detail::trainer_ranks> {
        using accumulator_type = std::remove_reference_t<decltype(acc)>;
        return std::make_unique<detail::parallel_ranks<data_parallel<Device, accumulator_type>>>(
            device, comm, acc, data_parallel_options{.micro_batches = static_cast<int>(arguments.gradient_accumulation_steps)});
    });
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
