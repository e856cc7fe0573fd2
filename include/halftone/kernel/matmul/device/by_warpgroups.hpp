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

/// Whether a result's rows can be stored by bulk copies.
template <class Results>
bool are_stored_in_bulk(const Results& results, extent rows, line_sets sets) {
    if constexpr (is_copied_in_bulk<Results>) {
        return sets.rows > 1 || rows <= 1 || !needs_sets<typename only_result<Results>::type>(results.first.stride);
    } else {
        return false;
    }
}

/// For operands whose lines are multiples of 16 bytes apart, or divided into sets. `plan`: with tiles of wgmma.
template <class Compute, class Device, class T, class Operands, class Results>
void multiply_by_warpgroups(Device& device, const product_operand<T>& a, const product_operand<T>& b,
                            const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access,
                            const matmul_plan& plan, line_sets sets = {}) {
    const auto run = [&]<class Tiling>(Tiling) {
        const auto of_a = panel_maps(device, a, Tiling::tile_m, a.axis == along::depth ? sets.rows : sets.depth);
        const auto of_b = panel_maps(device, b, Tiling::tile_n, b.axis == along::depth ? 1 : sets.depth);
        using map = std::remove_cvref_t<decltype(of_a.of(0))>;
        // The rows of a part are whole tiles, so that the copy of a tile stays within the part.
        const extent padded_rows = extent{sets.tiles(a.outer, Tiling::tile_m)} * Tiling::tile_m;
        const auto kernel_with = [&]<class O, class R>(const detail::matmul_epilogue<O, R>& end, row_access rows,
                                                       part_of_depth part, extent all_rows) {
            const bool in_bulk = are_stored_in_bulk(end.results, a.outer, sets);
            const auto of_c = result_maps(device, end.results, all_rows, b.outer, sets.rows, in_bulk, of_a);
            return warpgroup_kernel<Compute, Tiling, map, O, R>{of_a,
                                                                of_b,
                                                                of_c,
                                                                a.axis,
                                                                b.axis,
                                                                a.outer,
                                                                b.outer,
                                                                a.depth,
                                                                sets,
                                                                end,
                                                                rows,
                                                                access_to(end.operands),
                                                                in_bulk,
                                                                device.architecture().multiprocessors,
                                                                part,
                                                                static_cast<int>(padded_rows / sets.rows)};
        };
        if (plan.parts == 1) return device.launch(kernel_with(epilogue, access, {}, a.outer));
        const extent leading = (b.outer + 7) / 8 * 8, elements = padded_rows * leading;
        const workspace::lease sums(device.scratch(), static_cast<std::size_t>(plan.parts * elements) * sizeof(float));
        const int panels = sets.panels(a.depth, Tiling::depth);
        const part_of_depth part{(panels + plan.parts - 1) / plan.parts, elements};
        const int parts = part.count(panels);
        const detail::matmul_epilogue<pack<>, partial_results> partial{{}, {{{}, sums.as<float>(), leading}, {}}};
        device.launch(kernel_with(partial, row_access::chunks, part, parts * padded_rows));
        device.launch(finish_kernel<Operands, Results>{{sums.as<float>(), parts * elements}, leading, epilogue, access, 0,
                                                       a.outer, b.outer, parts, elements});
    };
    if (plan.tile == matmul_tile::widest) return run(warpgroup_tiling<256, 4>{});
    if (plan.tile == matmul_tile::wide) return run(warpgroup_tiling<192, 4>{});
    run(warpgroup_tiling<64, 8>{});
}

/// How a product is multiplied by warpgroups: which operands are copied to aligned lines first (aligned_copy.hpp).
struct warpgroup_way {
    matmul_plan plan;
    line_sets sets{};
    bool copies_a = false, copies_b = false;
};

/// The way that takes the least time by the model of tiles.hpp. Sets need whole tiles, or panels, of every eighth line, and
/// so waste more at the edges; without them operands are copied, and results stored element by element. Sets of rows
/// leave the order of each sum, and so all bits, as they are with aligned operands; sets of k do not.
template <class A, class B, class Operands, class Results>
warpgroup_way choose_warpgroup_way(const simt::architecture& gpu, const product_operand<A>& a, const product_operand<B>& b,
                                   const detail::matmul_epilogue<Operands, Results>& epilogue) {
    const bool is_a_odd = needs_sets<A>(a.leading), is_b_odd = needs_sets<B>(b.leading);
    const auto way_with = [&](line_sets sets, int parts) {
        const bool divides_rows = sets.rows > 1, divides_depth = sets.depth > 1;
        warpgroup_way way{{}, sets, is_a_odd && !divides_rows && !divides_depth, is_b_odd && !divides_depth};
        way.plan = plan_matmul(gpu, divides_rows ? extent{sets.tiles(a.outer, 128)} * 128 : a.outer, b.outer,
                               divides_depth ? extent{sets.panels(a.depth, 64)} * 64 : a.depth, matmul_tile::widest, 1, parts);
        way.plan.time += time_of_copies(gpu, (way.copies_a ? extent{a.outer} * a.depth : 0) +
                                                 (way.copies_b ? extent{b.outer} * b.depth : 0));
        if (!are_stored_in_bulk(epilogue.results, a.outer, sets)) way.plan.time += time_of_single_stores(gpu, a.outer, b.outer);
        return way;
    };
    warpgroup_way best = way_with({}, 0);
    const auto consider = [&](const warpgroup_way& way) {
        if (way.plan.time < best.plan.time) best = way;
    };
    const bool is_by_depth = a.axis == along::depth;
    if (is_by_depth && a.outer >= most_line_sets && is_copied_in_bulk<Results>)
        consider(way_with({most_line_sets, 1}, best.plan.parts));
    if (!is_by_depth && b.axis != along::depth && a.depth >= most_line_sets && (is_a_odd || is_b_odd))
        consider(way_with({1, most_line_sets}, 0));
    return best;
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
