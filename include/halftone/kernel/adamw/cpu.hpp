// SPDX-License-Identifier: MIT
/// \file
/// A step of AdamW on the CPU; adamw.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/kernel/adamw/adamw.hpp>
#include <halftone/kernel/update/cpu.hpp>
#include <halftone/kernel/update/rows.hpp>

#define HALFTONE_BODY <halftone/kernel/adamw/cpu.inc>
#include <halftone/exec/cpu/each_set.inc>

namespace halftone::inline HALFTONE_ABI::kernel {

template <>
struct adamw<cpu> {
    template <rounding Rounding, class Param, class Copy, class Accumulate, class State, rounding CopyRounding = rounding::nearest_even>
    static void run(cpu& device, const adamw_arguments<Param, Copy, Accumulate, State>& a) {
        check(a);
        device.run([&] {
            if (a.step->skips != 0) return;
            const auto body = device.select(&portable::adamw_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                            &avx2::adamw_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                            &avx512::adamw_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>);
            const adamw_scalars scalars = scalars_of(a.decays, a.rates, *a.step);
            const gradient_factors factors = *a.factors;
            const auto step = static_cast<std::uint32_t>(a.step->steps);
            const extent count = a.master.size();
            device.parallel_for((count + update_chunk - 1) / update_chunk, [&](extent chunk) {
                const extent i = chunk * update_chunk, n = count - i < update_chunk ? count - i : update_chunk;
                body(n, a.master.data() + i, a.copy.data() == nullptr ? nullptr : a.copy.data() + i,
                     a.gradient.data() + i, a.first.data() + i, a.second.data() + i, scalars, factors, a.key, step, i);
            });
        });
    }

    template <rounding Rounding, class Param, class Copy, class Accumulate, class State, rounding CopyRounding = rounding::nearest_even>
    static void run_rows(cpu& device, const adamw_arguments<Param, Copy, Accumulate, State>& a,
                         const gradient_rows<Accumulate>& rows) {
        check_rows<draws_random_numbers<Rounding, Param, State>>("adamw", a, rows);
        device.run([&] {
            if (a.step->skips != 0) return;
            const auto body = device.select(&portable::adamw_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                            &avx2::adamw_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                                            &avx512::adamw_elements<Rounding, CopyRounding, Param, Copy, Accumulate, State>);
            const adamw_scalars scalars = scalars_of(a.decays, a.rates, *a.step);
            const gradient_factors factors = *a.factors;
            const auto step = static_cast<std::uint32_t>(a.step->steps);
            const extent width = rows.values.extent_of(1);
            const row_pieces cut = cut_rows(*rows.count, width, update_chunk);
            device.parallel_for(cut.count, [&](extent piece) {
                for (extent r = cut.begin(piece); r < cut.begin(piece) + cut.rows_of(piece); ++r) {
                    const extent i = rows.indices(r) * width;
                    body(width, a.master.data() + i, a.copy.data() == nullptr ? nullptr : a.copy.data() + i,
                         rows.values.data() + r * width, a.first.data() + i, a.second.data() + i, scalars, factors, a.key,
                         step, i);
                }
            });
        });
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
