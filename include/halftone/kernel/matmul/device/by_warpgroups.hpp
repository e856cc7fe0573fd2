// SPDX-License-Identifier: MIT
/// \file
/// The host's part of products by warpgroups (wgmma): on which devices they run, and their launch.
///
///     if (has_warpgroups<Compute>(device)) multiply_by_warpgroups<Compute>(device, a, b, epilogue, access, cut, storing);
#pragma once

#include <halftone/kernel/matmul/device/plan.hpp>
#include <halftone/kernel/matmul/device/warpgroup.hpp>
#include <halftone/number/integer.hpp>

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

/// For operands with aligned rows. `cut`: with tiles of wgmma. `storing`: if k is one part.
template <class Compute, class Device, class T, class Operands, class Results>
void multiply_by_warpgroups(Device& device, const product_operand<T>& a, const product_operand<T>& b,
                            const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access,
                            const matmul_cut& cut, const result_storing& storing) {
    const auto run = [&]<class Tiling>(Tiling) {
        const auto kernel_with = [&]<class O, class R>(const detail::matmul_epilogue<O, R>& end, row_access rows,
                                                       const result_storing& how, part_of_depth part, extent all_rows,
                                                       int rows_of_part) {
            const auto of_a = panel_maps(device, a, Tiling::tile_m, how.sets);
            using map = std::remove_cvref_t<decltype(of_a.of(0))>;
            return warpgroup_kernel<Compute, Tiling, map, O, R>{
                of_a,
                result_maps(device, end.results, all_rows, b.outer, how.sets, how.in_bulk, of_a),
                panel_maps(device, b, Tiling::tile_n, 1).of(0),
                a.axis,
                b.axis,
                a.outer,
                b.outer,
                a.depth,
                how.sets,
                end,
                rows,
                how.most_offset > 0 ? row_access::elements : access_to(end.operands),
                how.in_bulk,
                how.most_offset,
                device.architecture().multiprocessors,
                part,
                rows_of_part};
        };
        if (cut.parts == 1) return device.launch(kernel_with(epilogue, access, storing, {}, a.outer, 0));
        // The rows of a part are whole tiles, so that the copy of a tile stays within the part.
        const extent padded_rows = extent{tiles_of_rows(a.outer, 1, Tiling::tile_m)} * Tiling::tile_m;
        const extent leading = detail::round_up(b.outer, 8), elements = padded_rows * leading;
        const workspace::lease sums(device.scratch(), static_cast<std::size_t>(cut.parts * elements) * sizeof(float));
        const int panels = detail::ceil_div(a.depth, Tiling::depth);
        const part_of_depth part{detail::ceil_div(panels, cut.parts), elements};
        const int parts = part.count(panels);
        const detail::matmul_epilogue<pack<>, partial_results> partial{{}, {{{}, sums.as<float>(), leading}, {}}};
        device.launch(kernel_with(partial, row_access::chunks, {true}, part, parts * padded_rows, static_cast<int>(padded_rows)));
        device.launch(finish_kernel<Operands, Results>{{sums.as<float>(), parts * elements}, leading, epilogue, access, 0,
                                                       a.outer, b.outer, parts, elements});
    };
    if (cut.tile == matmul_tile::widest) return run(warpgroup_tiling<256, 4>{});
    if (cut.tile == matmul_tile::wide) return run(warpgroup_tiling<192, 4>{});
    run(warpgroup_tiling<64, 8>{});
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
