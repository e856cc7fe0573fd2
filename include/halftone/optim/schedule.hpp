// SPDX-License-Identifier: MIT
/// \file
/// The learning rate over a run: constant, linear, polynomial, cosine or warm-up-stable-decay, after a warm-up, as in
/// Hugging Face's trainers.
///
///     optimizer.set_schedule({.shape = ht::cosine, .total_steps = 10000, .warmup_ratio = 0.03});
///     optimizer.set_schedule({.shape = ht::schedule::warmup_stable_decay, .total_steps = 10000, .warmup_steps = 300,
///                             .decay_steps = 2000, .decay_type = ht::rate_curve::one_minus_sqrt});
///     optimizer.lr();                      // the rate of the next step
///
/// The factor is a function of the number of steps that changed the parameters. The optimizer has that count, so that a
/// skipped step does not advance the schedule, and a program has no scheduler object that it could forget to call.
#pragma once

#include <cmath>
#include <cstdint>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The learning rate's factor after the warm-up.
enum class schedule {
    constant,    ///< 1
    linear,      ///< linear decay to zero
    cosine,      ///< decay to zero along half a cosine wave (Loshchilov and Hutter 2017, without restarts)
    polynomial,  ///< decay to zero as a power of the fraction of steps that remain
    warmup_stable_decay,  ///< 1 until the last decay_steps, in which it decays (Hu et al. 2024, "MiniCPM", "WSD")
};
/// For {.shape = ht::cosine}.
inline constexpr schedule cosine = schedule::cosine;

/// The curve of the warm-up or decay of warmup_stable_decay; p: the fraction of its steps that are done.
enum class rate_curve {
    linear,          ///< warm-up p, decay 1 - p
    cosine,          ///< half a cosine wave
    one_minus_sqrt,  ///< warm-up 1 - sqrt(1 - p), decay 1 - sqrt(p) (Hägele et al. 2024): "1-sqrt" of Hugging Face
};

/// Options of a learning rate schedule.
struct schedule_options {
    schedule shape = schedule::constant;
    std::int64_t total_steps = 0;   ///< steps of the whole run, warm-up included; not needed for a constant rate
    std::int64_t warmup_steps = 0;  ///< steps in which the rate increases linearly from zero
    double warmup_ratio = 0;        ///< warmup_steps as a fraction of total_steps, rounded up; used if warmup_steps is 0
    double final_ratio = 0;  ///< the last rate as a fraction of the full rate; warmup_stable_decay also begins with it
    double power = 1;        ///< exponent of polynomial
    std::int64_t decay_steps = 0;                  ///< for warmup_stable_decay: number of steps of the decay
    rate_curve warmup_type = rate_curve::linear;   ///< for warmup_stable_decay; others are linear
    rate_curve decay_type = rate_curve::cosine;    ///< for warmup_stable_decay

    friend bool operator==(const schedule_options&, const schedule_options&) = default;
};

/// The number of steps of warm-up.
HALFTONE_HD inline std::int64_t warmup_steps(const schedule_options& s) {
    if (s.warmup_steps > 0) return s.warmup_steps;
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(s.total_steps) * s.warmup_ratio));
}

namespace detail {

/// The remaining fraction of the rate after a fraction `progress` of its decay; for a warm-up, counted from its end.
HALFTONE_HD inline double rate_left(rate_curve curve, double progress) {
    constexpr double pi = 3.14159265358979323846;
    if (curve == rate_curve::linear) return 1 - progress;
    if (curve == rate_curve::one_minus_sqrt) return 1 - std::sqrt(progress);
    return 0.5 * (1 + std::cos(pi * progress));
}

/// Hugging Face's get_wsd_schedule: warm-up and decay are between final_ratio and 1.
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

/// The factor of the learning rate in the step after `done` successful steps. Behind the last step it stays what it was at the end.
HALFTONE_HD inline double rate_multiplier(const schedule_options& s, std::int64_t done) {
    const std::int64_t warmup = warmup_steps(s);
    if (s.shape == schedule::warmup_stable_decay) return detail::stable_decay_multiplier(s, warmup, done);
    if (done < warmup) return static_cast<double>(done) / static_cast<double>(warmup);
    if (s.shape == schedule::constant) return 1;
    const std::int64_t rest = s.total_steps - warmup;
    double progress = static_cast<double>(done - warmup) / static_cast<double>(rest > 1 ? rest : 1);
    if (progress > 1 || done >= s.total_steps) progress = 1;  // also behind a warm-up that is as long as the run
    double left = detail::rate_left(s.shape == schedule::cosine ? rate_curve::cosine : rate_curve::linear, progress);
    if (s.shape == schedule::polynomial) left = std::pow(left, s.power);
    return s.final_ratio + (1 - s.final_ratio) * left;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
