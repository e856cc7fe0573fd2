// SPDX-License-Identifier: MIT
/// \file
/// Tallies on the CPU; tally.hpp has the contract and an example.
#pragma once

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/tally/reference.hpp>

#define HALFTONE_BODY <halftone/kernel/tally/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct tally<cpu> {
    static constexpr extent chunk = 16384;

    template <class T>
    static void run(cpu& device, const const_view<T, 1>& values, value_tally* result) {
        expect("tally", "values", values, values.shape());
        const auto magnitude =
            device.select(&portable::chunk_magnitude<T>, &avx2::chunk_magnitude<T>, &avx512::chunk_magnitude<T>);
        const extent count = values.size(), chunks = (count + chunk - 1) / chunk;
        const workspace::lease memory(device.scratch(), static_cast<std::size_t>(chunks) * sizeof(value_tally));
        value_tally* const parts = memory.as<value_tally>();
        device.parallel_for(chunks, [&](extent index) {
            const extent first = index * chunk, n = count - first < chunk ? count - first : chunk;
            detail::chunk_magnitude here{};
            magnitude(n, values.data() + first, here);
            parts[index] = {0, 0, 0, here.largest};
            // Rare enough to be counted one by one.
            if (here.is_odd != 0) parts[index] = reference::tally(const_view<T, 1>(values.data() + first, {n}));
        });
        device.run([&] {
            value_tally all;
            for (extent i = 0; i < chunks; ++i) all.add(parts[i]);
            *result = all;
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
