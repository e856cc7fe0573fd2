// SPDX-License-Identifier: MIT
/// \file
/// Counts of numbers that are not finite, on the CPU; count_nonfinite.hpp has the contract and an example.
#pragma once

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/count_nonfinite/reference.hpp>
#include <halftone/number/integer.hpp>

#define HALFTONE_BODY <halftone/kernel/count_nonfinite/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct count_nonfinite<cpu> {
    static constexpr extent chunk = 16384;

    template <class T>
    static void run(cpu& device, const const_view<T, 1>& values, nonfinite_counts* result) {
        expect("count_nonfinite", "values", values, values.shape());
        const auto magnitude = device.select(HALFTONE_EACH_SET(chunk_magnitude<T>));
        const extent count = values.size(), chunks = detail::ceil_div(count, chunk);
        const workspace::lease memory(device.scratch(), static_cast<std::size_t>(chunks) * sizeof(nonfinite_counts));
        nonfinite_counts* const parts = memory.as<nonfinite_counts>();
        device.parallel_for(chunks, [&](extent index) {
            const extent first = index * chunk, n = count - first < chunk ? count - first : chunk;
            detail::chunk_magnitude here{};
            magnitude(n, values.data() + first, here);
            parts[index] = {0, 0, 0, here.largest};
            // Rare, so the definition counts them one by one.
            if (here.has_nonfinite != 0) parts[index] = reference::count_nonfinite(const_view<T, 1>(values.data() + first, {n}));
        });
        device.run([&] {
            nonfinite_counts all;
            for (extent i = 0; i < chunks; ++i) all.add(parts[i]);
            *result = all;
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
