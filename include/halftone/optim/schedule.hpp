// SPDX-License-Identifier: MIT
/// \file
/// Learning rate schedules: constant, linear or cosine, after a warm-up, as in Hugging Face's trainers.
///
///     optimizer.set_schedule({.shape = ht::cosine, .total_steps = 10000, .warmup_ratio = 0.03});
///     optimizer.lr();                      // the rate of the next step
///
/// The factor is a function of the number of steps that changed the parameters. The optimizer keeps that count, so that
/// a skipped step does not advance the schedule, and there is no scheduler object that a program could forget to call.
#pragma once

#include <cmath>
#include <cstdint>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The learning rate's factor after the warm-up.
enum class schedule {
    constant,  ///< always 1
    linear,    ///< linearly from 1 to final_ratio
    cosine,    ///< by half a cosine wave to final_ratio (Loshchilov and Hutter 2017, no restarts)
};
/// For {.shape = ht::cosine}.
inline constexpr schedule cosine = schedule::cosine;

/// A learning rate schedule.
struct schedule_options {
    schedule shape = schedule::constant;
    std::int64_t total_steps = 0;   ///< steps of the whole run, warm-up included; not needed for a constant rate
    std::int64_t warmup_steps = 0;  ///< steps in which the rate rises linearly from zero
    double warmup_ratio = 0;        ///< the same as a fraction of total_steps, rounded up; used if warmup_steps is 0
    double final_ratio = 0;         ///< the final rate of linear and cosine, as a fraction of the full rate
};

/// The number of steps of warm-up.
HALFTONE_HD inline std::int64_t warmup_steps(const schedule_options& s) {
    if (s.warmup_steps > 0) return s.warmup_steps;
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(s.total_steps) * s.warmup_ratio));
}

/// The learning rate's factor in the step after `done` successful ones.
HALFTONE_HD inline double rate_multiplier(const schedule_options& s, std::int64_t done) {
    const std::int64_t warmup = warmup_steps(s);
    if (done < warmup) return static_cast<double>(done) / static_cast<double>(warmup);
    if (s.shape == schedule::constant) return 1;
    const std::int64_t rest = s.total_steps - warmup;
    double progress = static_cast<double>(done - warmup) / static_cast<double>(rest > 1 ? rest : 1);
    if (progress > 1) progress = 1;
    constexpr double pi = 3.14159265358979323846;
    const double left = s.shape == schedule::linear ? 1 - progress : 0.5 * (1 + std::cos(pi * progress));
    return s.final_ratio + (1 - s.final_ratio) * left;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
