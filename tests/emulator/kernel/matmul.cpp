// SPDX-License-Identifier: MIT
/// \file
/// The matrix product's GPU kernels on the emulated GPU.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/matmul/checks.hpp"

namespace emulator_kernel_matmul_tests {

using namespace matmul_test;
namespace emulator = ht::emulator;
namespace simt = ht::simt;
using namespace ht::kernel::on_device;

template <class P, class A, class B, class C>
void multiply_all() {
    emulator::device device;
    for (const sizes& s :
         {sizes{1, 1, 1}, sizes{33, 65, 37}, sizes{100, 72, 200}, sizes{130, 129, 97}, sizes{64, 256, 64}}) {
        const std::vector<double> want = exact_product(s);
        const bool is_large = s.rows * s.columns * s.depth > 100000;
        for (std::size_t a = 0; a < 4; ++a) {
            for (std::size_t b = 0; b < 4; ++b) {
                CAPTURE(a);
                CAPTURE(b);
                if (is_large && (a + b) % 4 != 1) continue;
                const layout of_a = aligned(layouts[a], s.rows, s.depth),
                             of_b = aligned(layouts[b], s.depth, s.columns);
                multiply_exactly<P, A, B, C>(device, s, want, layouts[a], layouts[b], layouts[a < 2 ? 0 : 2]);
                multiply_exactly<P, A, B, C>(device, s, want, of_a, of_b,
                                             aligned(layouts[a < 2 ? 0 : 2], s.rows, s.columns));
                if (!is_large) multiply_exactly<P, A, B, C>(device, s, want, of_a, layouts[b], layouts[0]);
            }
        }
    }
    CHECK(device.count().bank_conflicts == 0);
}

TEST_CASE("matmul on a GPU: exact on small integers") {
    SUBCASE("fp32") { multiply_all<ht::full_fp32, float, float, float>(); }
    SUBCASE("bf16") { multiply_all<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(); }
    SUBCASE("fp16, into fp32") { multiply_all<ht::amp_fp16, float16, float16, float>(); }
    SUBCASE("tf32") { multiply_all<ht::tf32, float, float, float>(); }
    SUBCASE("split products") { multiply_all<ht::split_fp32, float, bfloat16, float>(); }
    SUBCASE("bf16 and fp32 operands") { multiply_all<ht::amp_bf16, bfloat16, float, float>(); }
}

TEST_CASE("matmul on a GPU: large tiles if there are enough of them") {
    const sizes s{12200, 9, 97};
    const std::vector<double> want = exact_product(s);
    emulator::device device{{.check = emulator::checking::values_only}};
    multiply_exactly<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device, s, want, aligned(layouts[1], s.rows, s.depth),
                                                                 aligned(layouts[0], s.depth, s.columns), layouts[0]);
    multiply_exactly<ht::tf32, float, float, float>(device, s, want, aligned(layouts[0], s.rows, s.depth),
                                                    aligned(layouts[1], s.depth, s.columns), layouts[0]);
    multiply_exactly<ht::full_fp32, float, float, float>(device, s, want, layouts[0], layouts[0], layouts[0]);
}

// ---- unaligned operands, which are copied first if that is faster

static_assert(pays_to_align(simt::architecture_of(90), 8192, 50257, 768, extent{50257} * 768));
static_assert(pays_to_align(simt::architecture_of(90), 4096, 4096, 4095, 2 * extent{4096} * 4095));
static_assert(!pays_to_align(simt::architecture_of(90), 16, 50257, 768, extent{50257} * 768));
static_assert(!pays_to_align(simt::architecture_of(90), 512, 512, 768, extent{512} * 768));

