// SPDX-License-Identifier: MIT
/// \file
/// Products of operands as sums of bfloat16, on tiles in plain memory and on tiles that VDPBF16PS multiplies: packing,
/// the bound that the tiles' additions give, numbers at both ends of float's range, infinities and NaNs.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "kernel/product/checks.hpp"
#include "kernel/product/pair_tiles.hpp"
#include "kernel/product/software_tiles.hpp"
#include "support/bounds.hpp"
#include "support/each_set.hpp"
#include "support/random.hpp"

namespace kernel_product_split_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using product_test::aligned_bytes, product_test::rounded_up;

template <int Pieces>
using pieces = ht::split<bfloat16, Pieces>;

/// The relative error of a sum of k products, given the numbers of additions for the first pieces and for the others.
template <int Pieces>
double error_of_pieces(double first, double later) {
    return pieces<Pieces>::first * support::gamma(first) + pieces<Pieces>::later * support::gamma(later) +
           pieces<Pieces>::dropped;
}
template <int Pieces>
double error_on_tiles(extent k) {
    const ht::detail::split_tile_additions n(k, Pieces);
    return error_of_pieces<Pieces>(static_cast<double>(n.first), static_cast<double>(n.later));
}

TEST_CASE("split products: on tiles the bound is less than that of fp32's multiply-adds, from four products on") {
    std::int64_t larger = 0;
    for (extent k = 4; k < 70000; ++k) {
        larger += error_on_tiles<3>(k) <= support::gamma(static_cast<double>(k + 1)) ? 0 : 1;
        larger += error_on_tiles<2>(k) <= support::gamma(static_cast<double>(k + 1)) ? 0 : 1;
    }
    CHECK(larger == 0);
    CHECK(error_on_tiles<3>(1) < 1.6 * support::gamma(2));
    CHECK(error_on_tiles<3>(4096) < 0.02 * support::gamma(4097));
    // It is never more than the contract allows.
    for (extent k = 1; k < 70000; ++k) {
        larger += error_on_tiles<3>(k) <= support::product_error<pieces<3>>(static_cast<double>(k)) ? 0 : 1;
        larger += error_on_tiles<2>(k) <= support::product_error<pieces<2>>(static_cast<double>(k)) ? 0 : 1;
    }
    CHECK(larger == 0);
}

#if defined(__x86_64__)

/// Calls test(unit, additions) for the available tiles; additions(k) is the number of additions in a sum of k products.
template <int Pieces, class Test>
void on_all_tiles(const Test& test) {
    if (!support::is_tested(ht::isa::avx512)) {  // what the packing needs
        MESSAGE("not tested here: ", std::string(ht::name(ht::isa::avx512)));
        return;
    }
    {
        CAPTURE("software tiles");
        test(support::software_tiles::split_unit<Pieces>(), [](extent k) { return error_on_tiles<Pieces>(k); });
    }
    if (!support::is_tested(ht::isa::avx512_bf16)) {
        MESSAGE("not tested here: ", std::string(ht::name(ht::isa::avx512_bf16)));
        return;
    }
    {
        CAPTURE("VDPBF16PS");  // adds one product after the other
        test(support::pair_tiles::split_unit<Pieces>(),
             [](extent k) { return support::product_error<pieces<Pieces>>(static_cast<double>(k)); });
    }
    if (!support::is_tested(ht::isa::amx)) {
        MESSAGE("not tested here: ", std::string(ht::name(ht::isa::amx)));
        return;
    }
    {
        CAPTURE("TDPBF16PS");
        const ht::cpu device{{.threads = 1, .instruction_set = ht::isa::amx}};
        test(ht::detail::matmul_unit_for<pieces<Pieces>>(device), [](extent k) { return error_on_tiles<Pieces>(k); });
    }
}

template <int Pieces, class T, class Compute = pieces<Pieces>>
ht::detail::product_packing<T> packing() {
    return {.a = {.pack = &ht::avx512::pack_a_split<Compute, Pieces, T>}, .b = {.pack = &ht::avx512::pack_b_split<Compute, Pieces, T>}};
}

template <int Pieces>
void exact_on_integers() {
    on_all_tiles<Pieces>([](const ht::detail::product_unit& unit, const auto&) {
        product_test::multiply_all<float>(unit, packing<Pieces, float>());
        product_test::multiply_all<bfloat16>(unit, packing<Pieces, bfloat16>());
        product_test::multiply_all<float16>(unit, packing<Pieces, float16>());
    });
}
TEST_CASE("split products: exact on small integers") {
    SUBCASE("two") { exact_on_integers<2>(); }
    SUBCASE("three") { exact_on_integers<3>(); }
}

