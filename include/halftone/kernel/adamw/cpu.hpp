// SPDX-License-Identifier: MIT
/// \file
/// A step of AdamW on the CPU; adamw.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/kernel/adamw/adamw.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/common/update/rows.hpp>

#define HALFTONE_BODY <halftone/kernel/adamw/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct adamw<cpu> {
    template <rounding Rounding, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run(cpu& device, const adamw_arguments<Param, Copy, Accumulate, State>& a) {
        check(a);
        device.run([&] {
            if (a.step->skips != 0) return;
            update_all(device, a.gradient, updater<Rounding, CopyRounding>(device, a));
        });
    }

    template <rounding Rounding, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run_rows(cpu& device, const adamw_arguments<Param, Copy, Accumulate, State>& a,
                         const gradient_rows<Accumulate>& rows) {
        check_rows("adamw", a, rows);
        device.run([&] {
            if (a.step->skips != 0) return;
            update_rows(device, rows, updater<Rounding, CopyRounding>(device, a));
        });
    }

  private:
    /// Updates n parameters from the i-th on by their gradients.
    template <rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate, class State>
    static auto updater(cpu& device, const adamw_arguments<Param, Copy, Accumulate, State>& a) {
        const auto body =
            device.select(&portable::adamw_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                          &avx2::adamw_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                          &avx512::adamw_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>);
        return [a, body, scalars = scalars_of(a.decays, a.rates, *a.step), factors = *a.factors,
                step = static_cast<std::uint32_t>(a.step->steps)](extent i, extent n, const Accumulate* gradient) {
            body(n, a.master.data() + i, a.copy.data() == nullptr ? nullptr : a.copy.data() + i, gradient,
                 a.first.data() + i, a.second.data() + i, scalars, factors, a.key, step, i,
                 streams_copies<Param>(a.copy, i));
        };
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