TEST_CASE("matmul on a GPU: unaligned operands have the bits of aligned ones, and are copied if that is faster") {
    simt::architecture small = simt::architecture_of(80);
    small.multiprocessors = 1;
    emulator::device device{{}, small};
    const sizes s{517, 33, 520};
    REQUIRE(pays_to_align(small, s.rows, s.columns, s.depth, (s.rows + s.columns) * s.depth));
    unaligned_as_aligned<ht::amp_bf16, bfloat16>(device, s);
    CHECK(device.launches() == 4 * (1 + 3 + 2));
    unaligned_as_aligned<ht::tf32, float>(device, s);
}

// ---- tiles and parts of k

constexpr bool cuts(int version, extent m, extent n, extent k, matmul_tile tile, int parts,
                    tile_range tiles = mma_sync_tiles) {
    const matmul_cut cut = cut_matmul(simt::architecture_of(version), m, n, k, tiles);
    return cut.tile == tile && cut.parts == parts;
}
static_assert(cuts(90, 8192, 8192, 8192, matmul_tile::large, 1) && cuts(80, 1, 1, 1, matmul_tile::small, 1));
static_assert(cuts(90, 768, 768, 768, matmul_tile::small, 1));
// Gradients of GPT-2's weights over 8,192 tokens: 36, 108 and 144 large tiles for an H100's 132 multiprocessors.
static_assert(cuts(90, 768, 768, 8192, matmul_tile::large, 7) && cuts(80, 768, 768, 8192, matmul_tile::large, 6));
static_assert(cuts(90, 2304, 768, 8192, matmul_tile::large, 2) && cuts(90, 3072, 768, 8192, matmul_tile::large, 3));
static_assert(cuts(90, 768, 768, 8192, matmul_tile::small, 4, small_tiles));
static_assert(cuts(90, extent{1} << 31, extent{1} << 31, 1 << 20, matmul_tile::large, 1));
static_assert(cuts(90, 64, 4096, 4096, matmul_tile::small, 4) &&
              cuts(90, 1, 64, 1 << 20, matmul_tile::small, most_matmul_parts));
static_assert(matmul_row_of(88).version == 86 && matmul_row_of(103).version == 100 && matmul_row_of(75).version == 80);

template <class P, class A, class B>
void multiply_in_parts() {
    // Four parts, the last one shorter than the others, and of odd length.
    const sizes s{40, 1089, 24};
    const std::vector<double> want = exact_product(s);
    for (std::size_t a = 0; a < 4; ++a) {
        const std::size_t b = a ^ 1;
        CAPTURE(a);
        emulator::device device;
        multiply_exactly<P, A, B, float>(device, s, want, layouts[a], layouts[b], layouts[2]);
        multiply_exactly<P, A, B, float>(device, s, want, aligned(layouts[a], s.rows, s.depth),
                                         aligned(layouts[b], s.depth, s.columns), layouts[0]);
        CHECK(device.launches() == 4);
    }
}

TEST_CASE("matmul on a GPU: parts of k") {
    SUBCASE("fp32") { multiply_in_parts<ht::full_fp32, float, float>(); }
    SUBCASE("bf16") { multiply_in_parts<ht::amp_bf16, bfloat16, bfloat16>(); }
    SUBCASE("tf32") { multiply_in_parts<ht::tf32, float, float>(); }
}

TEST_CASE("matmul on a GPU: parts of k, added to the result; the same bits in any schedule") {
    const sizes s{9, 2100, 21};
    const operand<bfloat16> a(s.rows, s.depth, layouts[1], normals(1)), b(s.depth, s.columns, layouts[0], normals(2));
    const operand<float> before(s.rows, s.columns, layouts[2], normals(3)),
        first(s.rows, s.columns, layouts[2], normals(3)), other(s.rows, s.columns, layouts[2], normals(3));
    emulator::device one{{.seed = 1}}, two{{.seed = 1000, .resident_blocks = 1}};
    ht::matmul<ht::amp_bf16>(one, a.view, b.view, first.view, ht::add_product{});
    ht::matmul<ht::amp_bf16>(two, a.view, b.view, other.view, ht::add_product{});
    CHECK(first.memory.same_bits(other.memory));
    support::comparison all;
    ht::reference::matmul<bfloat16>(a.view, b.view, [&](double sum, extent i, extent j) {
        double magnitude = std::fabs(number(before.view(i, j)));
        for (extent p = 0; p < s.depth; ++p) magnitude += std::fabs(number(a.view(i, p)) * number(b.view(p, j)));
        // A product's rounding, the additions within its part, those of the parts, and that of c: at most as many as without
        // parts.
        all.expect(number(first.view(i, j)), sum + number(before.view(i, j)),
                   support::gamma(static_cast<double>(s.depth) + 2) * magnitude);
    });
    CHECK_WITHIN(all);
}

