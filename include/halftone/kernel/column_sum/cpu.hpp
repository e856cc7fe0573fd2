// SPDX-License-Identifier: MIT
/// \file
/// Column sums on the CPU; column_sum.hpp has their contract and an example.
#pragma once

#include <type_traits>

#include <halftone/kernel/column_sum/column_sum.hpp>
#include <halftone/kernel/column_sum/fp64.hpp>
#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/number/integer.hpp>

#define HALFTONE_BODY <halftone/kernel/column_sum/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct column_sum<cpu> {
    template <class From, class Y>
        requires in_double<From, Y>
    static void run(cpu& device, const view<From, 2>& x, const view<Y, 1>& out,
                    write_mode mode = write_mode::overwrite) {
        fp64::sum_columns(device, x, out, mode);
    }
    template <class From, class Y>
    static void run(cpu& device, const view<From, 2>& x, const view<Y, 1>& out,
                    write_mode mode = write_mode::overwrite) {
        using X = std::remove_const_t<From>;
        expect_rows("column_sum", "x", x, x.shape());
        expect("column_sum", "out", out, {x.extent_of(1)});
        const auto body = device.select(HALFTONE_EACH_SET(column_sum_rows<X>));
        const extent width = x.extent_of(1), row = x.stride_of(0), stride = partial_stride(width);
        const row_partition partition = partition_rows_for_sums(x.extent_of(0), width);
        const workspace::lease partials(device.scratch(), static_cast<std::size_t>(partition.count * stride) * sizeof(float));
        auto* const sums = partials.as<float>();

        constexpr extent columns = 4096;  // their sums (16 KiB) stay in the L1 cache
        const extent blocks = detail::ceil_div(width, columns);
        device.parallel_for(partition.count * blocks, [&](extent index) {
            const extent piece = index / blocks, j = index % blocks * columns;
            body(partition.rows_of(piece), j + columns < width ? columns : width - j,
                 x.data() + partition.begin(piece) * row + j, row, sums + piece * stride + j);
        });
        add_partials(device, partition.count, sums, stride, width, out.data(), mode);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
