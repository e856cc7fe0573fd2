// SPDX-License-Identifier: MIT
/// \file
/// How 8-bit operands are scaled: each tensor by one factor, chosen so that its largest magnitude (its amax) becomes
/// the largest number of the format.
///
///     using mine = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<1024>>;
///
///     scale = (largest number of the format / amax) / 2^margin,        product = (a b) / (scale of a * scale of b)
///
/// | scaling           | amax                                                        | reads a tensor | keeps           |
/// | ----------------- | ----------------------------------------------------------- | -------------- | --------------- |
/// | `current_scaling` | the tensor's own                                            | twice          | nothing         |
/// | `delayed_scaling` | the largest or latest of the last History windows           | once           | amaxes, a scale |
///
/// The rules are those of NVIDIA's Transformer Engine (Micikevicius et al., "FP8 Formats for Deep Learning", 2022,
/// section 4). An amax of 0, or one that is not finite, says nothing about the scale: a current scale is then 1, a
/// delayed one keeps its value. A scale is between 2^-126, the inverse of which is still a float, and float's largest
/// number.
///
/// With delayed scaling a window is the work between two steps of the optimizer (also for a model that is frozen as a
/// whole):
///
/// - All micro-batches of a window have the same scales; their amaxes enter the history with the step.
/// - A step that is skipped because a gradient is not finite leaves the history unchanged, as it leaves parameters and
///   moments.
/// - A tensor that is not finite does not count, so that one bad micro-batch outside of any step does not determine the
///   scale for a whole history. discard() of the accumulator forgets the window's amaxes so far.
/// - A tensor that a window did not see (its layer did not run, or the gradient did not get there), or of which it saw
///   only zeros, keeps its history and scale: the history holds the latest windows with information, as Transformer
///   Engine's has since its pull request 825.
/// - Every forward pass on a tape counts, whether or not a backward pass follows; passes without a tape (evaluation) do
///   not.
/// - Before the first step the scale is 1.
#pragma once

#include <cstdint>
#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/number/bits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Which amax of the history determines the scale.
enum class amax_rule { max, most_recent };

/// Which values scales can have. Multiplying by a power of two changes only the exponent: values are rounded only by
/// the conversion to eight bits, and a weight keeps its code while the amax moves within a binade. In exchange up to
/// one binade of the format's range stays unused.
enum class scale_steps { any, powers_of_two };

/// A scaling as run-time values.
struct scaling_rule {
    int history = 0;  ///< number of windows in the history; 0: current scaling
    amax_rule rule = amax_rule::max;
    int margin = 0;   ///< binades of the format's range kept free
    scale_steps steps = scale_steps::any;
};

/// Scales every tensor by its own amax.
template <int Margin = 0, scale_steps Steps = scale_steps::any>
struct current_scaling {
    static_assert(Margin >= 0 && Margin < 16,
                  "halftone: current_scaling: the margin counts binades that are kept free, from 0 to 15");
    static constexpr scaling_rule rule{0, amax_rule::most_recent, Margin, Steps};
};

/// Scales every tensor by the amaxes of the last History windows.
template <int History = 16, amax_rule Rule = amax_rule::max, int Margin = 0, scale_steps Steps = scale_steps::any>
struct delayed_scaling {
    static_assert(History >= 1 && History <= 65536, "halftone: delayed_scaling: the history has 1 to 65536 windows");
    static_assert(Margin >= 0 && Margin < 16,
                  "halftone: delayed_scaling: the margin counts binades that are kept free, from 0 to 15");
    static constexpr scaling_rule rule{History, Rule, Margin, Steps};
};

namespace detail {

template <class S>
concept tensor_scaling = std::is_same_v<std::remove_cvref_t<decltype(S::rule)>, scaling_rule>;

template <class P>
struct scaling_role {
    using type = current_scaling<>;
};
template <class P>
    requires requires { typename P::scaling; }
struct scaling_role<P> {
    using type = typename P::scaling;
};

}  // namespace detail

/// How a policy (with roles, not a recipe) scales 8-bit operands: its `scaling`, or current_scaling<> if it has none.
template <class P>
using scaling_of = typename detail::scaling_role<P>::type;

/// The scale for an amax: the factor by which a tensor is multiplied before it is rounded to a format whose largest
/// number is `largest`. `before` is the result where amax is 0 or not finite.
HALFTONE_HD HALFTONE_INLINE constexpr float scale_for(float amax, float largest, const scaling_rule& rule,
                                                      float before) {
    constexpr std::uint32_t infinity = 0x7f800000, fraction = 0x007fffff, least = 0x00800000;
    // Compares bits, so that -ffast-math does not remove the cases of infinity and NaN.
    const std::uint32_t magnitude = bit_cast<std::uint32_t>(amax) & 0x7fffffff;
    if (magnitude == 0 || magnitude >= infinity) return before;
    const float scale = (largest / amax) / static_cast<float>(1 << rule.margin);
    std::uint32_t bits = bit_cast<std::uint32_t>(scale);
    if (bits >= infinity) bits = infinity - 1;
    if (bits < least) bits = least;  // so that the scale's inverse is a float
    if (rule.steps == scale_steps::powers_of_two) bits &= ~fraction;
    return bit_cast<float>(bits);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
