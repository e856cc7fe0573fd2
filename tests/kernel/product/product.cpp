// SPDX-License-Identifier: MIT
/// \file
/// Product units and their packing: exact on small integers, rounding, the same bits in blocks of any size, bounds.
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "kernel/product/checks.hpp"
#include "kernel/product/software_tiles.hpp"
#include "kernel/product/unit_numbers.hpp"
#include "support/bounds.hpp"
#include "support/each_set.hpp"
#include "support/random.hpp"

namespace kernel_product_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using product_test::aligned_bytes, product_test::multiply_all, product_test::rounded_up;

template <class Compute, class T>
void multiply_on_every_set() {
    support::for_each_isa([&](ht::isa set) {
        const ht::cpu device{{.threads = 1, .instruction_set = set}};
        multiply_all<T>(ht::detail::unit_for<Compute>(device), ht::detail::packing_for<Compute, T>(device));
    });
}

TEST_CASE("product units and packing are exact on small integers") {
    SUBCASE("float") { multiply_on_every_set<float, float>(); }
    SUBCASE("bfloat16") { multiply_on_every_set<bfloat16, bfloat16>(); }
    SUBCASE("float16") { multiply_on_every_set<float16, float16>(); }
    SUBCASE("float as bfloat16") { multiply_on_every_set<bfloat16, float>(); }
    SUBCASE("float16 as bfloat16") { multiply_on_every_set<bfloat16, float16>(); }
    SUBCASE("float as float16") { multiply_on_every_set<float16, float>(); }
    SUBCASE("bfloat16 as float") { multiply_on_every_set<float, bfloat16>(); }
}

TEST_CASE("the tile body is exact on software tiles") {
    multiply_all<bfloat16>(support::software_tiles::unit(), support::software_tiles::plain_packing());
}

#if defined(__x86_64__)
TEST_CASE("the tile body is exact with its own packing") {
    // The packing needs AVX-512 only.
    if (!support::is_tested(ht::isa::avx512)) {
        MESSAGE("not tested here: ", std::string(ht::name(ht::isa::avx512)));
        return;
    }
    multiply_all<bfloat16>(support::software_tiles::unit(), {.a = {.pack = &ht::avx512_bf16::pack_a_bf16<bfloat16>},
                                                             .b = {.pack = &ht::avx512_bf16::pack_b_bf16<bfloat16>}});
    multiply_all<float>(support::software_tiles::unit(), {.a = {.pack = &ht::avx512_bf16::pack_a_bf16<float>},
                                                          .b = {.pack = &ht::avx512_bf16::pack_b_bf16<float>}});
    multiply_all<float16>(support::software_tiles::unit(), {.a = {.pack = &ht::avx512_bf16::pack_a_bf16<float16>},
                                                            .b = {.pack = &ht::avx512_bf16::pack_b_bf16<float16>}});
}
#endif

/// Sends `value` through a's packing (times 1) or through b's.
template <class Compute>
float packed_value(const ht::cpu& device, float value, bool in_a) {
    const ht::detail::product_unit unit = ht::detail::unit_for<Compute>(device);
    const ht::detail::product_packing<float> packing = ht::detail::packing_for<Compute, float>(device);
    const float one = 1;
    aligned_bytes block(unit.block_bytes(1)), panel(unit.panel_bytes(1));
    packing.pack_block(in_a ? &value : &one, 1, 1, 1, 1, block.data());
    packing.pack_panel(in_a ? &one : &value, 1, 1, 1, 1, panel.data());
    std::vector<float> c(static_cast<std::size_t>(unit.rows * unit.columns));
    unit.begin_worker();
    unit.multiply(1, unit.padded(1), block.data(), panel.data(), c.data(), unit.columns, false, nullptr);
    unit.end_worker();
    return c[0];
}

template <class Compute>
void packing_rounds() {
    const float values[] = {1.00390625f,  1.01171875f, 1.0f / 3,  -2.0f / 3,    1 + 0x1p-11f,
                            1 + 0x3p-11f, 3.14159274f, 1000.123f, 0x1.fffffep5f};
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) continue;
        CAPTURE(std::string(ht::name(set)));
        const ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const float value : values) {
            CHECK(packed_value<Compute>(device, value, true) == static_cast<float>(Compute(value)));
            CHECK(packed_value<Compute>(device, value, false) == static_cast<float>(Compute(value)));
        }
    }
}

TEST_CASE("packing rounds operands to the compute type, to nearest even") {
    SUBCASE("float") { packing_rounds<float>(); }
    SUBCASE("bfloat16") { packing_rounds<bfloat16>(); }
    SUBCASE("float16") { packing_rounds<float16>(); }
}

TEST_CASE("product units have the numbers that plans are tested with") {
    const auto compare = [](const ht::detail::product_unit& unit, const ht::detail::product_unit& numbers) {
        CHECK(unit.rows == numbers.rows);
        CHECK(unit.columns == numbers.columns);
        CHECK(unit.k_step == numbers.k_step);
        CHECK(unit.element == numbers.element);
        CHECK(unit.k_multiple == numbers.k_multiple);
        CHECK(unit.deepest_piece == numbers.deepest_piece);
        CHECK(unit.tiles.has_value() == numbers.tiles.has_value());
        CHECK(unit.vectors.has_value() == !numbers.tiles.has_value());
    };
    support::for_each_isa([&](ht::isa set) {
        using namespace support;
        const ht::cpu device{{.threads = 1, .instruction_set = set}};
        const unit_numbers& floats = all_units[set == ht::isa::portable ? portable_fma
                                               : set == ht::isa::avx2   ? avx2_fma
                                                                        : avx512_fma];
        compare(ht::detail::unit_for<float>(device), floats.unit);
        CHECK((ht::detail::packing_of_a<float, float>(device).pack_k_major != ht::detail::no_function) ==
              floats.packs_k_major);
        const unit_numbers& pairs = set == ht::isa::amx           ? all_units[amx_bf16]
                                    : set == ht::isa::avx512_bf16 ? all_units[avx512_pairs]
                                                                  : floats;
        compare(ht::detail::unit_for<bfloat16>(device), pairs.unit);
    });
}

