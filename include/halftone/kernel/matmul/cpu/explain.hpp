// SPDX-License-Identifier: MIT
/// \file
/// A plan in words: which strategy, its blocks, what is in which cache, and what spoke against the strategies before it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include <halftone/kernel/matmul/cpu/plan.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Bytes that a plan means to stay in a cache, and of what they are. L1 and L2 are those of one thread's core.
struct cache_use {
    struct level {
        std::size_t bytes;
        const char* what;
    };
    level l1, l2, l3;
};

inline cache_use cache_use_of(const product_problem& p, const product_plan& plan) {
    const auto times = [](extent count, std::size_t bytes) { return static_cast<std::size_t>(count) * bytes; };
    const extent pieces = std::max<extent>(1, ceil_div(std::min(plan.k_chunk, p.k), plan.k_piece)),
                 all_pieces = std::max<extent>(1, ceil_div(p.k, plan.k_piece)),
                 slice_panels = ceil_div(std::min(plan.slice_columns, p.n), p.unit.columns),
                 group_panels = plan.block_columns / p.unit.columns;
    const bool packs_a = plan.a != source_of_a::in_place;
    const auto element = static_cast<std::size_t>(p.unit.element);
    // One piece of k of a row of a.
    const std::size_t a_row = times(plan.a == source_of_a::packed_rows ? plan.a_stride : plan.k_piece, element),
                      a_block = times(std::min(plan.block_rows, p.m), a_row), all_a = times(p.m * all_pieces, a_row),
                      slice = times(slice_panels * pieces, plan.panel_bytes);
    const cache_use::level panel{plan.panel_bytes, "a panel of b, one piece of k"}, nothing{0, "nothing in particular"};
    const cache_use::level rows_of_tile{times(p.unit.rows, a_row), "a tile's rows of a, one piece of k"};
    const cache_use::level tile_panel{times(std::min(l1_resident_depth, p.k) * p.unit.columns, element),
                                      "a panel of b, its first k"};
    switch (plan.strategy) {
        case product_strategy::narrow_b:
            return {
                rows_of_tile, {times(p.n * p.k, static_cast<std::size_t>(p.b.element)), "all of b, unpacked"}, nothing};
        case product_strategy::small_m:
            return {rows_of_tile, {all_a, "all of a"}, nothing};
        case product_strategy::a_stationary:
            return {panel, {all_a, "all of a"}, nothing};
        case product_strategy::c_stationary:
            return {panel,
                    {times(plan.ends_in_one_piece(p.k) ? 1 : plan.blocks(p.m), plan.sums_bytes),
                     "sums of a group of panels"},
                    {packs_a && !plan.packs_a_once ? 0 : all_a, "all of a"}};
        case product_strategy::private_b:
            return {panel, {slice + a_block + plan.sums_bytes, "all of b, packed; a block of a and its sums"}, nothing};
        case product_strategy::shared_b:
            return {panel,
                    {a_block + plan.sums_bytes, "a block of a, one piece of k, and its sums"},
                    {slice, "a slice of b, packed"}};
        case product_strategy::tiles_a_stationary:
            return {tile_panel,
                    {times(pieces, a_block) + times(group_panels * pieces, plan.panel_bytes),
                     "all of a and a group of panels, a pass of k"},
                    nothing};
        case product_strategy::tiles_shared_b:
            return {tile_panel,
                    {times(pieces, a_block), "a block of a, a pass of k"},
                    {times(slice_panels * all_pieces, plan.panel_bytes), "a slice of b, packed"}};
    }
    return {nothing, nothing, nothing};
}

/// Several lines, each indented by two blanks.
inline std::string explain_plan(const product_problem& p) {
    const product_plan plan = plan_product(p);
    const planning::strategy_rules all(p.unit);
    const planning::strategy_rule& chosen = all.chosen_for(p);
    const auto number = [](extent n) { return std::to_string(n); };
    const auto kib = [](std::size_t bytes) { return std::to_string(ceil_div(bytes, 1024u)) + " KiB"; };

    std::string text = "  strategy  " + std::string(chosen.name) + "\n";
    text += "  blocks    " + number(plan.block_rows) + " x " + number(plan.block_columns) + " of c, " +
            number(plan.k_piece) + " of k at a time\n";
    text += "  packing   a ";
    text += plan.a == source_of_a::in_place         ? "in place"
            : plan.a == source_of_a::packed_k_major ? "k-major"
                                                    : "row-major";
    if (plan.a != source_of_a::in_place) text += plan.packs_a_once ? ", once" : ", by the tasks";
    const bool is_unpacked = plan.strategy == product_strategy::narrow_b || plan.strategy == product_strategy::small_m;
    const extent packed_k = p.unit.tiles ? p.k : std::min(plan.k_chunk, p.k);
    text += is_unpacked ? "; b in place\n"
                        : "; b by slices of " + number(std::min(plan.slice_columns, p.n)) + " columns and " +
                              number(packed_k) + " of k\n";
    const cache_use use = cache_use_of(p, plan);
    const auto level = [&](const char* name, const cache_use::level& l, std::size_t size) {
        text += std::string("  ") + name + "        ";
        text += l.bytes == 0 ? std::string(l.what) : kib(l.bytes) + " of " + kib(size) + ": " + l.what;
        text += "\n";
    };
    level("L1", use.l1, p.caches.l1);
    level("L2", use.l2, p.caches.l2);
    level("L3", use.l3, p.caches.l3);
    const char* before = "  why       ";
    for (const planning::strategy_rule& r : all) {
        text += before;
        before = "            ";
        if (r.strategy == chosen.strategy) {
            text +=
                std::string(r.name) + (r.strategy == (all.end() - 1)->strategy ? ": what is left\n" : ": applies\n");
            break;
        }
        text += std::string("not ") + r.name + ": " + r.against(p) + "\n";
    }
    return text;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