TEST_CASE("matmul on a GPU: a sum over nothing, empty results, a batch") {
    emulator::device device;
    nothing_to_sum(device);
    each_matrix_of_a_batch(device);
    infinities_and_nans(device);
    CHECK_THROWS_WITH_AS(
        ht::matmul<ht::full_fp32>(device, ht::view<float, 2>(nullptr, {0x7fffffff, 0}),
                                  ht::view<float, 2>(nullptr, {0, 1}), ht::view<float, 2>(nullptr, {0x7fffffff, 1})),
        "matmul: an operand of (2147483647, 0) has an extent above 1073741823", ht::argument_error);
}

TEST_CASE("matmul on a GPU: memory that the host cannot read") {
    emulator::device device;
    const sizes s{20, 48, 24};
    const std::vector<double> want = exact_product(s);
    std::vector<bfloat16> a, b, c(static_cast<std::size_t>(s.rows * s.columns));
    for (extent i = 0; i < s.rows * s.depth; ++i) a.emplace_back(small_integers{1}(i / s.depth, i % s.depth));
    for (extent i = 0; i < s.depth * s.columns; ++i) b.emplace_back(small_integers{2}(i / s.columns, i % s.columns));
    const ht::tensor<bfloat16, 2> x(device.memory(), {s.rows, s.depth}), y(device.memory(), {s.depth, s.columns});
    const ht::tensor<bfloat16, 2> z(device.memory(), {s.rows, s.columns});
    device.memory().write(x.data(), a.data(), a.size() * 2);
    device.memory().write(y.data(), b.data(), b.size() * 2);
    ht::matmul<ht::amp_bf16>(device, x, y, z);
    device.memory().read(c.data(), z.data(), c.size() * 2);
    for (std::size_t i = 0; i < c.size(); ++i) CHECK(number(c[i]) == number(bfloat16(static_cast<float>(want[i]))));
}

template <class P, class A, class B, class C>
void random_within_bounds(const sizes& s) {
    const auto with = [&](const emulator::options& how, int version, double roundoff) {
        emulator::device device(how, simt::architecture_of(version));
        const auto run = [&](const auto& test) { test(device); };
        within_bounds<P, A, B, C>(s, layouts[2], layouts[3], run, roundoff);
        within_bounds<P, A, B, C>(s, aligned(layouts[1], s.rows, s.depth), aligned(layouts[0], s.depth, s.columns), run,
                                  roundoff);
    };
    with({}, 80, support::u);
    if constexpr (has_matrix_unit<typename P::compute>) {
        for (const int version : {80, 90})
            with({.check = emulator::checking::values_only, .mma = emulator::accumulation::truncating}, version,
                 matrix_unit_roundoff);
    }
}

TEST_CASE("matmul on a GPU: random products within k u of their magnitudes") {
    SUBCASE("fp32") { random_within_bounds<ht::full_fp32, float, float, float>({31, 700, 65}); }
    SUBCASE("bf16") { random_within_bounds<ht::amp_bf16, bfloat16, bfloat16, bfloat16>({31, 700, 65}); }
    SUBCASE("bf16 into fp32") { random_within_bounds<ht::amp_bf16, bfloat16, bfloat16, float>({17, 300, 33}); }
    SUBCASE("tf32") { random_within_bounds<ht::tf32, float, float, float>({31, 700, 65}); }
    SUBCASE("tf32 of bf16 and fp32") { random_within_bounds<ht::tf32, bfloat16, float, bfloat16>({17, 300, 33}); }
    SUBCASE("fp32 operands rounded to fp16") {
        random_within_bounds<ht::amp_fp16, float, float, float16>({17, 300, 33});
    }
    SUBCASE("fp16 operands rounded to bf16") {
        random_within_bounds<ht::amp_bf16, float16, bfloat16, float>({17, 300, 33});
    }
}

