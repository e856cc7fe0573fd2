// SPDX-License-Identifier: MIT
/// \file
/// A step of stochastic gradient descent on the CPU; sgd.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/common/update/rows.hpp>
#include <halftone/kernel/sgd/sgd.hpp>

#define HALFTONE_BODY <halftone/kernel/sgd/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct sgd<cpu> {
    template <rounding Rounding, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run(cpu& device, const sgd_arguments<Param, Copy, Accumulate, State>& a) {
        check(a);
        device.run([&] {
            if (a.step->skips != 0) return;
            update_all(device, a.gradient, updater<Rounding, CopyRounding>(device, a));
        });
    }

    template <rounding Rounding, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run_rows(cpu& device, const sgd_arguments<Param, Copy, Accumulate, State>& a,
                         const gradient_rows<Accumulate>& rows) {
        check_rows("sgd", a, rows);
        device.run([&] {
            if (a.step->skips != 0) return;
            update_rows(device, rows, updater<Rounding, CopyRounding>(device, a));
        });
    }

  private:
    /// Updates n parameters from the i-th on by their gradients.
    template <rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate, class State>
    static auto updater(cpu& device, const sgd_arguments<Param, Copy, Accumulate, State>& a) {
        const auto body = device.select(&portable::sgd_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                        &avx2::sgd_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                        &avx512::sgd_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>);
        const float nesterov =
            a.coefficients.kind == momentum_kind::nesterov ? static_cast<float>(a.coefficients.momentum) : 0.0f;
        State* const momentum = a.coefficients.momentum == 0 ? nullptr : a.momentum.data();
        return
            [a, body, nesterov, momentum, scalars = scalars_of(a.coefficients, a.rates, *a.step), factors = *a.factors,
             step = static_cast<std::uint32_t>(a.step->steps)](extent i, extent n, const Accumulate* gradient) {
                body(n, a.master.data() + i, a.copy.data() == nullptr ? nullptr : a.copy.data() + i, gradient,
                     momentum == nullptr ? nullptr : momentum + i, scalars, nesterov, factors, a.key, step, i,
                     streams_copies<Param>(a.copy, i));
            };
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
