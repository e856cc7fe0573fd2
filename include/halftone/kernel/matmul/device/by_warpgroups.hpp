// SPDX-License-Identifier: MIT
/// \file
/// The host's part of products by warpgroups (wgmma): on which devices they run, and their launch.
///
///     if (has_warpgroups<Compute>(device)) multiply_by_warpgroups<Compute>(device, a, b, epilogue, access, cut);
#pragma once

#include <halftone/kernel/matmul/device/tiles.hpp>
#include <halftone/kernel/matmul/device/warpgroup.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Whether the device's code may have such kernels: not if it was compiled for older GPUs only.
template <class Compute, class Device>
inline constexpr bool can_have_warpgroups = sizeof(storage_of<Compute>) == 2 && simt::code_of_this_file().with_228_kb &&
                                            requires(Device& device) { device.has_wgmma_code(); };
template <class Compute, class Device>
bool has_warpgroups(Device& device) {
    if constexpr (can_have_warpgroups<Compute, Device>) {
        return device.has_wgmma_code();
    } else {
        return false;
    }
}

/// For operands with aligned rows. `cut`: a plan with wide or widest tiles.
template <class Compute, class Device, class T, class Operands, class Results>
void multiply_by_warpgroups(Device& device, const product_operand<T>& a, const product_operand<T>& b,
                            const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access,
                            const matmul_plan& plan) {
    const auto run = [&]<class Tiling>(Tiling) {
        const auto of_a = panel_map(device, a, Tiling::tile_m), of_b = panel_map(device, b, Tiling::tile_n);
        using map = std::remove_const_t<decltype(of_a)>;
        // The rows of a part are whole tiles, so that the copy of a tile stays within the part.
        const extent padded_rows = (a.outer + Tiling::tile_m - 1) / Tiling::tile_m * Tiling::tile_m;
        const auto kernel_with = [&]<class O, class R>(const detail::matmul_epilogue<O, R>& end, row_access rows,
                                                       part_of_depth part, extent all_rows) {
            const map of_c = result_map(device, end.results, all_rows, b.outer, rows, of_a);
            return warpgroup_kernel<Compute, Tiling, map, O, R>{of_a,
                                                                of_b,
                                                                of_c,
                                                                a.axis,
                                                                b.axis,
                                                                a.outer,
                                                                b.outer,
                                                                a.depth,
                                                                end,
                                                                rows,
                                                                device.architecture().multiprocessors,
                                                                part,
                                                                static_cast<int>(padded_rows)};
        };
        if (plan.parts == 1) return device.launch(kernel_with(epilogue, access, {}, a.outer));
        const extent leading = (b.outer + 7) / 8 * 8, elements = padded_rows * leading;
        const workspace::lease sums(device.scratch(), static_cast<std::size_t>(plan.parts * elements) * sizeof(float));
        const int panels = (a.depth + Tiling::depth - 1) / Tiling::depth;
        const part_of_depth part{(panels + plan.parts - 1) / plan.parts, elements};
        const int parts = part.count(panels);
        const detail::matmul_epilogue<pack<>, partial_results> partial{{}, {{{}, sums.as<float>(), leading}, {}}};
        device.launch(kernel_with(partial, row_access::chunks, part, parts * padded_rows));
        device.launch(finish_kernel<Operands, Results>{{sums.as<float>(), parts * elements}, leading, epilogue, access, 0,
                                                       a.outer, b.outer, parts, elements});
    };
    if (plan.tile == matmul_tile::widest) return run(warpgroup_tiling<256, 4>{});
    run(warpgroup_tiling<192, 4>{});
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
