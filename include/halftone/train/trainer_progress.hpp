// SPDX-License-Identifier: MIT
/// \file
/// The counters of a trainer between two steps. Included by trainer.hpp.
#pragma once

#include <cstdint>
#include <string>

#include <halftone/train/loss_meter.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The counters of a trainer, for resuming a run with the same figures.
struct trainer_progress {
    std::int64_t step = 0;          ///< steps taken, skipped ones included
    std::int64_t window_steps = 0;  ///< of these, since the last log
    double seconds = 0, step_ms = 0;
    double tokens = 0, token_seconds = 0, window_tokens = 0, window_seconds = 0;
    loss_meter_state losses{};
    std::string order{};  ///< what decides which rows a step has: "8 rows a step of 32 samples, shuffled, seed 4"; empty: nothing

    /// The rows of steps need not follow those that were there, since the program's arguments count.
    void take_programs_order() { order.clear(); }
    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("step", self.step), f("window_steps", self.window_steps), f("seconds", self.seconds), f("step_ms", self.step_ms);
        f("tokens", self.tokens), f("token_seconds", self.token_seconds);
        f("window_tokens", self.window_tokens), f("window_seconds", self.window_seconds), f("losses", self.losses);
        f("order", self.order);
    }
};

namespace detail {

/// A trainer's counters as a part of a checkpoint. Those of several ranks differ in times alone.
template <class Trainer>
struct progress_part {
    static constexpr const char* checkpoint_name = "trainer";
    static constexpr bool is_of_first_rank = true;
    Trainer* self;
    trainer_progress state() { return self->progress(); }
    void load(const trainer_progress& p) { self->restore(p); }
};

/// The random numbers of a trainer's tape. Ranks draw from seeds of their own, which follow from the run's, so that all save
/// and load the same.
template <class Tape>
struct draws_part {
    static constexpr const char* checkpoint_name = "random";
    Tape* tape;
    std::uint64_t seed;  ///< the run's, rank 0's
    auto state() const {
        auto draws = tape->random_state();
        draws.seed = seed;
        return draws;
    }
    void load(const auto& draws) {
        seed = draws.seed;
        tape->restore(draws);
    }
    /// Draws as this rank from here on.
    void begin(int rank) {
        if (rank == 0) return;
        auto draws = tape->random_state();
        draws.seed = seed ^ static_cast<std::uint64_t>(rank) * 0x9e3779b97f4a7c15;
        tape->restore(draws);
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
