// SPDX-License-Identifier: MIT
/// \file
/// The matrix product on the CPU.
///
/// b is packed once into panels that all threads share. c is cut into blocks; whoever takes a block packs the rows of a
/// that it needs, 256 of k at a time, so that they stay in the second-level cache while the panels of b pass by, adds
/// up the products in a block of floats of its own, and sends that through the epilogue (Goto and van de Geijn 2008).
#pragma once

#include <halftone/kernel/fp64/cpu.hpp>
#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/matmul/fp64.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/product/split.hpp>

#define HALFTONE_BODY <halftone/kernel/matmul/cpu.inc>
#include <halftone/exec/cpu/each_set.inc>

namespace halftone::inline HALFTONE_ABI::kernel {

/// How c is cut: blocks of rows x columns. Any cut gives the same bits, so it may follow the number of threads.
struct matmul_blocking {
    extent rows = 96, columns = 512;

    matmul_blocking(extent m, extent n, int threads) {
        const auto blocks = [&] { return ((m + rows - 1) / rows) * ((n + columns - 1) / columns); };
        // Too few blocks leave a thread idle at the end; narrower ones cost more packing of a.
        while (threads > 1 && blocks() < 4 * threads && columns > 128) columns /= 2;
        while (threads > 1 && blocks() < 4 * threads && rows > 32) rows = rows == 96 ? 64 : 32;
    }
};

template <>
struct matmul<cpu> {
    template <class Compute, class A, class B, class Operands, class Results>
        requires fp64::product_in_double<Compute, A, B, Results>
    static void run(cpu& device, const view<A, 2>& a, const view<B, 2>& b,
                    const matmul_epilogue<Operands, Results>& epilogue) {
        fp64::multiply<Compute>(device, a, b, epilogue);
    }
    template <class Compute, class A, class B, class Operands, class Results>
    static void run(cpu& device, const view<A, 2>& a, const view<B, 2>& b,
                    const matmul_epilogue<Operands, Results>& epilogue) {
        run_by(matmul_unit_for<Compute>(device), matmul_packing_for<Compute, std::remove_const_t<A>>(device),
               matmul_packing_for<Compute, std::remove_const_t<B>>(device), device, a, b, epilogue);
    }

    /// The same by the unit and the packing given.
    template <class A, class B, class Operands, class Results>
    static void run_by(const product_unit& unit, const product_packing<std::remove_const_t<A>>& of_a,
                       const product_packing<std::remove_const_t<B>>& of_b, cpu& device, const view<A, 2>& a,
                       const view<B, 2>& b, const matmul_epilogue<Operands, Results>& epilogue) {
        const extent m = a.extent_of(0), n = b.extent_of(1), k = a.extent_of(1);
        if (m == 0 || n == 0) return;
        const auto pack_a = of_a.pack_a;
        const auto pack_b = of_b.pack_b;
        const auto finish =
            device.select(&portable::finish_block<Operands, Results>, &avx2::finish_block<Operands, Results>,
                          &avx512::finish_block<Operands, Results>);

        const matmul_blocking cut(m, n, device.threads());
        const extent depths = (k + panel_depth - 1) / panel_depth;
        const extent panels = (n + unit.columns - 1) / unit.columns;
        const std::size_t panel_bytes = unit.panel_bytes(panel_depth < k ? panel_depth : k);
        // Packed b stays small enough for the last-level cache: a wide b is taken in slices of whole blocks.
        constexpr std::size_t most_packed = std::size_t{32} << 20;
        const std::size_t column_bytes =
            panel_bytes * static_cast<std::size_t>(depths) / static_cast<std::size_t>(unit.columns) + 1;
        const extent slice =
            std::max<extent>(1, static_cast<extent>(most_packed / column_bytes) / cut.columns) * cut.columns;
        const workspace::lease packed(
            device.scratch(), panel_bytes * static_cast<std::size_t>(depths * std::min(panels, slice / unit.columns)));

        const std::size_t a_bytes = unit.block_bytes(cut.rows);
        const extent sums_stride = cut.columns + 16;  // not a power of two
        const extent sums_rows = (cut.rows + unit.rows - 1) / unit.rows * unit.rows;
        const std::size_t block_bytes = a_bytes + static_cast<std::size_t>(sums_rows * sums_stride) * sizeof(float);

        for (extent first = 0; first < n; first += slice) {
            const extent slice_columns = std::min(slice, n - first);
            const extent slice_panels = (slice_columns + unit.columns - 1) / unit.columns;
            const auto panel_at = [&](extent depth, extent panel) {
                return packed.data() + panel_bytes * static_cast<std::size_t>(depth * slice_panels + panel);
            };

            constexpr extent together = 4;  // panels a task packs
            const extent packs = (slice_panels + together - 1) / together;
            device.parallel_for(depths * packs, [&](extent index) {
                const extent depth = index / packs, from = index % packs * together;
                const extent p = depth * panel_depth;
                for (extent panel = from; panel < std::min(from + together, slice_panels); ++panel) {
                    const extent j = first + panel * unit.columns;
                    pack_b(b.data() + p * b.stride_of(0) + j * b.stride_of(1), b.stride_of(0), b.stride_of(1),
                           std::min(panel_depth, k - p), std::min<extent>(unit.columns, n - j), panel_at(depth, panel));
                }
            });

            const extent row_blocks = (m + cut.rows - 1) / cut.rows,
                         column_blocks = (slice_columns + cut.columns - 1) / cut.columns;
            device.parallel_for(row_blocks * column_blocks, block_bytes, [&](extent index, std::byte* scratch) {
                auto* sums = reinterpret_cast<float*>(scratch + a_bytes);
                const extent i = index / column_blocks * cut.rows, j = index % column_blocks * cut.columns;
                const extent rows = std::min(cut.rows, m - i), columns = std::min(cut.columns, slice_columns - j);
                if (unit.enter != nullptr) unit.enter();
                for (extent depth = 0; depth < std::max<extent>(depths, 1); ++depth) {
                    const extent p = depth * panel_depth, length = std::min(panel_depth, k - p);
                    pack_a(a.data() + i * a.stride_of(0) + p * a.stride_of(1), a.stride_of(0), a.stride_of(1), rows,
                           length, scratch);
                    for (extent panel = 0; panel * unit.columns < columns; ++panel) {
                        unit.multiply(rows, unit.padded(length), scratch, panel_at(depth, j / unit.columns + panel),
                                      sums + panel * unit.columns, sums_stride, depth > 0);
                    }
                }
                if (unit.leave != nullptr) unit.leave();
                finish(epilogue, sums, sums_stride, i, first + j, rows, columns);
            });
        }
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
