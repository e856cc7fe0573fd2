// SPDX-License-Identifier: MIT
/// \file
/// How the learning rate moves over a run: constant, linear or cosine, after a warm-up, as Hugging Face's trainers have
/// it.
///
///     optimizer.set_schedule({.shape = ht::cosine, .total_steps = 10000, .warmup_ratio = 0.03});
///     optimizer.lr();                      // what the next step takes
///
/// The factor is a function of the number of steps that changed the parameters. An optimizer keeps that count where it
/// keeps everything else, so that a skipped step moves nothing and there is no scheduler to forget to call.
#pragma once

#include <cmath>
#include <cstdint>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The shape of the learning rate after the warm-up, as a factor.
enum class schedule {
    constant,  ///< 1
    linear,    ///< down to zero in a straight line
    cosine,    ///< down to zero in half a wave (Loshchilov and Hutter 2017, without restarts)
};
/// {.shape = ht::cosine}.
inline constexpr schedule cosine = schedule::cosine;

/// How the learning rate moves over a run.
struct schedule_options {
    schedule shape = schedule::constant;
    std::int64_t total_steps = 0;   ///< steps of the whole run, warm-up included; a constant rate needs none
    std::int64_t warmup_steps = 0;  ///< steps in which the rate rises from zero in a straight line
    double warmup_ratio = 0;        ///< the same as a share of total_steps, rounded up; read where warmup_steps is 0
    double final_ratio = 0;         ///< where linear and cosine end, as a share of the full rate
};

/// The number of steps of warm-up.
HALFTONE_HD inline std::int64_t warmup_steps(const schedule_options& s) {
    if (s.warmup_steps > 0) return s.warmup_steps;
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(s.total_steps) * s.warmup_ratio));
}

/// The factor of the learning rate in the step that follows `done` successful ones.
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
