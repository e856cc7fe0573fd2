// SPDX-License-Identifier: MIT
/// \file
/// A step of stochastic gradient descent on the CPU; sgd.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/kernel/sgd/sgd.hpp>
#include <halftone/kernel/update/cpu.hpp>
#include <halftone/kernel/update/rows.hpp>

#define HALFTONE_BODY <halftone/kernel/sgd/cpu.inc>
#include <halftone/exec/cpu/each_set.inc>

namespace halftone::inline HALFTONE_ABI::kernel {

template <>
struct sgd<cpu> {
    template <rounding Rounding, class Param, class Copy, class Accumulate, class State, rounding CopyRounding = rounding::nearest_even>
    static void run(cpu& device, const sgd_arguments<Param, Copy, Accumulate, State>& a) {
        check(a);
        device.run([&] {
            if (a.step->skips != 0) return;
            const auto body = device.select(&portable::sgd_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                            &avx2::sgd_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                            &avx512::sgd_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>);
            const sgd_scalars scalars = scalars_of(a.coefficients, a.rates, *a.step);
            const float nesterov =
                a.coefficients.kind == momentum_kind::nesterov ? static_cast<float>(a.coefficients.momentum) : 0.0f;
            const gradient_factors factors = *a.factors;
            const auto step = static_cast<std::uint32_t>(a.step->steps);
            const extent count = a.master.size();
            State* const momentum = a.coefficients.momentum == 0 ? nullptr : a.momentum.data();
            device.parallel_for((count + update_chunk - 1) / update_chunk, [&](extent chunk) {
                const extent i = chunk * update_chunk, n = count - i < update_chunk ? count - i : update_chunk;
                body(n, a.master.data() + i, a.copy.data() == nullptr ? nullptr : a.copy.data() + i,
                     a.gradient.data() + i, momentum == nullptr ? nullptr : momentum + i, scalars, nesterov, factors,
                     a.key, step, i);
            });
        });
    }

    template <rounding Rounding, class Param, class Copy, class Accumulate, class State, rounding CopyRounding = rounding::nearest_even>
    static void run_rows(cpu& device, const sgd_arguments<Param, Copy, Accumulate, State>& a,
                         const gradient_rows<Accumulate>& rows) {
        check_rows<draws_random_numbers<Rounding, Param, State>>("sgd", a, rows);
        device.run([&] {
            if (a.step->skips != 0) return;
            const auto body = device.select(&portable::sgd_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                            &avx2::sgd_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                            &avx512::sgd_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>);
            const sgd_scalars scalars = scalars_of(a.coefficients, a.rates, *a.step);
            const float nesterov =
                a.coefficients.kind == momentum_kind::nesterov ? static_cast<float>(a.coefficients.momentum) : 0.0f;
            const gradient_factors factors = *a.factors;
            const auto step = static_cast<std::uint32_t>(a.step->steps);
            State* const momentum = a.coefficients.momentum == 0 ? nullptr : a.momentum.data();
            const extent width = rows.values.extent_of(1);
            const row_pieces cut = cut_rows(*rows.count, width, update_chunk);
            device.parallel_for(cut.count, [&](extent piece) {
                for (extent r = cut.begin(piece); r < cut.begin(piece) + cut.rows_of(piece); ++r) {
                    const extent i = rows.indices(r) * width;
                    body(width, a.master.data() + i, a.copy.data() == nullptr ? nullptr : a.copy.data() + i,
                         rows.values.data() + r * width, momentum == nullptr ? nullptr : momentum + i, scalars, nesterov,
                         factors, a.key, step, i);
                }
            });
        });
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