/// c = ab, a (rows, k) and b (k, 32) by rows.
template <int Pieces, class T, class Compute = pieces<Pieces>>
std::vector<float> product(const ht::detail::product_unit& unit, const std::vector<T>& a, const std::vector<T>& b, extent rows,
                           extent k, const std::vector<float>* before = nullptr) {
    const ht::detail::product_packing<T> pack = packing<Pieces, T, Compute>();
    aligned_bytes block(unit.block_bytes(rows)), panel(unit.panel_bytes(k));
    // Missing rows contain arbitrary memory.
    std::memset(block.data(), 0xff, unit.block_bytes(rows));
    pack.pack_block(a.data(), k, 1, rows, k, block.data());
    pack.pack_panel(b.data(), 32, 1, k, 32, panel.data());
    std::vector<float> c(static_cast<std::size_t>(rounded_up(rows, unit.rows) * 32));
    if (before != nullptr) c = *before;
    unit.begin_worker();
    unit.multiply(rows, unit.padded(k), block.data(), panel.data(), c.data(), 32, before != nullptr, nullptr);
    unit.end_worker();
    return c;
}

std::vector<float> special_values() {
    std::vector<float> values = {0,
                                 1.0f / 3,
                                 -2.0f / 3,
                                 3.14159274f,
                                 0x1.fffffep5f,
                                 0x1.00fffep0f,
                                 0x1.018p0f,
                                 0x1.01fffep0f,
                                 1 + 0x1p-8f,
                                 1 - 0x1p-24f,
                                 0x1.fffffep127f,
                                 -0x1.ffp127f,
                                 0x1.fefffep127f,
                                 0x1.234566p-100f,
                                 0x1.fffffep-103f};
    support::random data(5);
    for (int i = 0; i < 200; ++i)
        values.push_back(static_cast<float>(data.normal() * std::ldexp(1.0, data.below(200) - 100)));
    return values;
}

/// Sends values through a's packing (times 1) and through b's.
template <int Pieces, class Compute = pieces<Pieces>>
void packing_rounds() {
    on_all_tiles<Pieces>([](const ht::detail::product_unit& unit, const auto&) {
        std::int64_t wrong = 0;
        for (const float value : special_values()) {
            std::vector<float> ones(32, 1.0f), values(32, value);
            const float want = static_cast<float>(Compute(value));
            wrong += product<Pieces, float, Compute>(unit, {value}, ones, 1, 1)[7] == want ? 0 : 1;
            wrong += product<Pieces, float, Compute>(unit, {1.0f}, values, 1, 1)[7] == want ? 0 : 1;
        }
        CHECK(wrong == 0);
    });
}
TEST_CASE("split products: a product with one is the number, or its two-piece approximation") {
    SUBCASE("three") { packing_rounds<3>(); }
    SUBCASE("two") { packing_rounds<2>(); }
    SUBCASE("two, of float16") { packing_rounds<2, float16>(); }
}

struct sum_of_products {
    double sum = 0, magnitudes = 0, operands = 0;
};
template <class Compute, class T>
sum_of_products exact_sum(const std::vector<T>& a, const std::vector<T>& b, extent row, extent column, extent k) {
    sum_of_products s;
    for (extent p = 0; p < k; ++p) {
        const Compute x(static_cast<float>(a[static_cast<std::size_t>(row * k + p)])),
            y(static_cast<float>(b[static_cast<std::size_t>(p * 32 + column)]));
        const double product = static_cast<double>(static_cast<float>(x)) * static_cast<double>(static_cast<float>(y));
        s.sum += product;
        s.magnitudes += std::fabs(product);
        s.operands += std::fabs(static_cast<double>(static_cast<float>(x))) +
                      std::fabs(static_cast<double>(static_cast<float>(y)));
    }
    return s;
}

