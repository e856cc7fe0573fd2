// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in plan.hpp that are no templates.
#pragma once

#include <halftone/kernel/matmul/cpu/plan.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {
namespace planning {

HALFTONE_OUT_OF_LINE extent results_of_busiest(const product_problem& p, extent rows, extent columns) {
    const extent groups = ceil_div(p.n, columns), whole = p.m / rows * groups, turns = ceil_div(whole, p.threads),
                 idle = turns * p.threads - whole, last_turns = ceil_div(std::max<extent>(0, groups - idle), p.threads);
    return (turns * rows + last_turns * (p.m % rows)) * columns;
}

HALFTONE_OUT_OF_LINE extent most_unpacked_rows(const product_problem& p) {
    if (!p.b.can_be_unpacked) return 0;
    if (!p.b.is_row_major) return is_wide(p.unit) && p.unit.element == 4 ? small_m_by_columns_wide : small_m;
    if (!p.b.has_unit_type && p.b.element != 2) return small_m;
    return is_wide(p.unit) ? tuning::small_m_wide : tuning::small_m_narrow;
}

HALFTONE_OUT_OF_LINE const char* against_narrow_b(const product_problem& p) {
    const extent depth = depth_of(p);
    if (depth > tuning::most_depth) return "k is larger than 16,384";
    if (!p.b.is_row_major || most_unpacked_rows(p) <= small_m)
        return "b has to be packed for the unit, or is not row-major";
    if (p.n > p.unit.columns) return "b is wider than one panel";
    if (depth * p.n * p.unit.element > bytes(tuning::l2_resident_bytes(p.caches))) return "b does not stay in L2";
    if (work(p) < tuning::narrow_b_work) return "there is too little work to share";
    if (p.m <= tuning::narrow_b_rows) return nullptr;
    const bool leaves_half_idle = is_wide(p.unit) && p.unit.element == 4 && p.n <= p.unit.columns / 2;
    if (leaves_half_idle && p.m <= tuning::narrow_b_rows_half_panel && depth >= tuning::narrow_b_depth) return nullptr;
    return "a has too many rows";
}

HALFTONE_OUT_OF_LINE void plan_unpacked_columns(const product_problem& p, product_plan& plan) {
    const extent width = p.unit.columns;
    plan.block_columns = std::clamp(round_up(ceil_div(p.n, tuning::unpacked_tasks * p.threads), width),
                                    tuning::unpacked_least_columns, tuning::unpacked_most_columns);
    if (work(p) >= tuning::little_work)
        plan.block_columns = std::min(plan.block_columns, round_up(ceil_div(p.n, p.threads), width));
}

HALFTONE_OUT_OF_LINE void plan_narrow_b(const product_problem& p, product_plan& plan) {
    plan_unpacked_columns(p, plan);
    plan.block_rows =
        std::min(round_up(ceil_div(p.m, tuning::unpacked_row_tasks * p.threads), p.unit.rows), tuning::block_rows);
}

HALFTONE_OUT_OF_LINE const char* against_small_m(const product_problem& p) {
    const extent most = most_unpacked_rows(p);
    if (depth_of(p) > tuning::most_depth) return "k is larger than 16,384";
    if (most == 0) return "the unit reads packed b alone";
    if (p.m > most) return "a has more rows than unpacked b takes";
    if (p.m <= small_m || work(p) < tuning::little_work || p.n >= p.unit.columns * p.threads) return nullptr;
    return "there is less than a panel for each thread";
}

HALFTONE_OUT_OF_LINE const char* against_own_panels(const product_problem& p) {
    if (is_shallow(p)) return "k is so short that prefetched panels arrive late";
    if (!is_wide(p.unit) && p.m > tuning::most_rows_of_narrow_units)
        return "a has more than 128 rows, and vectors are narrow";
    return nullptr;
}

HALFTONE_OUT_OF_LINE const char* against_a_stationary(const product_problem& p) {
    if (const char* const why = against_own_panels(p)) return why;
    if (depth_of(p) > tuning::most_depth) return "k is larger than 16,384";
    if (p.m * row_bytes(p) > bytes(tuning::l2_resident_bytes(p.caches))) return "packed a does not stay in L2";
    return nullptr;
}

HALFTONE_OUT_OF_LINE void plan_a_stationary(const product_problem& p, product_plan& plan) {
    plan.packs_a_once = true;
    if (depth_of(p) <= plan.k_piece)
        plan.block_rows = std::min(plan.block_rows, round_up(tuning::one_piece_rows, p.unit.rows));
    const extent width = p.unit.columns, wanted = wanted_tasks(p.threads, tuning::tasks_per_thread);
    plan.block_columns = ceil_div(p.n, 2 * width) < wanted ? width : 2 * width;
}

HALFTONE_OUT_OF_LINE const char* against_c_stationary(const product_problem& p) {
    if (const char* const why = against_own_panels(p)) return why;
    if (p.n < tuning::own_panels_columns * p.threads) return "there are too few columns for every thread";
    if (p.m <= tuning::sums_rows) return nullptr;
    const extent most = p.unit.element == 2 ? tuning::sums_rows_bf16 : tuning::sums_rows_fp32;
    if (p.m > most) return "sums of all rows do not stay in L2";
    const bool is_short = ceil_div(depth_of(p), piece_of(p)) <= tuning::sums_pieces,
               fits = p.m * row_bytes(p) <= bytes(tuning::slice_bytes(p.caches));
    return is_short || fits ? nullptr : "packed a is neither short nor does it stay in L3";
}

HALFTONE_OUT_OF_LINE void plan_c_stationary(const product_problem& p, product_plan& plan) {
    plan.packs_a_once = p.m * row_bytes(p) <= bytes(tuning::slice_bytes(p.caches));
    const extent width = p.unit.columns, sums = bytes(tuning::l2_resident_bytes(p.caches) / sizeof(float)),
                 room = std::min(sums / p.m / width * width, tuning::most_group_columns);
    plan.block_columns = std::clamp(round_up(ceil_div(p.n, 2 * p.threads), width), tuning::least_group_columns,
                                    std::max(room, tuning::least_group_columns));
}

HALFTONE_OUT_OF_LINE const char* against_private_b(const product_problem& p) {
    const extent depth = depth_of(p);
    if (depth <= tuning::private_b_above_depth) return "k is so short that results decide";
    if (depth > tuning::most_depth) return "k is larger than 16,384";
    if (p.m < tuning::private_b_rows * p.threads) return "there are too few rows for every thread";
    if (p.m > tuning::private_b_most_rows) return "a has more than 1,024 rows";
    if (p.n > tuning::private_b_most_columns) return "b has more than 128 columns";
    const bool fits = round_up(p.n, p.unit.columns) * row_bytes(p) <= bytes(tuning::private_b_bytes(p.caches));
    return fits ? nullptr : "packed b does not stay in L2";
}

HALFTONE_OUT_OF_LINE void plan_private_b(const product_problem& p, product_plan& plan) {
    plan.block_columns = round_up(p.n, p.unit.columns);
    extent fewest = p.m * plan.block_columns + 1;
    for (extent turns = tuning::private_b_least_turns; turns <= tuning::private_b_most_turns; ++turns) {
        const extent rows = std::min(tuning::block_rows, round_up(ceil_div(p.m, turns * p.threads), p.unit.rows)),
                     results = results_of_busiest(p, rows, plan.block_columns);
        if (results < fewest) fewest = results, plan.block_rows = rows;
    }
}

HALFTONE_OUT_OF_LINE void share_evenly(const product_problem& p, product_plan& plan) {
    const extent width = p.unit.columns, panels = ceil_div(p.n, width),
                 rows_each = round_up(ceil_div(p.m, p.threads), p.unit.rows), all_columns = panels * width,
                 some_columns = ceil_div(panels, p.threads) * width,
                 some_rows = round_up(ceil_div(rows_each, ceil_div(rows_each, tuning::even_share_rows)), p.unit.rows);
    extent fewest = results_of_busiest(p, plan.block_rows, plan.block_columns);
    const auto take_if_fewer = [&](extent rows, extent columns) {
        const extent results = results_of_busiest(p, rows, columns);
        if (results < fewest) fewest = results, plan.block_rows = rows, plan.block_columns = columns;
    };
    take_if_fewer(plan.block_rows, some_columns);
    take_if_fewer(some_rows, all_columns);
    take_if_fewer(some_rows, some_columns);
}

HALFTONE_OUT_OF_LINE void plan_shared_b(const product_problem& p, product_plan& plan) {
    // Of long k a chunk at a time is packed, where the sums that wait for the rest stay in the caches, too.
    const bool sums_can_wait = p.m * p.n * extent{sizeof(float)} <= bytes(tuning::waiting_sums_bytes(p.caches));
    const extent most = !is_wide(p.unit) ? tuning::narrow_chunk
                        : sums_can_wait  ? tuning::wide_chunk_bytes / p.unit.element
                                         : tuning::most_depth;
    const extent chunks = ceil_div(plan.k_chunk, most);
    if (chunks > 1) {
        plan.k_chunk = round_up(ceil_div(plan.k_chunk, chunks), p.unit.deepest_piece);
        plan.k_piece = even_piece(plan.k_chunk, p.unit);
    }
    plan.block_columns = tuning::block_columns;
    if (plan.k_chunk <= tuning::shallow_depth_stored && p.n >= plan.block_columns && is_wide(p.unit))
        plan.block_rows = std::min(plan.block_rows, round_up(tuning::shallow_rows_stored, p.unit.rows));
    // Enough blocks for every thread.
    const extent wanted = wanted_tasks(p.threads, tuning::tasks_per_thread);
    const auto tasks = [&] { return ceil_div(p.m, plan.block_rows) * ceil_div(p.n, plan.block_columns); };
    while (tasks() < wanted && plan.block_columns > tuning::fewest_block_columns) plan.block_columns /= 2;
    while (tasks() < wanted && plan.block_rows > tuning::fewest_block_rows)
        plan.block_rows = round_up(plan.block_rows / 2, p.unit.rows);
    if (tasks() < wanted) share_evenly(p, plan);
    // Equal groups of columns, so that no thread waits for another.
    plan.block_columns = round_up(ceil_div(p.n, ceil_div(p.n, plan.block_columns)), p.unit.columns);
    const extent column_bytes = p.unit.element * round_up(plan.k_chunk, plan.k_piece);
    plan.slice_columns = std::max<extent>(1, bytes(tuning::slice_bytes(p.caches)) / column_bytes / plan.block_columns) *
                         plan.block_columns;
}

HALFTONE_OUT_OF_LINE void plan_tiles_a_stationary(const product_problem& p, product_plan& plan) {
    plan.packs_a_once = true;
    plan.block_rows = round_up(p.m, p.unit.rows);
    const extent panels = plan.slice_columns / p.unit.columns;
    const extent together =
        std::min(tuning::tile_panels_together, bytes(tuning::tile_block_bytes(p.caches)) / 2 /
                                                   (bytes_of_pieces(p, pieces_of_pass(p)) * p.unit.columns));
    const extent each = p.threads > 1 ? panels / (2 * p.threads) : together;
    plan.block_columns = std::clamp<extent>(each, 1, std::max<extent>(1, together)) * p.unit.columns;
}

HALFTONE_OUT_OF_LINE void plan_tiles_shared_b(const product_problem& p, product_plan& plan) {
    const extent all_k = bytes_of_pieces(p, pieces_of(p)), slice = bytes(tuning::slice_bytes(p.caches)),
                 width = p.unit.columns;
    extent rows = std::min(rows_in_l2(p), tuning::tile_block_rows);
    extent columns = std::min({plan.slice_columns, tuning::tile_block_columns, round_down_to(slice / all_k, width)});
    const extent wanted = wanted_tasks(p.threads, tuning::tile_tasks_per_thread);
    while (ceil_div(p.m, rows) * ceil_div(p.n, columns) < wanted &&
           (rows > tuning::tile_fewest_rows || columns > tuning::tile_fewest_columns)) {
        extent& larger = rows > tuning::tile_fewest_rows && rows > columns / 2 ? rows : columns;
        larger = larger / 2;
    }
    // Equal blocks, so that no thread waits for another.
    plan.block_rows = round_up(ceil_div(p.m, ceil_div(p.m, rows)), p.unit.rows);
    plan.block_columns = round_up(ceil_div(p.n, ceil_div(p.n, columns)), width);
    plan.slice_columns = std::min(round_up(p.n, plan.block_columns), round_down_to(slice / all_k, plan.block_columns));
}

HALFTONE_OUT_OF_LINE bool reads_a_in_place(const product_problem& p) {
    if (!p.a.has_unit_type || !p.a.is_k_contiguous) return false;
    if (!p.unit.tiles) return p.k % p.unit.k_multiple == 0;
    return p.k % p.unit.k_step == 0 && p.m % p.unit.rows == 0 && p.a.begins_rows_on_lines;
}

HALFTONE_OUT_OF_LINE source_of_a choose_source_of_a(const product_problem& p, product_strategy strategy) {
    if (reads_a_in_place(p)) return source_of_a::in_place;
    const bool packs_b = strategy != product_strategy::narrow_b && strategy != product_strategy::small_m;
    const bool is_transposed = p.a.is_row_contiguous && !p.a.is_k_contiguous;
    return p.a.can_be_k_major && is_transposed && packs_b && !p.unit.tiles ? source_of_a::packed_k_major
                                                                           : source_of_a::packed_rows;
}

HALFTONE_OUT_OF_LINE void lay_out(const product_problem& p, product_plan& plan) {
    const bool is_k_major = plan.a == source_of_a::packed_k_major;
    plan.a_stride = is_k_major ? k_major_rows * plan.k_piece : odd_line_stride(plan.k_piece, p.unit.element);
    plan.block_bytes = p.unit.block_bytes(plan.block_rows, is_k_major ? plan.k_piece : plan.a_stride);
    plan.panel_bytes = p.unit.panel_bytes(std::min(plan.k_piece, plan.k_chunk));
    // Rows of sums are not a power of two apart.
    plan.sums_stride = plan.ends_in_one_piece(p.k) ? p.unit.columns : plan.block_columns + 16;
    plan.sums_bytes =
        round_up(static_cast<std::size_t>(round_up(plan.block_rows, p.unit.rows) * plan.sums_stride) * sizeof(float),
                 block_alignment);
    if (plan.strategy == product_strategy::shared_b) {
        // Tasks that packed their own rows would pack them again for every group of columns.
        const extent groups = ceil_div(std::min(plan.slice_columns, p.n), plan.block_columns),
                     pieces = ceil_div(plan.k_chunk, plan.k_piece);
        const std::size_t all_bytes = static_cast<std::size_t>(plan.blocks(p.m) * pieces) * plan.block_bytes;
        plan.packs_a_once = groups > 2 && all_bytes <= tuning::slice_bytes(p.caches);
    }
    plan.rows_inside =
        static_cast<std::size_t>(plan.blocks(p.m)) * plan.block_bytes <= tuning::rows_inside_bytes(p.caches);
}

HALFTONE_OUT_OF_LINE void lay_out_tiles(const product_problem& p, product_plan& plan) {
    plan.a_stride = panel_stride;
    plan.block_bytes = plan.a == source_of_a::in_place ? 0 : p.unit.block_bytes(plan.block_rows);
    plan.panel_bytes = p.unit.panel_bytes(std::min(panel_depth, p.k));
    plan.sums_stride = plan.block_columns + 16;
    const bool ends_in_one_pass = plan.k_chunk >= pieces_of(p) * panel_depth;
    plan.sums_bytes =
        ends_in_one_pass
            ? 0
            : round_up(static_cast<std::size_t>(plan.block_rows * plan.sums_stride) * sizeof(float), block_alignment);
}

}  // namespace planning

HALFTONE_OUT_OF_LINE product_plan plan_product(const product_problem& p) {
    using namespace planning;
    const bool on_tiles = p.unit.tiles.has_value();
    product_plan plan;
    plan.k_chunk = on_tiles ? pieces_of_pass(p) * panel_depth : depth_of(p);
    plan.k_piece = on_tiles ? panel_depth : piece_of(p);
    plan.block_rows = default_rows(p);
    plan.slice_columns = on_tiles ? round_up(p.n, p.unit.columns) : p.n;
    const strategy_rule& chosen = strategy_rules(p.unit).chosen_for(p);
    plan.strategy = chosen.strategy;
    chosen.plan(p, plan);
    plan.a = choose_source_of_a(p, plan.strategy);
    on_tiles ? lay_out_tiles(p, plan) : lay_out(p, plan);
    return plan;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
