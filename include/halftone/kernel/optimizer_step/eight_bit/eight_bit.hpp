// SPDX-License-Identifier: MIT
/// \file
/// One step of an optimizer whose moments are stored in 8 bits, for a contiguous range of parameters, in one pass over
/// memory: blockwise, by the definition of Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", with
/// the blocks of 256 elements of bitsandbytes.
///
///     kernel::eight_bit_step<cpu>::run<rounding::nearest_even, kernel::adamw_rule, float, bfloat16, float>(
///         device, {.step = {.master = w, .copy = w16, .gradient = g, .factors = &record.factors, .step = &steps},
///                  .codes = {m8, v8}, .absmax = {m_max, v_max}, .maps = maps.data()});
///
/// Numeric contract: a moment is its code's value in the dynamic map (dynamic_map.hpp) times the absmax of its block, one
/// product in float. The rule's step follows, as optimizer_step.hpp says, with the bits that it has with moments in float;
/// the parameter moves by the new moments before they are stored. Then absmax becomes the largest magnitude of the new
/// moments of a block, and a code that of the number nearest to moment / absmax, a quotient in float; between two that
/// are equally near, that of the smaller magnitude. A negative moment has the code of a negative number, even if 0 is
/// nearer, as in bitsandbytes. A block of zeros has absmax 0 and the codes of 0; where absmax is 0 any codes stand for
/// zeros, so that cleared memory does. Moments of a rule that are never negative take the map without signs.
///
/// The first block begins with the first element, the last one may be shorter. Elements depend on others of their block by
/// absmax alone, and the bits are the same whatever the number of threads.
#pragma once

#include <halftone/kernel/optimizer_step/eight_bit/dynamic_map.hpp>
#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/adamw.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class Rule, class Param, class Copy, class Accumulate>
struct eight_bit_step_arguments {
    optimizer_step_arguments<Rule, Param, Copy, Accumulate, float> step;  ///< its moments have no data
    view<std::uint8_t, 1> codes[Rule::moments]{};                         ///< (count) each
    view<float, 1> absmax[Rule::moments]{};                               ///< (number of blocks) each
    const dynamic_maps* maps = nullptr;                                   ///< in the device's memory
};

constexpr extent eight_bit_blocks(extent count) { return (count + eight_bit_block - 1) / eight_bit_block; }

/// Whether moment number `which` of a rule can be negative.
template <class Rule>
HALFTONE_HD constexpr bool moment_has_sign(int which) {
    return !std::is_same_v<Rule, adamw_rule> || which == 0;  // the other one is a mean of squares
}

/// run<Rounding>(device, arguments): as kernel::optimizer_step. Changes nothing where step->skips. Throws shape_error, and
/// argument_error for a random index that is no multiple of 4.
template <class Device>
struct eight_bit_step {
    static_assert(sizeof(Device) == 0,
                  "halftone: an optimizer's step with 8-bit state: the kernels of this device are not included: include "
                  "<halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

template <class Rule, class Param, class Copy, class Accumulate>
void check(const eight_bit_step_arguments<Rule, Param, Copy, Accumulate>& a) {
    check_all_but_moments(a.step);
    const extent count = a.step.master.size();
    for (int k = 0; k < Rule::moments; ++k) {
        expect(Rule::name, "codes", a.codes[k], {count});
        expect(Rule::name, "absmax", a.absmax[k], {eight_bit_blocks(count)});
    }
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