template <class Compute>
void bits_do_not_depend_on_the_cut() {
    constexpr extent rows = 64, k = 96;
    support::random data(7);
    const std::vector<float> a = data.normals<float>(rows * k);
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) continue;
        CAPTURE(std::string(ht::name(set)));
        const ht::cpu device{{.threads = 1, .instruction_set = set}};
        const ht::detail::product_unit unit = ht::detail::unit_for<Compute>(device);
        const ht::detail::product_packing<float> packing = ht::detail::packing_for<Compute, float>(device);
        const std::vector<float> b = data.normals<float>(k * unit.columns);
        aligned_bytes block(unit.block_bytes(rows)), panel(unit.panel_bytes(k));
        packing.pack_panel(b.data(), unit.columns, 1, k, unit.columns, panel.data());
        std::vector<float> whole(static_cast<std::size_t>(rows * unit.columns)), part(whole.size());
        const auto multiply = [&](extent first, extent count, std::vector<float>& c) {
            packing.pack_block(a.data() + first * k, k, 1, count, k, block.data());
            unit.begin_worker();
            unit.multiply(count, k, block.data(), panel.data(), c.data(), unit.columns, false, nullptr);
            unit.end_worker();
        };
        multiply(0, rows, whole);
        const auto is_of_whole = [&](extent first, extent count, extent columns) {
            for (extent i = 0; i < count; ++i) {
                if (std::memcmp(part.data() + i * unit.columns, whole.data() + (first + i) * unit.columns,
                                static_cast<std::size_t>(columns) * sizeof(float)) != 0)
                    return false;
            }
            return true;
        };
        if (unit.vectors) {
            unit.vectors->multiply_half_panel(rows, k, {block.data(), ht::detail::panel_stride}, panel.data(),
                                              part.data(), unit.columns, false, nullptr);
            CHECK(is_of_whole(0, rows, unit.columns / 2));
        }
        for (const extent count : {1, 3, 4, 6, 11, 12, 17, 32}) {
            for (const extent first : {0, 5, 32}) {
                multiply(first, count, part);
                CHECK(is_of_whole(first, count, unit.columns));
            }
        }
    }
}

TEST_CASE("a row's sums have the same bits in every block, and by half a panel") {
    SUBCASE("float") { bits_do_not_depend_on_the_cut<float>(); }
    SUBCASE("bfloat16") { bits_do_not_depend_on_the_cut<bfloat16>(); }
}

template <class Compute>
void random_sums_within_bounds() {
    constexpr extent rows = 37, k = 256;
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) continue;
        CAPTURE(std::string(ht::name(set)));
        const ht::cpu device{{.threads = 1, .instruction_set = set}};
        const ht::detail::product_unit unit = ht::detail::unit_for<Compute>(device);
        const ht::detail::product_packing<Compute> packing = ht::detail::packing_for<Compute, Compute>(device);
        support::random data(11);
        const std::vector<Compute> a = data.normals<Compute>(rows * k), b = data.normals<Compute>(k * unit.columns);
        aligned_bytes block(unit.block_bytes(rows)), panel(unit.panel_bytes(k));
        packing.pack_block(a.data(), k, 1, rows, k, block.data());
        packing.pack_panel(b.data(), unit.columns, 1, k, unit.columns, panel.data());
        std::vector<float> c(static_cast<std::size_t>(rounded_up(rows, unit.rows) * unit.columns));
        unit.begin_worker();
        unit.multiply(rows, unit.padded(k), block.data(), panel.data(), c.data(), unit.columns, false, nullptr);
        unit.end_worker();
        support::comparison sums;
        for (extent i = 0; i < rows; ++i) {
            for (extent j = 0; j < unit.columns; ++j) {
                double sum = 0, magnitudes = 0;
                for (extent p = 0; p < k; ++p) {
                    const double product =
                        static_cast<double>(static_cast<float>(a[static_cast<std::size_t>(i * k + p)])) *
                        static_cast<double>(static_cast<float>(b[static_cast<std::size_t>(p * unit.columns + j)]));
                    sum += product;
                    magnitudes += std::fabs(product);
                }
                // A product and a sum each round once at most for each k.
                sums.expect(static_cast<double>(c[static_cast<std::size_t>(i * unit.columns + j)]), sum,
                            support::gamma(k + 1) * magnitudes);
            }
        }
        CHECK_WITHIN(sums);
    }
}

TEST_CASE("sums of random products stay within k u of their magnitudes") {
    SUBCASE("float") { random_sums_within_bounds<float>(); }
    SUBCASE("bfloat16") { random_sums_within_bounds<bfloat16>(); }
    SUBCASE("float16") { random_sums_within_bounds<float16>(); }
}

}  // namespace kernel_product_tests
