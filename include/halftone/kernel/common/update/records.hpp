// SPDX-License-Identifier: MIT
/// \file
/// What lies in the device's memory between a backward pass and an optimizer's step: small records that the device's
/// own work reads and writes, so that the host never waits for them.
///
/// Gradients stay in memory as the backward pass left them, multiplied by the loss scale. Unscaling and clipping only
/// write factors, and whoever reads a gradient g applies them in the order in which PyTorch changes the values:
///
///     v = clamp((g * inv_scale) * clip, -limit, limit)
///
/// An infinity would come out as the limit; no optimizer lets it come so far, since a step with a gradient that is not
/// finite changes nothing.
#pragma once

#include <cmath>
#include <cstdint>

#include <halftone/number/bits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// What the readers of a gradient apply to it.
struct gradient_factors {
    static constexpr float no_limit = 3.40282347e+38f;  ///< the largest float: a clamp that changes nothing finite

    float inv_scale = 1.0f;  ///< 1 / loss scale
    float clip = 1.0f;       ///< the product of the coefficients of clipping by norm
    float limit = no_limit;  ///< clipping by value, after `clip`
};

/// A gradient as its readers see it, in double: where a float overflows or vanishes. Without clipping by value nothing
/// is clamped, so that what overflows when it is unscaled shows.
HALFTONE_HD inline double read_gradient_in_double(float g, const gradient_factors& f) {
    const double v = static_cast<double>(g) * static_cast<double>(f.inv_scale) * static_cast<double>(f.clip);
    if (f.limit == gradient_factors::no_limit) return v;
    const double limit = static_cast<double>(f.limit);
    return v > limit ? limit : v < -limit ? -limit : v;
}

/// What a read pass can find, the worst of it.
inline constexpr std::int32_t found_nothing = 0, found_infinity = 1, found_nan = 2;

/// The factors, and what a read pass over the gradients found.
struct gradient_record {
    gradient_factors factors{};
    double squares = 0;          ///< the sum of v * v, as the pass goes on
    float norm = 0;              ///< of v, with the present factors; infinity where a gradient is not finite
    float norm_before = 0;       ///< what `norm` was before the last clipping by norm
    std::int32_t found_inf = 0;  ///< the worst of what the pass found: found_infinity, found_nan
    std::int32_t outlier = 0;    ///< 1 where a guard judged that no step should follow
};

/// Begins a read pass.
HALFTONE_HD inline void begin_pass(gradient_record& r) {
    r.squares = 0;
    r.found_inf = 0;
}

/// The gradients of one optimizer, in a window of several.
struct part_record {
    double squares = 0;  ///< the sum of v * v, with the factors of the pass that found it
    float clip = 1;      ///< what `clip` was among these
};

/// Adds what a pass over one slab came to. Gradients whose norm is beyond float's range are as good as infinite:
/// unscaled, one of them may be. What a rule's moments can hold is less, see is_beyond().
HALFTONE_HD inline void add_slab(gradient_record& r, std::int32_t& found_inf, double squares, std::int32_t found) {
    constexpr double largest = static_cast<double>(gradient_factors::no_limit);
    if (found == found_nothing && squares > largest * largest) found = found_infinity;
    r.squares += squares;
    if (found > r.found_inf) r.found_inf = found;
    if (found > found_inf) found_inf = found;
}

/// Ends a read pass. The norm is an infinity by its bits, since arithmetic may not give one under -ffast-math.
HALFTONE_HD inline void end_pass(gradient_record& r) {
    constexpr std::uint32_t infinity = 0x7f800000;
    constexpr double largest = static_cast<double>(gradient_factors::no_limit);
    const double norm = std::sqrt(r.squares);
    r.norm = r.found_inf != 0 ? detail::bit_cast<float>(infinity) : static_cast<float>(norm < largest ? norm : largest);
}

/// Ends the part of a pass that belongs to the gradients parts[index]: those of the parts before it have ended.
HALFTONE_HD inline void end_part(const gradient_record& r, part_record* parts, std::int64_t index) {
    double squares = r.squares;
    for (std::int64_t i = 0; i < index; ++i) squares -= parts[i].squares;
    parts[index] = {squares, r.factors.clip};
}

/// Whether gradients that are finite are too large for a step all the same: whether one of them, as the optimizer reads
/// it, may be above `largest`, with which the moments of its rule stay finite (the rule's largest_gradient()). Such a step
/// counts as an overflow: the moment would be infinite from then on, and the parameter never move again. It is told from the
/// norm, which the pass has found, and from the factors of clipping since.
HALFTONE_HD inline bool is_beyond(const gradient_record& r, const part_record& part, float largest) {
    if (r.factors.limit <= largest) return false;
    const double factor = static_cast<double>(r.factors.clip), before = static_cast<double>(part.clip),
                 most = static_cast<double>(largest);
    return part.squares * factor * factor > most * most * before * before;
}

/// The largest number whose square, and a sum of squares that rounding has made larger, are floats.
inline constexpr float largest_with_square = 0x1p63f;

/// Makes the norm at most max_norm, by PyTorch's formula: a coefficient of max_norm / (norm + 1e-6), never above 1.
HALFTONE_HD inline void clip_by_norm(gradient_record& r, float max_norm) {
    r.norm_before = r.norm;
    const float coefficient = r.found_inf != 0 ? 0.0f : 1.0f / (r.norm + 1e-6f) * max_norm;
    if (coefficient >= 1.0f) return;
    r.factors.clip *= coefficient;
    if (r.factors.limit != gradient_factors::no_limit) r.factors.limit *= coefficient;
    if (r.found_inf == 0) r.norm *= coefficient;
}

/// Makes every value at most `limit` in magnitude. The norm is that of before, until the next pass.
HALFTONE_HD inline void clip_by_value(gradient_record& r, float limit) {
    if (limit < r.factors.limit) r.factors.limit = limit;
}

/// What an optimizer knows of its steps.
struct step_record {
    std::int64_t steps = 0;    ///< that changed the parameters
    std::int64_t skipped = 0;  ///< that did not
    double lr = 0;             ///< the learning rate, before the schedule
    double multiplier = 1;     ///< the schedule's factor in the present step, taken or not
    std::int32_t skips = 0;    ///< not 0 where the present step changes nothing: the step_result
};

/// The learning rate and the decay of some of an optimizer's parameters.
struct group_rates {
    double fixed_lr = 0;  ///< a rate of their own, and
    double lr_share = 1;  ///< their share of the optimizer's rate; one of the two is 0
    double weight_decay = 0;

    HALFTONE_HD double lr(const step_record& s) const { return (fixed_lr + lr_share * s.lr) * s.multiplier; }
    friend bool operator==(const group_rates& a, const group_rates& b) {
        return a.fixed_lr == b.fixed_lr && a.lr_share == b.lr_share && a.weight_decay == b.weight_decay;
    }
};

/// Which random numbers the stochastic rounding of some elements takes: element i takes those of index `first` + i.
struct rounding_key {
    std::uint64_t seed = 0;
    std::uint32_t tensor = 0;  ///< a multiple of 4: one for the parameters, the following for each moment
    std::uint64_t first = 0;   ///< a multiple of 4
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
