// SPDX-License-Identifier: MIT
/// \file
/// One step of an optimizer whose moments are stored in 8 bits, for a contiguous range of parameters, in one pass over
/// memory. Blockwise, as defined by Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", with the
/// block size of bitsandbytes, 256 elements.
///
///     kernel::eight_bit_step<cpu>::run<rounding::nearest_even, kernel::adamw_rule, float, bfloat16, float>(
///         device, {.step = {.master = w, .copy = w16, .gradient = g, .factors = &record.factors, .step = &steps},
///                  .codes = {m8, v8}, .absmax = {m_max, v_max}, .maps = maps.data()});
///
/// Numeric contract: a moment is its code's value in the dynamic map (number/dynamic_map.hpp) times the absmax of its block,
/// one product in float. The rule's step follows as optimizer_step.hpp specifies, with the same bits as with moments in
/// float; the parameter is updated with the new moments before these are rounded to codes. Then absmax becomes the
/// largest magnitude of the block's new moments, and each code becomes that of the value nearest to moment / absmax, a
/// quotient in float; of two that are equally near, that of the smaller magnitude. A negative moment gets the code of a
/// negative value, even if 0 is nearer. AdamW's second moment gets the code of the smallest positive value where 0 is
/// nearer, unless it and the first moment are both 0: a step divides by its root. A block of zeros has absmax 0 and the
/// codes of 0. If absmax is 0, any codes mean zeros, so memory that is set to zero is a valid initial state. Moments that
/// are never negative use the unsigned map.
///
/// Bound of AdamW's steps: let m and v be an element's moments before they are rounded, M and V the absmax of their block.
/// From the distances of the map's values follows for what is stored, m' and v', up to roundings in float, if V is at least
/// 2^-104 (below, values of codes are subnormal floats, and the first moments less than epsilon):
///
///     |m'| <= max(2 |m|, 5.5e-7 M)      v' >= 0.534 v, and v' >= 3.25e-7 V if m' or v is not 0
///     |m'| / sqrt(v') <= max(2.74 |m| / sqrt(v), 9.7e-4 M / sqrt(V))
///
/// The last line bounds the part of the next step that m' contributes, relative to AdamW's with the moments that were not
/// rounded. The 2 and the 0.534 are of the smallest values; from 1% of absmax on they are 1.11 and 0.93.
///
/// The first block begins with the first element, and the last one may be shorter. An element depends on the other
/// elements of its block only by absmax, and the bits are the same at any number of threads.
#pragma once

#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/adamw.hpp>
#include <halftone/number/dynamic_map.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The number of consecutive elements with a common absmax (largest magnitude).
inline constexpr extent eight_bit_block = 256;

template <class Rule, class Param, class Copy, class Accumulate>
struct eight_bit_step_arguments {
    optimizer_step_arguments<Rule, Param, Copy, Accumulate, float> step;  ///< without moments
    view<std::uint8_t, 1> codes[Rule::moments]{};                         ///< (count), for each moment
    view<float, 1> absmax[Rule::moments]{};                               ///< (number of blocks), for each moment
    const dynamic_maps* maps = nullptr;                                   ///< in the device's memory
};

constexpr extent eight_bit_blocks(extent count) { return detail::ceil_div(count, eight_bit_block); }

/// Whether moment number `which` of a rule can be negative.
template <class Rule>
HALFTONE_HD constexpr bool moment_has_sign(int which) {
    return !std::is_same_v<Rule, adamw_rule> || which == 0;  // the second moment is a mean of squares
}

/// Whether a step divides by the root of moment number `which`, so that it has no code of 0 beside a first moment that is not 0.
template <class Rule>
HALFTONE_HD constexpr bool moment_divides(int which) {
    return std::is_same_v<Rule, adamw_rule> && which == 1;
}

/// run<Rounding>(device, arguments), as kernel::optimizer_step. Changes nothing if step->skips. Throws shape_error, and
/// argument_error for a random index that is not a multiple of 4.
template <class Device>
struct eight_bit_step {
    static_assert(sizeof(Device) == 0,
                  "halftone: an optimizer's step with 8-bit state: the kernels of this device are not included: include "
                  "<halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

template <class Rule, class Param, class Copy, class Accumulate>
void check(const eight_bit_step_arguments<Rule, Param, Copy, Accumulate>& a) {
    check_all_but_moments(a.step);
    if (!a.step.rule.keeps())
        fail<argument_error>(Rule::name, ": moments in 8 bits of a rule that stores none; expected a momentum");
    const extent count = a.step.master.size();
    for (int k = 0; k < Rule::moments; ++k) {
        expect(Rule::name, "codes", a.codes[k], {count});
        expect(Rule::name, "absmax", a.absmax[k], {eight_bit_blocks(count)});
    }
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
