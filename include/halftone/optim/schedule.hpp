// SPDX-License-Identifier: MIT
/// \file
/// How the learning rate moves over a run: constant, linear, polynomial, cosine or warm-up-stable-decay, after a warm-up,
/// as Hugging Face's trainers have it.
///
///     optimizer.set_schedule({.shape = ht::cosine, .total_steps = 10000, .warmup_ratio = 0.03});
///     optimizer.set_schedule({.shape = ht::schedule::warmup_stable_decay, .total_steps = 10000, .warmup_steps = 300,
///                             .decay_steps = 2000, .decay_type = ht::rate_curve::one_minus_sqrt});
///     optimizer.lr();                      // what the next step takes
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
    constant,    ///< 1
    linear,      ///< down to zero in a straight line
    cosine,      ///< down to zero in half a wave (Loshchilov and Hutter 2017, without restarts)
    polynomial,  ///< down to zero as a power of the share of steps that is left
    warmup_stable_decay,  ///< 1 until the last decay_steps, in which it falls (Hu et al. 2024, "MiniCPM", "WSD")
};
/// For {.shape = ht::cosine}.
inline constexpr schedule cosine = schedule::cosine;

/// How the rate rises or falls within a part of warmup_stable_decay; p: the share of this part that is done.
enum class rate_curve {
    linear,          ///< up as p, down as 1 - p
    cosine,          ///< half a wave
    one_minus_sqrt,  ///< up as 1 - sqrt(1 - p), down as 1 - sqrt(p) (Hägele et al. 2024): "1-sqrt" in Hugging Face's
};

/// How the learning rate moves over a run.
struct schedule_options {
    schedule shape = schedule::constant;
    std::int64_t total_steps = 0;   ///< steps of the whole run, warm-up included; a constant rate needs none
    std::int64_t warmup_steps = 0;  ///< steps in which the rate rises from zero in a straight line
    double warmup_ratio = 0;        ///< the same as a share of total_steps, rounded up; read where warmup_steps is 0
    double final_ratio = 0;  ///< where it ends, as a share of the full rate; warmup_stable_decay begins there, too
    double power = 1;        ///< of polynomial
    std::int64_t decay_steps = 0;                  ///< of warmup_stable_decay: the last steps of the run
    rate_curve warmup_type = rate_curve::linear;   ///< of warmup_stable_decay; others rise in a straight line
    rate_curve decay_type = rate_curve::cosine;    ///< of warmup_stable_decay
};

/// The number of steps of warm-up.
HALFTONE_HD inline std::int64_t warmup_steps(const schedule_options& s) {
    if (s.warmup_steps > 0) return s.warmup_steps;
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(s.total_steps) * s.warmup_ratio));
}

namespace detail {

/// What is left of the rate where a share `progress` of its fall is done; the rise is the same from its end.
HALFTONE_HD inline double rate_left(rate_curve curve, double progress) {
    constexpr double pi = 3.14159265358979323846;
    if (curve == rate_curve::linear) return 1 - progress;
    if (curve == rate_curve::one_minus_sqrt) return 1 - std::sqrt(progress);
    return 0.5 * (1 + std::cos(pi * progress));
}

/// Hugging Face's get_wsd_schedule: rise and fall are between final_ratio and 1.
HALFTONE_HD inline double stable_decay_multiplier(const schedule_options& s, std::int64_t warmup, std::int64_t done) {
    const std::int64_t decay_begin = s.total_steps - s.decay_steps;
    double left = 1;
    if (done < warmup) {
        left = rate_left(s.warmup_type, 1 - static_cast<double>(done) / static_cast<double>(warmup));
    } else if (done >= s.total_steps) {
        left = 0;
    } else if (done >= decay_begin) {
        left = rate_left(s.decay_type, static_cast<double>(done - decay_begin) / static_cast<double>(s.decay_steps));
    }
    return s.final_ratio + (1 - s.final_ratio) * left;
}

}  // namespace detail

/// The factor of the learning rate in the step that follows `done` successful ones.
HALFTONE_HD inline double rate_multiplier(const schedule_options& s, std::int64_t done) {
    const std::int64_t warmup = warmup_steps(s);
    if (s.shape == schedule::warmup_stable_decay) return detail::stable_decay_multiplier(s, warmup, done);
    if (done < warmup) return static_cast<double>(done) / static_cast<double>(warmup);
    if (s.shape == schedule::constant) return 1;
    const std::int64_t rest = s.total_steps - warmup;
    double progress = static_cast<double>(done - warmup) / static_cast<double>(rest > 1 ? rest : 1);
    if (progress > 1) progress = 1;
    double left = detail::rate_left(s.shape == schedule::cosine ? rate_curve::cosine : rate_curve::linear, progress);
    if (s.shape == schedule::polynomial) left = std::pow(left, s.power);
    return s.final_ratio + (1 - s.final_ratio) * left;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
