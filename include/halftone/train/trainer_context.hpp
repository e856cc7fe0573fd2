// SPDX-License-Identifier: MIT
/// \file
/// What the parts of a trainer share. Included by trainer.hpp.
#pragma once

#include <string>
#include <vector>

#include <halftone/exec/ranges.hpp>
#include <halftone/train/callback.hpp>
#include <halftone/train/step_rows.hpp>
#include <halftone/train/trainer_ranks.hpp>
#include <halftone/train/training_arguments.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A trainer's arguments, its state, and whom it tells of it.
template <class Device, class Model>
struct trainer_context {
    training_arguments arguments;  ///< those of micro-batches and of the optimizer are what is done now
    Device* device;
    Model* model;
    trainer_state state{};
    std::vector<trainer_callback*> callbacks{};
    range_listener* listener = nullptr;
    bool is_listened_to = false;     ///< by another listener than that of a plan
    bool is_evaluating = false;      ///< the last pass was one of an evaluation
    std::string notes{};             ///< of this call of train(), for its result
    trainer_ranks* ranks = nullptr;  ///< that it has joined
    std::string order{};             ///< what decides which rows a step has, for a checkpoint
    bool is_restored = false;        ///< a state has been loaded since the last call of train(), with that order

    extent epoch_rows = 0;           ///< of an epoch of the data, in a run of num_train_epochs
    std::int64_t epoch_steps = 0;    ///< steps of an epoch of the data; 0: the run has max_steps

    /// This rank's number, and how many have joined; 0 and 1 for a trainer alone.
    int rank() const { return ranks == nullptr ? 0 : ranks->rank(); }
    int rank_count() const { return ranks == nullptr ? 1 : ranks->size(); }

    /// How a step's rows are divided.
    step_rows rows() const {
        return {arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps, rank(), rank_count()};
    }
    /// The rows of a step of all ranks.
    extent rows_of_step() const {
        return arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * rank_count();
    }

    /// The epochs that are done, with the fraction of the one that is not, by micro-batches, as transformers has it.
    double epochs() const {
        if (epoch_steps == 0) return 0;
        const extent parts = steps_of_epoch(epoch_rows, arguments.per_device_train_batch_size * rank_count());
        const extent done = state.step % epoch_steps * arguments.gradient_accumulation_steps;
        return static_cast<double>(state.step / epoch_steps) + static_cast<double>(done) / static_cast<double>(parts);
    }

    /// Calls f(callback) for each callback of this rank: on rank 0 all of them, on others those of all ranks.
    template <class F>
    void for_each_callback(const F& f) const {
        for (trainer_callback* callback : callbacks) {
            if (rank() == 0 || callback->is_of_all_ranks()) f(*callback);
        }
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
