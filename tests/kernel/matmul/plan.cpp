// SPDX-License-Identifier: MIT
/// \file
/// Plans of products (kernel/matmul/cpu/plan.hpp): the choice for shapes, units and layouts, with its block sizes; properties of
/// all plans; and their explanation.
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/cpu/explain.hpp>

#include "kernel/product/unit_numbers.hpp"
#include "support/random.hpp"

namespace kernel_matmul_plan_tests {

namespace ht = halftone;
using namespace ht::detail;
using ht::extent;
using support::all_units, support::which_unit;
using enum support::which_unit;
using enum product_strategy;

/// Both row-major and of the unit's type; a or b stored transposed; both of another type, which is packed.
enum operands { row_major, transposed_a, transposed_b, other_type };

product_problem problem(which_unit which, operands stored, int threads, extent m, extent n, extent k) {
    const support::unit_numbers& numbers = all_units[which];
    const bool has_unit_type = stored != other_type && (!numbers.unit.tiles || numbers.unit.element == 2);
    return {.m = m,
            .n = n,
            .k = k,
            .unit = numbers.unit,
            .a = {.is_k_contiguous = stored != transposed_a,
                  .is_row_contiguous = stored == transposed_a,
                  .has_unit_type = has_unit_type,
                  .begins_rows_on_lines = stored != transposed_a,
                  .can_be_k_major = numbers.packs_k_major},
            .b = {.is_row_major = stored != transposed_b,
                  .has_unit_type = has_unit_type,
                  .element = stored == other_type ? 4 : numbers.unit.element,
                  .can_be_unpacked = numbers.multiplies_unpacked},
            .threads = threads};
}

struct expected_plan {
    which_unit unit;
    operands stored;
    int threads;
    extent m, n, k;
    product_strategy strategy;
    source_of_a a;
    bool packs_a_once;
    extent k_chunk, k_piece, block_rows, block_columns, slice_columns;
};
constexpr auto in_place = source_of_a::in_place, rows = source_of_a::packed_rows, k_major = source_of_a::packed_k_major;

/// The plans at the time when their constants were measured (kernel/matmul/cpu/tuning.hpp). Changing a constant changes
/// lines here: state there what it gained, and on which machine.
constexpr expected_plan table[] = {
    {portable_fma, row_major, 2, 256, 256, 256, shared_b, in_place, false, 256, 256, 48, 128, 16384},
    {portable_fma, row_major, 2, 1024, 1024, 1024, shared_b, in_place, false, 512, 256, 96, 512, 8192},
    {portable_fma, row_major, 2, 1, 768, 768, small_m, in_place, false, 768, 256, 4, 96, 768},
    {portable_fma, row_major, 2, 16, 3072, 768, small_m, in_place, false, 768, 256, 16, 384, 3072},
    {portable_fma, row_major, 2, 256, 2304, 768, shared_b, in_place, true, 768, 256, 96, 256, 5376},
    {portable_fma, row_major, 2, 1024, 3072, 768, shared_b, in_place, true, 768, 256, 96, 1024, 5120},
    {portable_fma, row_major, 2, 8192, 768, 3072, shared_b, in_place, false, 768, 256, 96, 768, 5376},
    {portable_fma, row_major, 2, 256, 50304, 768, shared_b, in_place, true, 768, 256, 96, 1008, 5040},
    {portable_fma, row_major, 2, 1024, 64, 1024, private_b, in_place, false, 1024, 256, 88, 64, 64},
    {portable_fma, row_major, 2, 256, 16, 3072, private_b, in_place, false, 3072, 256, 64, 16, 16},
    {portable_fma, row_major, 2, 1024, 1024, 16, shared_b, in_place, false, 16, 32, 96, 512, 131072},
    {portable_fma, row_major, 2, 33, 33, 0, a_stationary, in_place, true, 1, 32, 36, 8, 33},
    {portable_fma, transposed_a, 2, 768, 3072, 8192, shared_b, rows, true, 768, 256, 96, 1024, 5120},
    {portable_fma, transposed_b, 2, 4, 2304, 768, small_m, in_place, false, 768, 256, 4, 288, 2304},
    {portable_fma, transposed_b, 2, 1024, 768, 50304, shared_b, in_place, false, 768, 256, 96, 384, 5376},
    {portable_fma, other_type, 2, 64, 1024, 64, a_stationary, rows, true, 64, 64, 48, 16, 1024},
    {portable_fma, other_type, 2, 300, 32, 500, private_b, rows, false, 500, 256, 76, 32, 32},
    {portable_fma, row_major, 8, 1024, 1024, 1024, shared_b, in_place, true, 512, 256, 96, 128, 8192},
    {portable_fma, row_major, 1, 200, 40, 1000, private_b, in_place, false, 1000, 256, 96, 40, 40},
    {portable_fma, transposed_a, 16, 500, 2000, 4000, shared_b, rows, true, 768, 256, 48, 128, 5376},
    {portable_fma, row_major, 2, 48, 16, 3072, shared_b, in_place, false, 768, 256, 48, 8, 5456},
    {portable_fma, row_major, 2, 4, 4, 4, small_m, in_place, false, 4, 32, 4, 64, 4},
    {portable_fma, row_major, 2, 2048, 1024, 128, shared_b, in_place, false, 128, 128, 96, 1024, 32768},
    {avx2_fma, row_major, 2, 256, 256, 256, shared_b, in_place, false, 256, 256, 48, 128, 16384},
    {avx2_fma, row_major, 2, 1024, 1024, 1024, shared_b, in_place, false, 512, 256, 96, 512, 8192},
    {avx2_fma, row_major, 2, 1, 768, 768, small_m, in_place, false, 768, 256, 6, 96, 768},
    {avx2_fma, row_major, 2, 16, 3072, 768, small_m, in_place, false, 768, 256, 18, 384, 3072},
    {avx2_fma, row_major, 2, 256, 2304, 768, shared_b, in_place, true, 768, 256, 96, 256, 5376},
    {avx2_fma, row_major, 2, 1024, 3072, 768, shared_b, in_place, true, 768, 256, 96, 1024, 5120},
    {avx2_fma, row_major, 2, 8192, 768, 3072, shared_b, in_place, false, 768, 256, 96, 768, 5376},
    {avx2_fma, row_major, 2, 256, 50304, 768, shared_b, in_place, true, 768, 256, 96, 1008, 5040},
    {avx2_fma, row_major, 2, 1024, 64, 1024, private_b, in_place, false, 1024, 256, 90, 64, 64},
    {avx2_fma, row_major, 2, 256, 16, 3072, private_b, in_place, false, 3072, 256, 66, 16, 16},
    {avx2_fma, row_major, 2, 1024, 1024, 16, shared_b, in_place, false, 16, 32, 96, 512, 131072},
    {avx2_fma, row_major, 2, 33, 33, 0, a_stationary, in_place, true, 1, 32, 36, 16, 33},
    {avx2_fma, transposed_a, 2, 768, 3072, 8192, shared_b, rows, true, 768, 256, 96, 1024, 5120},
    {avx2_fma, transposed_b, 2, 4, 2304, 768, small_m, in_place, false, 768, 256, 6, 288, 2304},
    {avx2_fma, transposed_b, 2, 1024, 768, 50304, shared_b, in_place, false, 768, 256, 96, 384, 5376},
    {avx2_fma, other_type, 2, 64, 1024, 64, a_stationary, rows, true, 64, 64, 48, 32, 1024},
    {avx2_fma, other_type, 2, 300, 32, 500, private_b, rows, false, 500, 256, 30, 32, 32},
    {avx2_fma, row_major, 8, 1024, 1024, 1024, shared_b, in_place, true, 512, 256, 96, 128, 8192},
    {avx2_fma, row_major, 1, 200, 40, 1000, private_b, in_place, false, 1000, 256, 96, 48, 40},
    {avx2_fma, transposed_a, 16, 500, 2000, 4000, shared_b, rows, true, 768, 256, 48, 128, 5376},
    {avx2_fma, row_major, 2, 48, 16, 3072, narrow_b, in_place, false, 3072, 256, 12, 16, 16},
    {avx2_fma, row_major, 2, 4, 4, 4, small_m, in_place, false, 4, 32, 6, 64, 4},
    {avx2_fma, row_major, 2, 2048, 1024, 128, shared_b, in_place, false, 128, 128, 96, 1024, 32768},
    {avx512_fma, row_major, 2, 256, 256, 256, a_stationary, in_place, true, 256, 256, 48, 32, 256},
    {avx512_fma, row_major, 2, 1024, 1024, 1024, shared_b, in_place, false, 1024, 256, 96, 512, 4096},
    {avx512_fma, row_major, 2, 1, 768, 768, small_m, in_place, false, 768, 256, 12, 96, 768},
    {avx512_fma, row_major, 2, 16, 3072, 768, small_m, in_place, false, 768, 256, 24, 384, 3072},
    {avx512_fma, row_major, 2, 256, 2304, 768, c_stationary, in_place, true, 768, 256, 96, 128, 2304},
    {avx512_fma, row_major, 2, 1024, 3072, 768, shared_b, in_place, true, 768, 256, 96, 1024, 5120},
    {avx512_fma, row_major, 2, 8192, 768, 3072, shared_b, in_place, false, 3072, 256, 96, 768, 768},
    {avx512_fma, row_major, 2, 256, 50304, 768, c_stationary, in_place, true, 768, 256, 96, 128, 50304},
    {avx512_fma, row_major, 2, 1024, 64, 1024, private_b, in_place, false, 1024, 256, 96, 64, 64},
    {avx512_fma, row_major, 2, 256, 16, 3072, narrow_b, in_place, false, 3072, 256, 72, 32, 16},
    {avx512_fma, row_major, 2, 1024, 1024, 16, shared_b, in_place, false, 16, 32, 12, 1024, 131072},
    {avx512_fma, row_major, 2, 33, 33, 0, small_m, in_place, false, 1, 32, 36, 64, 33},
    {avx512_fma, transposed_a, 2, 768, 3072, 8192, shared_b, k_major, true, 1024, 256, 96, 1024, 4096},
    {avx512_fma, transposed_b, 2, 4, 2304, 768, small_m, in_place, false, 768, 256, 12, 288, 2304},
    {avx512_fma, transposed_b, 2, 8, 2304, 768, small_m, in_place, false, 768, 256, 12, 288, 2304},
    {avx512_fma, transposed_b, 2, 1024, 768, 50304, shared_b, in_place, false, 1024, 256, 96, 384, 3840},
    {avx512_fma, other_type, 2, 64, 1024, 64, a_stationary, rows, true, 64, 64, 48, 64, 1024},
    {avx512_fma, other_type, 2, 300, 32, 500, private_b, rows, false, 500, 256, 48, 32, 32},
    {avx512_fma, row_major, 8, 1024, 1024, 1024, shared_b, in_place, true, 1024, 256, 96, 128, 4096},
    {avx512_fma, row_major, 1, 200, 40, 1000, private_b, in_place, false, 1000, 256, 96, 64, 40},
    {avx512_fma, transposed_a, 16, 500, 2000, 4000, shared_b, k_major, true, 1024, 256, 48, 128, 4096},
    {avx512_fma, row_major, 2, 48, 16, 3072, narrow_b, in_place, false, 3072, 256, 12, 32, 16},
    {avx512_fma, row_major, 2, 4, 4, 4, small_m, in_place, false, 4, 32, 12, 64, 4},
    {avx512_fma, row_major, 2, 2048, 1024, 128, shared_b, in_place, false, 128, 128, 96, 1024, 32768},
    {avx512_pairs, row_major, 2, 256, 256, 256, a_stationary, in_place, true, 256, 256, 48, 32, 256},
    {avx512_pairs, row_major, 2, 1024, 1024, 1024, c_stationary, in_place, true, 1024, 512, 96, 96, 1024},
    {avx512_pairs, row_major, 2, 1, 768, 768, small_m, in_place, false, 768, 384, 12, 96, 768},
    {avx512_pairs, row_major, 2, 16, 3072, 768, small_m, in_place, false, 768, 384, 24, 384, 3072},
    {avx512_pairs, row_major, 2, 256, 2304, 768, a_stationary, in_place, true, 768, 384, 96, 64, 2304},
    {avx512_pairs, row_major, 2, 1024, 3072, 768, c_stationary, in_place, true, 768, 384, 96, 96, 3072},
    {avx512_pairs, row_major, 2, 8192, 768, 3072, shared_b, in_place, false, 3072, 512, 96, 768, 2304},
    {avx512_pairs, row_major, 2, 256, 50304, 768, a_stationary, in_place, true, 768, 384, 96, 64, 50304},
    {avx512_pairs, row_major, 2, 1024, 64, 1024, private_b, in_place, false, 1024, 512, 96, 64, 64},
    {avx512_pairs, row_major, 2, 256, 16, 3072, private_b, in_place, false, 3072, 512, 24, 32, 16},
    {avx512_pairs, row_major, 2, 1024, 1024, 16, shared_b, in_place, false, 16, 32, 12, 1024, 262144},
    {avx512_pairs, row_major, 2, 33, 33, 0, small_m, in_place, false, 1, 32, 36, 64, 33},
    {avx512_pairs, transposed_a, 2, 768, 3072, 8192, c_stationary, k_major, true, 8192, 512, 96, 128, 3072},
    {avx512_pairs, transposed_b, 2, 4, 2304, 768, small_m, in_place, false, 768, 384, 12, 288, 2304},
    {avx512_pairs, transposed_b, 2, 1024, 768, 50304, shared_b, in_place, false, 2048, 512, 96, 384, 3840},
    {avx512_pairs, other_type, 2, 64, 1024, 64, a_stationary, rows, true, 64, 64, 48, 64, 1024},
    {avx512_pairs, other_type, 2, 300, 32, 500, a_stationary, rows, true, 500, 512, 48, 32, 32},
    {avx512_pairs, row_major, 8, 1024, 1024, 1024, c_stationary, in_place, true, 1024, 512, 96, 64, 1024},
    {avx512_pairs, row_major, 1, 200, 40, 1000, private_b, in_place, false, 1000, 512, 96, 64, 40},
    {avx512_pairs, transposed_a, 16, 500, 2000, 4000, shared_b, k_major, true, 2048, 512, 48, 128, 4096},
    {avx512_pairs, row_major, 2, 48, 16, 3072, narrow_b, in_place, false, 3072, 512, 12, 32, 16},
    {avx512_pairs, row_major, 2, 4, 4, 4, small_m, in_place, false, 4, 32, 12, 64, 4},
    {avx512_pairs, row_major, 2, 2048, 1024, 128, shared_b, in_place, false, 128, 128, 96, 1024, 65536},
    {amx_bf16, row_major, 2, 1, 768, 768, tiles_a_stationary, rows, true, 768, 256, 32, 192, 768},
    {amx_bf16, row_major, 2, 256, 2304, 768, tiles_a_stationary, in_place, true, 768, 256, 256, 256, 2304},
    {amx_bf16, row_major, 2, 1024, 3072, 768, tiles_shared_b, in_place, false, 768, 256, 352, 1024, 3072},
    {amx_bf16, row_major, 2, 8192, 768, 3072, tiles_shared_b, in_place, false, 1536, 256, 256, 768, 768},
    {amx_bf16, row_major, 2, 4096, 4096, 4096, tiles_shared_b, in_place, false, 2048, 256, 192, 1024, 2048},
    {amx_bf16, row_major, 2, 256, 50304, 768, tiles_a_stationary, in_place, true, 768, 256, 256, 256, 50304},
    {amx_bf16, row_major, 2, 33, 33, 0, tiles_a_stationary, rows, true, 256, 256, 64, 32, 64},
    {amx_bf16, transposed_a, 2, 768, 3072, 8192, tiles_shared_b, rows, false, 2048, 256, 192, 1024, 1024},
    {amx_bf16, transposed_b, 2, 1024, 768, 50304, tiles_shared_b, in_place, false, 2048, 256, 192, 160, 160},
    {amx_bf16, other_type, 1, 300, 260, 33, tiles_a_stationary, rows, true, 256, 256, 320, 256, 288},
    {amx_bf16, row_major, 16, 1024, 1024, 1024, tiles_shared_b, in_place, false, 1024, 256, 96, 128, 1024},
    {amx_two_pieces, row_major, 2, 1, 768, 768, tiles_a_stationary, rows, true, 768, 256, 32, 128, 768},
    {amx_two_pieces, row_major, 2, 256, 2304, 768, tiles_a_stationary, rows, true, 768, 256, 256, 128, 2304},
    {amx_two_pieces, row_major, 2, 1024, 3072, 768, tiles_shared_b, rows, false, 768, 256, 256, 1024, 3072},
    {amx_two_pieces, row_major, 2, 8192, 768, 3072, tiles_shared_b, rows, false, 1536, 256, 128, 768, 768},
    {amx_two_pieces, row_major, 2, 4096, 4096, 4096, tiles_shared_b, rows, false, 2048, 256, 96, 1024, 1024},
    {amx_two_pieces, row_major, 2, 256, 50304, 768, tiles_a_stationary, rows, true, 768, 256, 256, 128, 50304},
    {amx_two_pieces, row_major, 2, 33, 33, 0, tiles_a_stationary, rows, true, 256, 256, 64, 32, 64},
    {amx_two_pieces, transposed_a, 2, 768, 3072, 8192, tiles_shared_b, rows, false, 2048, 256, 96, 512, 512},
    {amx_two_pieces, transposed_b, 2, 1024, 768, 50304, tiles_shared_b, rows, false, 2048, 256, 96, 64, 64},
    {amx_two_pieces, other_type, 1, 300, 260, 33, tiles_a_stationary, rows, true, 256, 256, 320, 256, 288},
    {amx_two_pieces, row_major, 16, 1024, 1024, 1024, tiles_shared_b, rows, false, 1024, 256, 96, 128, 1024},
    {amx_three_pieces, row_major, 2, 1, 768, 768, tiles_a_stationary, rows, true, 768, 256, 32, 64, 768},
    {amx_three_pieces, row_major, 2, 256, 2304, 768, tiles_a_stationary, rows, true, 768, 256, 256, 64, 2304},
    {amx_three_pieces, row_major, 2, 1024, 3072, 768, tiles_shared_b, rows, false, 768, 256, 160, 1024, 3072},
    {amx_three_pieces, row_major, 2, 8192, 768, 3072, tiles_shared_b, rows, false, 1536, 256, 64, 768, 768},
    {amx_three_pieces, row_major, 2, 4096, 4096, 4096, tiles_shared_b, rows, false, 2048, 256, 64, 608, 608},
    {amx_three_pieces, row_major, 2, 256, 50304, 768, tiles_a_stationary, rows, true, 768, 256, 256, 64, 50304},
    {amx_three_pieces, row_major, 2, 33, 33, 0, tiles_a_stationary, rows, true, 256, 256, 64, 32, 64},
    {amx_three_pieces, transposed_a, 2, 768, 3072, 8192, tiles_shared_b, rows, false, 2048, 256, 64, 320, 320},
    {amx_three_pieces, transposed_b, 2, 1024, 768, 50304, tiles_shared_b, rows, false, 2048, 256, 64, 32, 32},
    {amx_three_pieces, other_type, 1, 300, 260, 33, tiles_a_stationary, rows, true, 256, 256, 320, 256, 288},
    {amx_three_pieces, row_major, 16, 1024, 1024, 1024, tiles_shared_b, rows, false, 1024, 256, 128, 128, 1024}};

TEST_CASE("plans: strategy and blocks of shapes, on every unit") {
    for (const expected_plan& e : table) {
        const std::string what = std::string(all_units[e.unit].name) + ", " + std::to_string(e.m) + "x" +
                                 std::to_string(e.n) + "x" + std::to_string(e.k) + ", " + std::to_string(e.threads) +
                                 " threads";
        CAPTURE(what);
        const product_plan plan = plan_product(problem(e.unit, e.stored, e.threads, e.m, e.n, e.k));
        CHECK(plan.strategy == e.strategy);
        CHECK(plan.a == e.a);
        CHECK(plan.packs_a_once == e.packs_a_once);
        CHECK(plan.k_chunk == e.k_chunk);
        CHECK(plan.k_piece == e.k_piece);
        CHECK(plan.block_rows == e.block_rows);
        CHECK(plan.block_columns == e.block_columns);
        CHECK(plan.slice_columns == e.slice_columns);
    }
}

/// The table contains all strategies.
TEST_CASE("plans: every strategy is chosen for some shape of the table") {
    for (const product_strategy s :
         {narrow_b, small_m, a_stationary, c_stationary, private_b, shared_b, tiles_a_stationary, tiles_shared_b}) {
        bool is_there = false;
        for (const expected_plan& e : table) is_there |= e.strategy == s;
        CHECK(is_there);
    }
}

/// Whether loops over this plan cover the product by whole tiles and panels.
bool is_sound(const product_problem& p, const product_plan& plan) {
    const bool is_tiled = plan.block_rows > 0 && plan.block_rows % p.unit.rows == 0 && plan.block_columns > 0 &&
                          plan.block_columns % p.unit.columns == 0 && plan.k_piece > 0 && plan.k_chunk > 0;
    const bool has_all_k = plan.strategy == shared_b || p.unit.tiles || plan.k_chunk >= p.k;
    const bool has_room = plan.sums_stride >= (plan.ends_in_one_piece(p.k) ? p.unit.columns : plan.block_columns);
    const bool slices_are_blocks = plan.slice_columns >= p.n || plan.slice_columns % plan.block_columns == 0;
    return is_tiled && has_all_k && has_room && slices_are_blocks;
}
/// Whether the data that the plan keeps in L2 and L3 fit there.
bool fits_caches(const product_problem& p, const product_plan& plan) {
    const cache_use use = cache_use_of(p, plan);
    if (plan.strategy == shared_b) return use.l3.bytes <= p.caches.l3 || plan.slice_columns == plan.block_columns;
    if (plan.strategy == tiles_shared_b) return use.l2.bytes <= p.caches.l2 || plan.block_rows == p.unit.rows;
    // If k is small, the additional lines between rows take up to half as much again.
    if (plan.strategy == a_stationary) return use.l2.bytes <= p.caches.l2 * 9 / 8;
    return plan.strategy != narrow_b || use.l2.bytes <= p.caches.l2;
}

TEST_CASE("plans: of any shape, for any caches, whole tiles and panels that cover the product and fit the caches") {
    support::random data(3);
    const auto below = [&](std::uint64_t n) { return static_cast<extent>(data.below(n)); };
    const std::size_t l2[] = {std::size_t{128} << 10, std::size_t{256} << 10, std::size_t{512} << 10,
                              std::size_t{2} << 20},
                      l3[] = {std::size_t{1} << 20, std::size_t{8} << 20, std::size_t{32} << 20};
    extent unsound = 0, too_large = 0;
    for (int i = 0; i < 20000; ++i) {
        const auto unit = static_cast<which_unit>(below(std::size(all_units)));
        const auto stored = static_cast<operands>(below(4));
        const extent largest[] = {20, 300, 5000};
        product_problem p =
            problem(unit, stored, 1 << below(6), 1 + below(static_cast<std::uint64_t>(largest[below(3)])),
                    1 + below(static_cast<std::uint64_t>(largest[below(3)])),
                    below(static_cast<std::uint64_t>(largest[below(3)])));
        p.caches.l2 = l2[below(std::size(l2))];
        p.caches.l3 = l3[below(std::size(l3))];
        const product_plan plan = plan_product(p);
        unsound += is_sound(p, plan) ? 0 : 1;
        too_large += fits_caches(p, plan) ? 0 : 1;
    }
    CHECK(unsound == 0);
    CHECK(too_large == 0);
}

TEST_CASE("plans: caches as large as those that constants were measured with, and larger ones, change nothing") {
    support::random data(5);
    for (int i = 0; i < 2000; ++i) {
        const auto unit = static_cast<which_unit>(data.below(std::size(all_units)));
        product_problem p =
            problem(unit, static_cast<operands>(data.below(4)), 2, 1 + static_cast<extent>(data.below(3000)),
                    1 + static_cast<extent>(data.below(3000)), 1 + static_cast<extent>(data.below(5000)));
        const product_plan at_default = plan_product(p);
        p.caches = {.l1 = std::size_t{48} << 10,
                    .l2 = p.unit.tiles ? std::size_t{2} << 20 : std::size_t{512} << 10,
                    .l3 = std::size_t{16} << 20};
        const product_plan at_measured = plan_product(p);
        CHECK(at_default.strategy == at_measured.strategy);
        CHECK(at_default.block_rows == at_measured.block_rows);
        CHECK(at_default.block_columns == at_measured.block_columns);
        CHECK(at_default.slice_columns == at_measured.slice_columns);
        CHECK(at_default.k_chunk == at_measured.k_chunk);
    }
}

TEST_CASE("plans: smaller caches make smaller blocks") {
    product_problem p = problem(avx512_pairs, row_major, 2, 256, 3072, 768);
    CHECK(plan_product(p).strategy == a_stationary);  // 256 x 768 x 2 bytes are 384 KiB
    p.caches.l2 = std::size_t{256} << 10;
    CHECK(plan_product(p).strategy == c_stationary);
    p = problem(avx2_fma, row_major, 2, 4096, 50304, 768);
    const extent slice = plan_product(p).slice_columns;
    p.caches.l3 = std::size_t{8} << 20;
    CHECK(plan_product(p).slice_columns <= slice / 2);
    CHECK(plan_product(p).slice_columns > slice / 2 - 1024);
}

TEST_CASE("cache sizes of this machine are those of the system, or the defaults") {
    const cache_sizes here = cache_sizes::of_this_machine();
    CHECK(here.l1 >= 4096);
    CHECK(here.l2 >= here.l1);
    CHECK(here.l3 > 0);
}

TEST_CASE("plans are explained: the strategy, its blocks, bytes in each cache, and what spoke against others") {
    const auto has = [](const std::string& text, const char* line) { return text.find(line) != std::string::npos; };
    product_problem p = problem(avx2_fma, row_major, 2, 256, 2304, 768);
    p.caches = {.l1 = std::size_t{32} << 10, .l2 = std::size_t{512} << 10, .l3 = std::size_t{32} << 20};
    const std::string shared = explain_plan(p);
    CAPTURE(shared);
    CHECK(has(shared, "strategy  shared_b\n"));
    CHECK(has(shared, "blocks    96 x 256 of c, 256 of k at a time\n"));
    CHECK(has(shared, "packing   a in place; b by slices of 2304 columns and 768 of k\n"));
    CHECK(has(shared, "L1        16 KiB of 32 KiB: a panel of b"));    // 16 columns, 256 k, 4 bytes
    CHECK(has(shared, "L2        198 KiB of 512 KiB: a block of a"));  // 96 x 256 and 96 x (256 + 16) floats
    CHECK(has(shared, "L3        6912 KiB of 32768 KiB: a slice of b"));
    CHECK(has(shared, "not c_stationary: a has more than 128 rows, and vectors are narrow\n"));
    CHECK(has(shared, "shared_b: what is left\n"));
    p = problem(amx_bf16, transposed_a, 2, 768, 768, 8192);
    const std::string tiles = explain_plan(p);
    CAPTURE(tiles);
    CHECK(has(tiles, "strategy  tiles_shared_b\n"));
    CHECK(has(tiles, "packing   a row-major, by the tasks; b by slices of 768 columns and 8192 of k\n"));
    CHECK(has(tiles, "not tiles_a_stationary: packed a does not stay in L2 and has more than 256 rows\n"));
    for (const expected_plan& e : table) {
        const std::string text = explain_plan(problem(e.unit, e.stored, e.threads, e.m, e.n, e.k));
        CHECK(has(text, "  strategy  "));
        CHECK(has(text, "  why       "));
    }
}

}  // namespace kernel_matmul_plan_tests