// The largest error of a matrix unit: with a sum of 1, seven of eight products are truncated just below the last bit, and
// one product loses its last bit but one. A unit roundoff of 2^-24 does not cover that.
TEST_CASE("matmul on a GPU: sums that matrix units truncate are within the stated bound") {
    const sizes s{1, 500, 1};  // one part
    const operand<bfloat16> a(1, s.depth, layouts[0], [](extent, extent k) { return k == 0 ? 1.0f : 0x1p-12f; });
    const operand<bfloat16> b(s.depth, 1, layouts[1], [](extent k, extent) {
        return k == 0 ? 1.0f : (1 - 0x1p-8f) * (k % 8 == 7 ? 0x1p-11f : 0x1p-12f);
    });
    const operand<float> c(1, 1, layouts[0]);
    double sum = 0;
    for (extent k = 0; k < s.depth; ++k) sum += number(a.view(0, k)) * number(b.view(k, 0));
    const auto error_on = [&](emulator::accumulation how, int version) {
        emulator::device device({.mma = how}, simt::architecture_of(version));
        ht::matmul<ht::amp_bf16>(device, a.view, b.view, c.view);
        return std::fabs(number(c.view(0, 0)) - sum) / sum;
    };
    const double said = support::gamma(static_cast<double>(s.depth) + 1, matrix_unit_roundoff);
    const double ampere = error_on(emulator::accumulation::truncating, 80);
    CHECK(ampere <= said);
    CHECK(ampere > support::gamma(static_cast<double>(s.depth) + 1));
    CHECK(error_on(emulator::accumulation::truncating, 90) < ampere);
    CHECK(error_on(emulator::accumulation::nearest, 80) < ampere);
}

/// Whether one kernel is exact on small integers.
template <class Kernel, class A, class B>
bool multiplies(emulator::device& device, const sizes& s, const layout& a_layout, const layout& b_layout) {
    const std::vector<double> want = exact_product(s);
    const operand<A> a(s.rows, s.depth, aligned(a_layout, s.rows, s.depth), small_integers{1});
    const operand<B> b(s.depth, s.columns, aligned(b_layout, s.depth, s.columns), small_integers{2});
    const operand<float> c(s.rows, s.columns, layouts[0]);
    const auto epilogue = ht::epilogue_of(ht::plain{}, c.view);
    device.launch(Kernel{make_operand(a.view), make_operand(ht::transpose(b.view)), epilogue, access_to(epilogue)});
    return holds(c, s, want);
}

using no_operands = ht::pack<>;
using float_result = ht::pack<ht::detail::matmul_result<ht::symbolic::argument<0>, float>>;
template <class Tiling, panel_load Passage = panel_load::direct, class A = bfloat16, class B = A>
using bf16_kernel = matrix_unit_kernel<bfloat16, Tiling, Passage, A, B, no_operands, float_result>;
template <class Tiling, panel_load Passage = panel_load::direct, class A = float, class B = A>
using tf32_kernel = matrix_unit_kernel<ht::tfloat32, Tiling, Passage, A, B, no_operands, float_result>;
using small_tiling = matrix_unit_tiling<64, 64, 32, 2, 2, 4>;
using large_tiling = matrix_unit_tiling<128, 128, 32, 2, 2, 3>;
using converting_tiling = matrix_unit_tiling<64, 64, 32, 2, 2, 2>;