template <int Pieces, class T, class Compute = pieces<Pieces>>
void random_sums() {
    on_all_tiles<Pieces>([](const ht::detail::product_unit& unit, const auto& error) {
        for (const extent k : {1, 2, 3, 4, 5, 8, 31, 33, 100, 128, 129, 256}) {
            CAPTURE(k);
            constexpr extent rows = 37;
            support::random data(static_cast<std::uint64_t>(k));
            const std::vector<T> a = data.normals<T>(rows * k), b = data.normals<T>(k * 32);
            const std::vector<float> before = data.normals<float>(64 * 32);
            const std::vector<float> c = product<Pieces, T, Compute>(unit, a, b, rows, k),
                                     more = product<Pieces, T, Compute>(unit, a, b, rows, k, &before);
            support::comparison sums, added;
            for (extent i = 0; i < rows; ++i) {
                for (extent j = 0; j < 32; ++j) {
                    const sum_of_products want = exact_sum<Compute>(a, b, i, j, k);
                    const auto at = static_cast<std::size_t>(i * 32 + j);
                    const double bound =
                        error(k) * want.magnitudes + support::flushed_error(static_cast<double>(k), want.operands);
                    sums.expect(static_cast<double>(c[at]), want.sum, bound);
                    const double first = static_cast<double>(before[at]);
                    // Each of at most 2 parts of k is added to the previous value.
                    added.expect(static_cast<double>(more[at]), first + want.sum,
                                 bound + support::gamma(2) * (std::fabs(first) + 1.01 * want.magnitudes));
                }
            }
            CHECK_WITHIN(sums);
            CHECK_WITHIN(added);
        }
    });
}
TEST_CASE("split products: random sums within the bound of their additions") {
    SUBCASE("floats in three") { random_sums<3, float>(); }
    SUBCASE("floats in two") { random_sums<2, float>(); }
    SUBCASE("float16 in two") { random_sums<2, float16, float16>(); }
    SUBCASE("bfloat16 in two") { random_sums<2, bfloat16>(); }
}

/// Operands of every size, and products that are subnormal numbers or next to them.
template <int Pieces>
void small_and_large() {
    on_all_tiles<Pieces>([](const ht::detail::product_unit& unit, const auto& error) {
        struct range {
            int a, b;  // exponents of the largest
        };
        for (const range& r : {range{-126, 0}, range{-100, 3}, range{0, -118}, range{-60, -64}, range{-140, 100},
                               range{120, -3}, range{127, -40}, range{-90, 127}}) {
            CAPTURE(r.a);
            CAPTURE(r.b);
            constexpr extent rows = 32, k = 40;
            support::random data(static_cast<std::uint64_t>(r.a + 200));
            const auto numbers = [&](extent count, int exponent) {
                std::vector<float> values(static_cast<std::size_t>(count));
                for (float& v : values)
                    v = static_cast<float>(std::ldexp(data.uniform(-1, 1), exponent - data.below(8)));
                return values;
            };
            const std::vector<float> a = numbers(rows * k, r.a), b = numbers(k * 32, r.b);
            const std::vector<float> c = product<Pieces, float>(unit, a, b, rows, k);
            support::comparison sums;
            for (extent i = 0; i < rows; ++i) {
                for (extent j = 0; j < 32; ++j) {
                    const sum_of_products want = exact_sum<pieces<Pieces>>(a, b, i, j, k);
                    sums.expect(
                        static_cast<double>(c[static_cast<std::size_t>(i * 32 + j)]), want.sum,
                        error(k) * want.magnitudes + support::flushed_error(static_cast<double>(k), want.operands));
                }
            }
            CHECK_MESSAGE(sums.within(), sums);
        }
    });
}
TEST_CASE("split products: both ends of the range") {
    SUBCASE("three") { small_and_large<3>(); }
    SUBCASE("two") { small_and_large<2>(); }
}

/// The result of a chain of float multiply-adds.
std::vector<float> product_of_floats(const std::vector<float>& a, const std::vector<float>& b, extent rows, extent k,
                                     const std::vector<float>& before) {
    std::vector<float> c = before;
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < 32; ++j) {
            float& sum = c[static_cast<std::size_t>(i * 32 + j)];
            for (extent p = 0; p < k; ++p)
                sum = std::fma(a[static_cast<std::size_t>(i * k + p)], b[static_cast<std::size_t>(p * 32 + j)], sum);
        }
    }
    return c;
}
bool same_number(float x, float y) { return std::isnan(x) ? std::isnan(y) : x == y; }

