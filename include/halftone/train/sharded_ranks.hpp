// SPDX-License-Identifier: MIT
/// \file
/// Trainers of several ranks, of a model that is divided among them (ranks/shard.hpp).
///
///     ht::shard sharded{device, model, comm, ht::zero3{"h.*"}, {.micro_batches = 4}};      // before the trainer
///     ht::trainer trainer{device, model, {.gradient_accumulation_steps = 4}};
///     ht::join(trainer, sharded);
///     trainer.train(data);
#pragma once

#include <memory>

#include <halftone/ranks/shard.hpp>
#include <halftone/train/ranks.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A trainer's ranks, whose gradients the division of the model adds.
class sharded_ranks final : public trainer_ranks {
  public:
    explicit sharded_ranks(communicator& comm) : trainer_ranks(comm.rank(), comm.size()), comm_(&comm) {}

    step_losses add_up(const step_losses& own) override {
        return {all_reduce_sum(*comm_, "losses", own.sum), all_reduce_sum(*comm_, "weights of losses", own.weight)};
    }
    extent add_up(extent own) override { return all_reduce_sum(*comm_, "tokens", own); }
    bool is_any(bool own) override { return all_reduce_max(*comm_, "stop", own ? 1 : 0) != 0; }
    bool calls_together() const override { return true; }

  private:
    communicator* comm_;
};

}  // namespace detail

/// From now on the trainer trains with the other ranks of `sharded`, a division of its model, which must outlive it; as
/// join(trainer, comm). Throws argument_error unless the division was told the trainer's gradient_accumulation_steps.
template <class Device, class Model, class Kind, class Options, class Strategy>
void join(trainer<Device, Model, Kind, Options>& t, shard<Device, Model, Strategy>& sharded) {
    t.join([&](Device&, auto&, const training_arguments& arguments) -> std::unique_ptr<detail::trainer_ranks> {
        const int told = sharded.options().micro_batches;
        if (told != 0 && told != static_cast<int>(arguments.gradient_accumulation_steps)) {
            fail<argument_error>("trainer: gradient_accumulation_steps is ", arguments.gradient_accumulation_steps,
                                 ", and ht::shard was made with micro_batches of ", told, "; expected the same, or 0");
        }
        return std::make_unique<detail::sharded_ranks>(sharded.comm());
    });
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