// With these depths the last panel is in the first slot, where the epilogue's staging begins.
TEST_CASE("matmul on a GPU: small tiles with damage") {
    emulator::check_kernels([](emulator::device& d) {
        return multiplies<bf16_kernel<small_tiling>, bfloat16, bfloat16>(d, {70, 5 * 32, 40}, layouts[0], layouts[0]);
    });
}
TEST_CASE("matmul on a GPU: large tiles with damage") {
    emulator::check_kernels([](emulator::device& d) {
        return multiplies<bf16_kernel<large_tiling>, bfloat16, bfloat16>(d, {90, 4 * 32, 128}, layouts[1], layouts[1]);
    });
}
TEST_CASE("matmul on a GPU: operands through registers with damage") {
    using kernel = bf16_kernel<converting_tiling, panel_load::through_registers, bfloat16, float>;
    emulator::check_kernels([](emulator::device& d) {
        return multiplies<kernel, bfloat16, float>(d, {40, 5 * 32, 70}, layouts[3], layouts[2]);
    });
}
TEST_CASE("matmul on a GPU: parts of k with damage") {
    emulator::check_kernels([](emulator::device& d) {
        const sizes s{20, 5 * 32, 40};
        const operand<bfloat16> a(s.rows, s.depth, layouts[0], small_integers{1}),
            b(s.depth, s.columns, layouts[0], small_integers{2});
        const operand<float> c(s.rows, s.columns, layouts[0]);
        const auto epilogue = ht::epilogue_of(ht::plain{}, c.view);
        multiply<
            by_matrix_units<bfloat16, matrix_unit_tiling<64, 64, 32, 2, 2, 2>, panel_load::direct, bfloat16, bfloat16>>(
            d, make_operand(a.view), make_operand(ht::transpose(b.view)), epilogue, access_to(epilogue), 2);
        return holds(c, s, exact_product(s));
    });
}
TEST_CASE("matmul on a GPU: tf32 with damage") {
    using small = tf32_kernel<matrix_unit_tiling<64, 64, 16, 2, 2, 4>>;
    emulator::check_kernels([](emulator::device& d) {
        return multiplies<small, float, float>(d, {70, 5 * 16, 40}, layouts[0], layouts[0]);
    });
    using large = tf32_kernel<matrix_unit_tiling<128, 128, 16, 2, 2, 3>>;
    emulator::check_kernels([](emulator::device& d) {
        return multiplies<large, float, float>(d, {40, 4 * 16, 130}, layouts[1], layouts[1]);
    });
}
TEST_CASE("matmul on a GPU: multiply-adds with damage") {
    using kernel = multiply_add_kernel<float, multiply_add_tiling<64, 64>, float, float, no_operands, float_result>;
    emulator::check_kernels([](emulator::device& d) {
        return multiplies<kernel, float, float>(d, {50, 70, 40}, layouts[0], layouts[1]);
    });
}

TEST_CASE("matmul on a GPU: every tiling, every pair of layouts") {
    emulator::device device;
    for (std::size_t a = 0; a < 2; ++a) {
        for (std::size_t b = 0; b < 2; ++b) {
            CAPTURE(a);
            CAPTURE(b);
            CHECK(multiplies<bf16_kernel<large_tiling>, bfloat16, bfloat16>(device, {200, 70, 130}, layouts[a],
                                                                            layouts[b]));
            CHECK(multiplies<tf32_kernel<matrix_unit_tiling<128, 128, 16, 2, 2, 3>>, float, float>(
                device, {200, 70, 130}, layouts[a], layouts[b]));
            CHECK(multiplies<
                  multiply_add_kernel<float, multiply_add_tiling<128, 128>, float, float, no_operands, float_result>,
                  float, float>(device, {140, 30, 130}, layouts[a], layouts[b]));
            CHECK(multiplies<bf16_kernel<matrix_unit_tiling<128, 64, 64, 4, 1, 2>>, bfloat16, bfloat16>(
                device, {70, 200, 70}, layouts[a], layouts[b]));
        }
    }
    CHECK(device.count().bank_conflicts == 0);
}