TEST_CASE("split products: infinities, NaNs and overflows are those of multiply-adds of floats") {
    constexpr float inf = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
    struct special {
        float value;
        bool in_a;
        extent row, p;
    };
    // 1 has no later pieces, and 1/3 has negative ones.
    const std::vector<std::vector<special>> cases = {
        {{inf, true, 3, 0}},
        {{-inf, true, 31, 129}},
        {{inf, false, 5, 7}},
        {{std::nanf(""), true, 0, 50}, {std::nanf(""), false, 31, 130}},
        {{inf, true, 3, 0}, {-inf, true, 3, 1}},
        {{inf, true, 3, 0}, {0.0f, false, 4, 0}},
        {{largest, true, 8, 2}, {largest, false, 9, 2}},
        {{largest, true, 8, 2}, {largest, true, 8, 3}, {2.0f, false, 1, 2}, {2.0f, false, 1, 3}},
        {{inf, true, 2, 100}, {inf, false, 6, 100}, {-largest, false, 7, 100}}};
    on_all_tiles<3>([&](const ht::detail::product_unit& unit, const auto&) {
        constexpr extent rows = 33, k = 140;
        support::random data(3);
        for (const float operand : {1.0f, 1.0f / 3, -1.0f / 3, 0x1.01fp0f}) {
            CAPTURE(operand);
            for (std::size_t which = 0; which < cases.size(); ++which) {
                CAPTURE(which);
                std::vector<float> a(rows * k, operand), b(k * 32, operand);
                const std::vector<float> before = data.normals<float>(64 * 32);
                const std::vector<float> usual = product<3, float>(unit, a, b, rows, k, &before);
                for (const special& s : cases[which])
                    (s.in_a ? a[static_cast<std::size_t>(s.row * k + s.p)]
                            : b[static_cast<std::size_t>(s.p * 32 + s.row)]) = s.value;
                const std::vector<float> c = product<3, float>(unit, a, b, rows, k, &before),
                                         want = product_of_floats(a, b, rows, k, before);
                std::int64_t wrong = 0, endless = 0, disturbed = 0;
                for (extent i = 0; i < rows; ++i) {
                    for (extent j = 0; j < 32; ++j) {
                        const auto at = static_cast<std::size_t>(i * 32 + j);
                        if (!std::isfinite(want[at])) {
                            ++endless;
                            wrong += same_number(c[at], want[at]) ? 0 : 1;
                        } else {
                            wrong += std::isfinite(c[at]) ? 0 : 1;
                        }
                        bool untouched = true;
                        for (const special& s : cases[which])
                            untouched = untouched && (s.in_a ? s.row != i : s.row != j);
                        disturbed += untouched && c[at] != usual[at] ? 1 : 0;
                    }
                }
                CHECK(endless > 0);
                CHECK(wrong == 0);
                CHECK(disturbed == 0);
            }
        }
    });
}

TEST_CASE("split products: a sum that overflows temporarily is recomputed by multiply-adds of floats") {
    on_all_tiles<3>([&](const ht::detail::product_unit& unit, const auto&) {
        constexpr float largest = std::numeric_limits<float>::max();
        // The product of the first pieces exceeds the largest float, that of the numbers does not.
        const float x = 0x1.fefffep63f, y = 0x1.ffp63f;
        const std::vector<float> row(32, y), before(32 * 32, 0.0f);
        CHECK(product<3, float>(unit, {x}, row, 1, 1)[0] == x * y);
        // Added to the previous values.
        const std::vector<float> low(32 * 32, -largest);
        std::vector<float> two(64, 0x1p100f);
        CHECK(product<3, float>(unit, {0x1.8p27f, 0x1.8p27f}, two, 1, 2, &low)[3] ==
              std::fma(0x1.8p27f, 0x1p100f, std::fma(0x1.8p27f, 0x1p100f, -largest)));
    });
}

template <int Pieces>
void bits_do_not_depend_on_the_cut() {
    on_all_tiles<Pieces>([](const ht::detail::product_unit& unit, const auto&) {
        constexpr extent rows = 96, k = 200;
        support::random data(7);
        std::vector<float> a = data.normals<float>(rows * k), b = data.normals<float>(k * 32);
        a[40 * k + 3] = HUGE_VALF;
        const std::vector<float> whole = product<Pieces, float>(unit, a, b, rows, k);
        for (const extent count : {1, 3, 12, 17, 32, 33}) {
            for (const extent first : {0, 5, 32, 38}) {
                const std::vector<float> part = product<Pieces, float>(
                    unit, std::vector<float>(a.begin() + first * k, a.begin() + (first + count) * k), b, count, k);
                CHECK(std::memcmp(part.data(), whole.data() + first * 32,
                                  static_cast<std::size_t>(count * 32) * sizeof(float)) == 0);
            }
        }
    });
}
TEST_CASE("split products: a row's sums have the same bits in every block") {
    SUBCASE("two") { bits_do_not_depend_on_the_cut<2>(); }
    SUBCASE("three") { bits_do_not_depend_on_the_cut<3>(); }
}

#endif

}  // namespace kernel_product_split_tests
