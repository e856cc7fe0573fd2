// SPDX-License-Identifier: MIT
/// \file
/// How operands of eight bits are scaled: each tensor by one factor, so that its largest magnitude becomes the
/// format's.
///
///     using mine = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<1024>>;
///
///     scale = (largest number of the format / amax) / 2^margin,        product = (a b) / (scale of a * scale of b)
///
/// | scaling           | amax                                                        | reads a tensor | keeps           |
/// | ----------------- | ----------------------------------------------------------- | -------------- | --------------- |
/// | `current_scaling` | the tensor's own                                            | twice          | nothing         |
/// | `delayed_scaling` | the largest, or the latest, of so many windows before       | once           | amaxes, a scale |
///
/// The rules are those of NVIDIA's Transformer Engine (Micikevicius et al., "FP8 Formats for Deep Learning", 2022,
/// section 4). Where amax is 0 or not finite it tells nothing: the current scale is 1 then, a delayed one stays as it
/// was. A scale lies between 2^-126, whose inverse is a float, and float's largest number.
///
/// With delayed scaling a window is what an optimizer's step ends, that of a model which is frozen as a whole too: all
/// micro-batches of it are scaled alike, what they meet goes into the history with the step, and a step that is skipped,
/// since a gradient is not finite, leaves the history as it leaves parameters and moments. A tensor that is not finite
/// has no part in it, so that one bad micro-batch that never reaches a step does not hold the scale for a whole history;
/// discard() of the accumulator forgets what the window met so far. A tensor that a window did not meet at all, that of
/// a layer which did not run or a gradient that was not reached, or met with zeros alone, keeps its history and its
/// scale: the history is of the latest windows that told something, as in Transformer Engine since #825. Every forward
/// pass on a tape counts, whether or not a backward pass follows; values without a tape (evaluation) never do. Before the
/// first step the scale is 1.
#pragma once

#include <cstdint>
#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/number/bits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Which amax of a history counts.
enum class amax_rule { max, most_recent };

/// Which scales there are. With powers of two the conversion shifts exponents alone: it moves no number but those that
/// eight bits cannot hold, and the same weight stays the same code while amax wanders within a binade; up to one binade
/// of the format's range is left unused.
enum class scale_steps { any, powers_of_two };

/// A scaling as values.
struct scaling_rule {
    int history = 0;  ///< windows that count; 0: current scaling
    amax_rule rule = amax_rule::max;
    int margin = 0;   ///< binades of the format's range kept free
    scale_steps steps = scale_steps::any;
};

/// Every tensor by its own amax.
template <int Margin = 0, scale_steps Steps = scale_steps::any>
struct current_scaling {
    static_assert(Margin >= 0 && Margin < 16,
                  "halftone: current_scaling: the margin counts binades that are kept free, from 0 to 15");
    static constexpr scaling_rule rule{0, amax_rule::most_recent, Margin, Steps};
};

/// Every tensor by the amaxes of the windows before.
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

/// How a policy (with roles, not a recipe) scales operands of eight bits: its `scaling`, current_scaling<> where it
/// names none.
template <class P>
using scaling_of = typename detail::scaling_role<P>::type;

/// The scale for an amax, by which a tensor of a format whose largest number is `largest` is multiplied. `before`: what
/// it is where amax tells nothing.
HALFTONE_HD HALFTONE_INLINE constexpr float scale_for(float amax, float largest, const scaling_rule& rule,
                                                      float before) {
    using detail::bit_cast;
    constexpr std::uint32_t infinity = 0x7f800000, fraction = 0x007fffff, least = 0x00800000;
    // On bits, so that -ffast-math does not take the cases away.
    const std::uint32_t magnitude = bit_cast<std::uint32_t>(amax) & 0x7fffffff;
    if (magnitude == 0 || magnitude >= infinity) return before;
    const float scale = (largest / amax) / static_cast<float>(1 << rule.margin);
    std::uint32_t bits = bit_cast<std::uint32_t>(scale);
    if (bits >= infinity) bits = infinity - 1;
    if (bits < least) bits = least;  // so that its inverse is a float
    if (rule.steps == scale_steps::powers_of_two) bits &= ~fraction;
    return bit_cast<float>(bits);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