// The machine counts bank conflicts of ldmatrix. Floats whose outer axis is contiguous are loaded lane by lane instead.
TEST_CASE("matmul on a GPU: the 32 lanes' floats of a fragment are in 32 banks") {
    struct lane_only {
        int number;
        int lane() const { return number; }
    };
    using panel = matrix_panel<float, 64, 16, along::outer>;
    for (int first = 0; first < 64; first += 16) {
        unsigned banks = 0;
        for (int l = 0; l < 32; ++l)
            banks |= 1u << panel::place_of_lane<operand_of_mma::a>(lane_only{l}, first) / 4 % 32;
        CHECK(banks == 0xffffffffu);
    }
}

// Deliberate bugs: the tests above would find each of them.

/// Bug: without a swizzle all rows of a column of chunks are in the same banks.
struct without_swizzle : small_tiling {
    template <class T, int Outer, along Axis>
    using panel = matrix_panel<T, Outer, depth, Axis, simt::swizzle::none>;
};
/// Bug: a panel is fetched into the slot that is read next.
struct too_far_ahead : small_tiling {
    static constexpr int ahead = stages + 1;
};
/// Bug: panels are written with one swizzle and read with another.
struct mixed_swizzles : small_tiling {
    template <class T, int Outer, along Axis>
    struct panel : matrix_panel<T, Outer, depth, Axis> {
        HALFTONE_HD static word place(int line, int column) {
            return matrix_panel<T, Outer, depth, Axis, simt::swizzle::b32>::place(line, column);
        }
    };
};

/// The first row of a product with this number of rows.
template <class P, class T>
std::vector<float> first_row(const simt::architecture& gpu, extent rows) {
    const sizes s{rows, 2100, 24};
    const operand<T> a(s.rows, s.depth, layouts[0], normals(1)), b(s.depth, s.columns, layouts[0], normals(2));
    const operand<float> c(s.rows, s.columns, layouts[0]);
    emulator::device device{{}, gpu};
    ht::matmul<P>(device, a.view, b.view, c.view);
    return {c.view.data(), c.view.data() + s.columns};
}

TEST_CASE("matmul on a GPU: if batch-invariance is requested, a row's bits do not depend on the number of rows") {
    simt::architecture gpu = simt::architecture_of(80);
    gpu.multiprocessors = 2;  // so that k is cut into parts for few rows, and not for many
    CHECK(first_row<ht::amp_bf16, bfloat16>(gpu, 1) != first_row<ht::amp_bf16, bfloat16>(gpu, 100));
    gpu.batch_invariant = true;
    CHECK(first_row<ht::amp_bf16, bfloat16>(gpu, 1) == first_row<ht::amp_bf16, bfloat16>(gpu, 100));
    CHECK(first_row<ht::full_fp32, float>(gpu, 1) == first_row<ht::full_fp32, float>(gpu, 100));
}

TEST_CASE("matmul on a GPU: deliberate bugs are found") {
    const sizes s{70, 7 * 32, 40};
    for (const layout& l : {layouts[0], layouts[1]}) {
        emulator::device device;
        CHECK(multiplies<bf16_kernel<without_swizzle>, bfloat16, bfloat16>(device, s, l, l));
        CHECK(device.count().bank_conflicts > 0);
        const auto is_found = [&](auto kernel) {
            try {
                return !multiplies<decltype(kernel), bfloat16, bfloat16>(device, s, l, l);
            } catch (const emulator::failure&) {
                return true;
            }
        };
        CHECK(is_found(bf16_kernel<too_far_ahead>{}));
        CHECK(is_found(bf16_kernel<mixed_swizzles>{}));
        device.how().check = emulator::checking::values_only;
        CHECK(is_found(bf16_kernel<mixed_swizzles>{}));
    }
}

}  // namespace emulator_kernel_matmul_tests
