// SPDX-License-Identifier: MIT
/// \file
/// A step of an optimizer with 8-bit moments on the CPU; eight_bit.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/codes.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/eight_bit.hpp>

#define HALFTONE_BODY <halftone/kernel/optimizer_step/eight_bit/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct eight_bit_step<cpu> {
    template <rounding Rounding, class Rule, class Param, class Copy, class Accumulate,
              rounding CopyRounding = rounding::nearest_even>
    static void run(cpu& device, const eight_bit_step_arguments<Rule, Param, Copy, Accumulate>& a) {
        check(a);
        device.run([&] {
            if (a.step.step->skips != 0) return;
            static_assert(update_chunk % eight_bit_block == 0);
            update_all(device, a.step.gradient, updater<Rounding, CopyRounding>(device, a));
        });
    }

  private:
    /// Updates n parameters from the i-th on, which is the first of a block, with their gradients.
    template <rounding Rounding, rounding CopyRounding, class Rule, class Param, class Copy, class Accumulate>
    static auto updater(cpu& device, const eight_bit_step_arguments<Rule, Param, Copy, Accumulate>& a) {
        const auto body = device.select(
            HALFTONE_EACH_SET(eight_bit_step_elements<Rule, Rounding, CopyRounding, Param, Copy, Accumulate>));
        return [a, body, codecs = make_dynamic_codecs(*a.maps),
                scalars = a.step.rule.scalars_of(a.step.rates, *a.step.step)](extent i, extent n,
                                                                              const Accumulate* gradient) {
            body(a, {i, n, gradient}, codecs, scalars, streams_copies<Param>(a.step.copy, i));
        };
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
