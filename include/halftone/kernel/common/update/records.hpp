// SPDX-License-Identifier: MIT
/// \file
/// The records in the device's memory between a backward pass and an optimizer's step: small structs that the device's
/// own work reads and writes, so that the host never waits for them.
///
/// Gradients stay in memory as the backward pass left them, multiplied by the loss scale. Unscaling and clipping only
/// write factors into a record; code that reads a gradient g applies them in the order in which PyTorch changes the
/// values:
///
///     v = clamp((g * inv_scale) * clip, -limit, limit)
///
/// An infinity would become the limit; but no optimizer reads one, since a step with a gradient that is not finite
/// changes nothing.
#pragma once

#include <cmath>
#include <cstdint>

#include <halftone/number/bits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The factors that readers of a gradient apply.
struct gradient_factors {
    static constexpr float no_limit = 3.40282347e+38f;  ///< the largest float: a clamp that changes nothing finite

    float inv_scale = 1.0f;  ///< 1 / loss scale
    float clip = 1.0f;       ///< the product of the coefficients of clipping by norm
    float limit = no_limit;  ///< clipping by value, after `clip`
};

/// A gradient with its factors applied, in double, for values at which floats overflow or underflow. Without clipping
/// by value nothing is clamped, so that a gradient that overflows when it is unscaled shows.
HALFTONE_HD inline double read_gradient_in_double(float g, const gradient_factors& f) {
    const double v = static_cast<double>(g) * static_cast<double>(f.inv_scale) * static_cast<double>(f.clip);
    if (f.limit == gradient_factors::no_limit) return v;
    const double limit = static_cast<double>(f.limit);
    return v > limit ? limit : v < -limit ? -limit : v;
}

/// The results of a read pass: the worst value found.
inline constexpr std::int32_t found_nothing = 0, found_infinity = 1, found_nan = 2;

/// The factors of gradients, and the results of a read pass over them.
struct gradient_record {
    gradient_factors factors{};
    double squares = 0;          ///< the sum of v * v so far in the pass
    float norm = 0;              ///< of v, with the current factors; NaN if a gradient is, else inf if one is infinite
    float norm_before = 0;       ///< what `norm` was before the last clipping by norm
    std::int32_t found_inf = 0;  ///< the worst value found: found_infinity, found_nan
    std::int32_t outlier = 0;    ///< 1 if an outlier guard decided to skip the step
};

/// Begins a read pass.
HALFTONE_HD inline void begin_pass(gradient_record& r) {
    r.squares = 0;
    r.found_inf = 0;
}

/// The gradients of one optimizer, if a window has several.
struct part_record {
    double squares = 0;  ///< the sum of v * v, with the factors of the pass that found it
    float clip = 1;      ///< the value of `clip` in those factors
};

/// Adds the result of a pass over one slab. Gradients whose norm exceeds float's range count as infinite, because one
/// of them may be infinite when unscaled. A rule's moments have a lower limit: see is_beyond().
HALFTONE_HD inline void add_slab(gradient_record& r, std::int32_t& found_inf, double squares, std::int32_t found) {
    constexpr double largest = static_cast<double>(gradient_factors::no_limit);
    if (found == found_nothing && squares > largest * largest) found = found_infinity;
    r.squares += squares;
    if (found > r.found_inf) r.found_inf = found;
    if (found > found_inf) found_inf = found;
}

/// Ends a read pass. Infinity and NaN are made from their bits, since -ffast-math does not guarantee arithmetic that gives
/// them.
HALFTONE_HD inline void end_pass(gradient_record& r) {
    constexpr std::uint32_t infinity = 0x7f800000, nan = 0x7fc00000;
    constexpr double largest = static_cast<double>(gradient_factors::no_limit);
    const double norm = std::sqrt(r.squares);
    r.norm = r.found_inf != found_nothing ? bit_cast<float>(r.found_inf == found_nan ? nan : infinity)
                                          : static_cast<float>(norm < largest ? norm : largest);
}

/// Ends the part of a pass over the gradients parts[index]; the parts before it have ended already.
HALFTONE_HD inline void end_part(const gradient_record& r, part_record* parts, std::int64_t index) {
    double squares = r.squares;
    for (std::int64_t i = 0; i < index; ++i) squares -= parts[i].squares;
    parts[index] = {squares, r.factors.clip};
}

/// Whether finite gradients are too large for a step: whether one of them, with its factors applied, may exceed
/// `largest`, up to which the moments of the optimizer's rule stay finite (the rule's largest_gradient()). Such a step
/// counts as an overflow: otherwise the moment would be infinite from then on, and the parameter would never move
/// again. Decided from the norm, which the pass has computed, and the factors of clipping since.
HALFTONE_HD inline bool is_beyond(const gradient_record& r, const part_record& part, float largest) {
    if (r.factors.limit <= largest) return false;
    const double factor = static_cast<double>(r.factors.clip), before = static_cast<double>(part.clip),
                 most = static_cast<double>(largest);
    return part.squares * factor * factor > most * most * before * before;
}

/// Squares of numbers up to this, and their sums with rounding errors, do not overflow float.
inline constexpr float largest_with_square = 0x1p63f;

/// Clips the norm to max_norm by PyTorch's formula: multiplies by max_norm / (norm + 1e-6), if that is below 1.
HALFTONE_HD inline void clip_by_norm(gradient_record& r, float max_norm) {
    r.norm_before = r.norm;
    const float coefficient = r.found_inf != 0 ? 0.0f : 1.0f / (r.norm + 1e-6f) * max_norm;
    if (coefficient >= 1.0f) return;
    r.factors.clip *= coefficient;
    if (r.factors.limit != gradient_factors::no_limit) r.factors.limit *= coefficient;
    if (r.found_inf == 0) r.norm *= coefficient;
}

/// Clips every value's magnitude to `limit`. The norm is that before clipping, until the next pass.
HALFTONE_HD inline void clip_by_value(gradient_record& r, float limit) {
    if (limit < r.factors.limit) r.factors.limit = limit;
}

/// The state of an optimizer's steps.
struct step_record {
    std::int64_t steps = 0;    ///< number of steps that changed the parameters
    std::int64_t skipped = 0;  ///< number of steps that were skipped
    double lr = 0;             ///< the learning rate, before the schedule
    double multiplier = 1;     ///< the schedule's factor in the current step, skipped or not
    std::int32_t skips = 0;    ///< why the current step is skipped (a step_result); 0: it is not
};

/// The learning rate of a parameter group.
struct group_rates {
    double fixed_lr = 0;  ///< the group's own rate; or
    double lr_share = 1;  ///< its factor of the optimizer's rate; one of the two is 0
    double weight_decay = 0;

    HALFTONE_HD double lr(const step_record& s) const { return (fixed_lr + lr_share * s.lr) * s.multiplier; }
    friend bool operator==(const group_rates& a, const group_rates& b) {
        return a.fixed_lr == b.fixed_lr && a.lr_share == b.lr_share && a.weight_decay == b.weight_decay;
    }
};

/// Identifies the random numbers of stochastic rounding: element i takes those of index `first` + i.
struct rounding_key {
    std::uint64_t seed = 0;
    std::uint32_t tensor = 0;  ///< a multiple of 4: stream of the parameters; the next ones are the moments'
    std::uint64_t first = 0;   ///< a multiple of 4
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
