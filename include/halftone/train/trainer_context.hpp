// SPDX-License-Identifier: MIT
/// \file
/// What the parts of a trainer share. Included by trainer.hpp.
#pragma once

#include <vector>

#include <halftone/exec/ranges.hpp>
#include <halftone/train/callback.hpp>
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
    trainer_ranks* ranks = nullptr;  ///< that it has joined

    /// This rank's number, and how many have joined; 0 and 1 for a trainer alone.
    int rank() const { return ranks == nullptr ? 0 : ranks->rank(); }
    int rank_count() const { return ranks == nullptr ? 1 : ranks->size(); }

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
