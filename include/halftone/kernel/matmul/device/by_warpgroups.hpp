// SPDX-License-Identifier: MIT
/// \file
/// The host's part of products by warpgroups (wgmma): on which devices they run, and their launch.
///
///     if (has_warpgroups<Compute>(device)) multiply_by_warpgroups<Compute>(device, a, b, epilogue, access, cut);
#pragma once

#include <halftone/kernel/matmul/device/tiles.hpp>
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

/// How the results of a product by warpgroups are stored.
struct result_storing {
    bool in_bulk = false;  ///< by bulk copies
    int sets = 1;          ///< of rows (row_maps.hpp)
    int most_offset = 0;   ///< of a set's rows in its map
};
/// By bulk copies where possible: rows that do not begin at multiples of 16 bytes need an operand b whose columns are lines,
/// and an a whose rows are.
template <class A, class B, class Results>
result_storing storing_of(const product_operand<A>& a, const product_operand<B>& b, const Results& results) {
    if constexpr (is_copied_in_bulk<Results>) {
        using result = typename only_result<Results>::type;
        const bool is_odd = a.outer > 1 && needs_sets<result>(results.first.stride);
        const int offset = offset_in_chunk(results.first.data);
        if (!is_odd && offset == 0) return {true};
        if (b.axis != along::depth) return {};
        if (!is_odd) return {true, 1, offset};
        if (a.axis == along::depth && a.outer >= most_row_sets)
            return {true, most_row_sets, 16 / static_cast<int>(sizeof(result)) - 1};
    }
    return {};
}

/// For operands with aligned rows. `plan`: with tiles of wgmma. `storing`: if k is one part.
template <class Compute, class Device, class T, class Operands, class Results>
void multiply_by_warpgroups(Device& device, const product_operand<T>& a, const product_operand<T>& b,
                            const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access,
                            const matmul_plan& plan, const result_storing& storing) {
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
        if (plan.parts == 1) return device.launch(kernel_with(epilogue, access, storing, {}, a.outer, 0));
        // The rows of a part are whole tiles, so that the copy of a tile stays within the part.
        const extent padded_rows = extent{tiles_of_rows(a.outer, 1, Tiling::tile_m)} * Tiling::tile_m;
        const extent leading = round_up(b.outer, 8), elements = padded_rows * leading;
        const workspace::lease sums(device.scratch(), static_cast<std::size_t>(plan.parts * elements) * sizeof(float));
        const int panels = detail::ceil_div(a.depth, Tiling::depth);
        const part_of_depth part{detail::ceil_div(panels, plan.parts), elements};
        const int parts = part.count(panels);
        const detail::matmul_epilogue<pack<>, partial_results> partial{{}, {{{}, sums.as<float>(), leading}, {}}};
        device.launch(kernel_with(partial, row_access::chunks, {true}, part, parts * padded_rows, static_cast<int>(padded_rows)));
        device.launch(finish_kernel<Operands, Results>{{sums.as<float>(), parts * elements}, leading, epilogue, access, 0,
                                                       a.outer, b.outer, parts, elements});
    };
    if (plan.tile == matmul_tile::widest) return run(warpgroup_tiling<256, 4>{});
    if (plan.tile == matmul_tile::wide) return run(warpgroup_tiling<192, 4>{});
    run(warpgroup_tiling<64, 8>{});
}

/// The plan of a product by warpgroups, and how its results are stored: in sets of rows, if that takes less time by the
/// model of tiles.hpp than storing them one by one, although each set has whole tiles, which begin up to 16 bytes before
/// its columns. Neither changes the parts of k, and so the bits.
struct warpgroup_plan {
    matmul_plan plan;
    result_storing storing;
};
template <class A, class B, class Results>
warpgroup_plan plan_warpgroups(const simt::architecture& gpu, const product_operand<A>& a, const product_operand<B>& b,
                               const Results& results) {
    const auto plan_for = [&](extent m, extent n, int parts) {
        return plan_matmul(gpu, m, n, a.depth, matmul_tile::widest, 1, parts);
    };
    const matmul_plan plan = plan_for(a.outer, b.outer, 0);
    const result_storing storing = storing_of(a, b, results);
    if (plan.parts > 1 || storing.most_offset == 0) return {plan, storing};
    const matmul_plan in_sets = plan_for(extent{tiles_of_rows(a.outer, storing.sets, 128)} * 128, b.outer + storing.most_offset, 1);
    if (in_sets.time < plan.time + time_of_single_stores(gpu, a.outer, b.outer)) return {in_sets, storing};
    return {plan, {}};
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
