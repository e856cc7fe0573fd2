// SPDX-License-Identifier: MIT
/// \file
/// Products of eight-bit numbers on the emulated GPU's matrix units, and these units themselves: fragments, and
/// truncated sums.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/matmul/checks.hpp"

namespace emulator_kernel_matmul_bytes_tests {

using namespace matmul_test;
namespace emulator = ht::emulator;
namespace simt = ht::simt;
using namespace ht::kernel::on_device;
using emulator::accumulation;
using ht::float8_e4m3;
using ht::float8_e5m2;

// ---- one mma

/// d = ab + c: lanes gather their fragments from global memory as PTX's tables say, element by element.
template <class A, class B>
struct one_mma {
    static constexpr int threads = 32;
    static constexpr simt::word shared_bytes = 0;
    simt::global_span<const A> a;  // (16, 32)
    simt::global_span<const B> b;  // (32, 8)
    simt::global_span<float> d;    // (16, 8)

    simt::grid_shape grid() const { return {}; }
    template <class Simt>
    void operator()(Simt simt) const {
        const int group = simt.lane() / 4, in_group = simt.lane() % 4;
        simt::vec<simt::word, 4> left{};
        for (int i = 0; i < 16; ++i) {
            const int row = i < 4 || (i >= 8 && i < 12) ? group : group + 8,
                      column = in_group * 4 + i % 4 + (i < 8 ? 0 : 16);
            left[i / 4] |= simt::word{simt.load(a, row * 32 + column).bits()} << 8 * (i % 4);
        }
        simt::vec<simt::word, 2> right{};
        for (int i = 0; i < 8; ++i) {
            const int row = in_group * 4 + i % 4 + (i < 4 ? 0 : 16);
            right[i / 4] |= simt::word{simt.load(b, row * 8 + group).bits()} << 8 * (i % 4);
        }
        const auto place = [&](int i) { return (i < 2 ? group : group + 8) * 8 + in_group * 2 + i % 2; };
        simt::vec<float, 4> sums;
        for (int i = 0; i < 4; ++i) sums[i] = simt.load(d, place(i));
        simt.mma_16832(simt::element<A>{}, simt::element<B>{}, sums, left, right);
        for (int i = 0; i < 4; ++i) simt.store(d, place(i), sums[i]);
    }
};

emulator::device posing_as(int version, accumulation how = accumulation::nearest) {
    return emulator::device{{.mma = how}, simt::architecture_of(version)};
}

template <class A, class B>
void one_mma_exactly() {
    for (const int version : {89, 120}) {
        for (const accumulation how : {accumulation::nearest, accumulation::truncating}) {
            emulator::device device = posing_as(version, how);
            std::vector<A> a;
            std::vector<B> b;
            std::vector<float> d;
            for (int i = 0; i < 16 * 32; ++i) a.emplace_back(small_integers{1}(i / 32, i % 32));
            for (int i = 0; i < 32 * 8; ++i) b.emplace_back(small_integers{2}(i / 8, i % 8));
            for (int i = 0; i < 16 * 8; ++i) d.push_back(small_integers{3}(i / 8, i % 8));
            std::vector<float> want = d;
            for (int i = 0; i < 16; ++i) {
                for (int j = 0; j < 8; ++j) {
                    for (int k = 0; k < 32; ++k)
                        want[static_cast<std::size_t>(8 * i + j)] +=
                            static_cast<float>(number(a[static_cast<std::size_t>(32 * i + k)]) *
                                               number(b[static_cast<std::size_t>(8 * k + j)]));
                }
            }
            device.launch(one_mma<A, B>{{a.data(), 512}, {b.data(), 256}, {d.data(), 128}});
            CHECK(d == want);
        }
    }
}

TEST_CASE("mma_16832: fragments as in the PTX manual") {
    one_mma_exactly<float8_e4m3, float8_e4m3>();
    one_mma_exactly<float8_e5m2, float8_e4m3>();
    emulator::device h100 = posing_as(90);
    const std::vector<float8_e4m3> ones(512, float8_e4m3(1));
    std::vector<float> d(128);
    CHECK_THROWS_WITH_AS(
        h100.launch(one_mma<float8_e4m3, float8_e4m3>{{ones.data(), 512}, {ones.data(), 256}, {d.data(), 128}}),
        doctest::Contains("an sm_90 has no matrix units of eight bits"), emulator::failure);
}

/// The first element of ab + c, where the first row of a contains `products`, and b contains ones.
float sum_of(int version, std::vector<float> products, float c, accumulation how = accumulation::truncating) {
    emulator::device device = posing_as(version, how);
    std::vector<float8_e5m2> a(512);
    std::vector<float8_e4m3> b(256, float8_e4m3(1));
    std::vector<float> d(128, c);
    for (std::size_t i = 0; i < products.size(); ++i) a[i] = float8_e5m2(products[i]);
    device.launch(one_mma<float8_e5m2, float8_e4m3>{{a.data(), 512}, {b.data(), 256}, {d.data(), 128}});
    return d[0];
}

TEST_CASE("truncating matrix units drop bits far below their largest product") {
    CHECK(sum_of(89, {4096, 0.5f}, 0) == 4096.5f);    // 2^12 and 2^-1: 13 bits lower
    CHECK(sum_of(89, {4096, 0.75f}, 0) == 4096.5f);   // truncated, not rounded
    CHECK(sum_of(89, {4096, -0.75f}, 0) == 4095.5f);  // towards zero
    CHECK(sum_of(89, {4096, 0.25f, 0.25f, 0.25f, 0.25f}, 0) == 4096);
    CHECK(sum_of(120, {4096, 0.25f, 0.25f, 0.25f, 0.25f}, 0) == 4097);
    CHECK(sum_of(89, {}, 1 + 0x1p-14f) == 1);  // c is truncated, although no product is added
    CHECK(sum_of(120, {}, 1 + 0x1p-23f) == 1 + 0x1p-23f);
    CHECK(sum_of(89, {1, -1, 0x1p-14f}, 0) == 0);
    CHECK(sum_of(120, {0x1p-14f}, 0x1p15f) == 0x1p15f);  // a sum has as many bits as a float
    CHECK(sum_of(89, {4096, 0.75f}, 0, accumulation::nearest) == 4096.75f);
    // The second sixteen are added to the sum of the first.
    std::vector<float> late(17);
    late[0] = 4096, late[16] = 0.25f;
    CHECK(sum_of(89, late, -4096) == 0.25f);
    std::swap(late[0], late[16]);
    CHECK(sum_of(89, late, -4096) == 0);
    CHECK(std::isnan(sum_of(89, {HUGE_VALF, -HUGE_VALF}, 0)));
    CHECK(sum_of(89, {HUGE_VALF, 1}, 0) == HUGE_VALF);
    // A subnormal number has the exponent of the least normal one: 2^-16 b counts as 2^-14 b.
    CHECK(sum_of(89, {0x1p-16f}, 0x1p-28f) == 0x1p-16f);
    CHECK(sum_of(89, {0x1p-14f}, 0x1p-27f) == 0x1p-14f + 0x1p-27f);
}

// ---- the kernels

/// Counts the launches of kernels for eight bits.
struct counting_device : emulator::device {
    using emulator::device::device;
    long of_bytes = 0;

    template <class Kernel>
    void launch(const Kernel& kernel) {
        if constexpr (requires { Kernel::is_of_bytes; }) of_bytes += Kernel::is_of_bytes ? 1 : 0;
        emulator::device::launch(kernel);
    }
};

template <class A, class B, class C>
void multiply_all(accumulation how) {
    counting_device ada({.mma = how}, simt::architecture_of(89)), ampere({.mma = how});
    long products = 0;
    for (const sizes& s : {sizes{1, 1, 1}, sizes{33, 65, 37}, sizes{70, 200, 100}}) {
        const std::vector<double> want = exact_product(s);
        for (std::size_t a = 0; a < 4; ++a) {
            for (std::size_t b = 0; b < 4; ++b) {
                CAPTURE(a);
                CAPTURE(b);
                if (s.rows == 70 && (a + b) % 4 != 1) continue;
                const layout of_a = aligned(layouts[a], s.rows, s.depth, 16),
                             of_b = aligned(layouts[b], s.depth, s.columns, 16), of_c = layouts[a < 2 ? 0 : 2];
                multiply_exactly<ht::amp_bf16, A, B, C>(ada, s, want, of_a, of_b, of_c);
                ++products;
                if (b == 1) multiply_exactly<ht::amp_bf16, A, B, C>(ampere, s, want, of_a, of_b, of_c);
            }
        }
        const long before = ada.of_bytes;
        multiply_exactly<ht::amp_bf16, A, B, C>(ada, s, want, layouts[3], layouts[0], layouts[0]);
        CHECK(ada.of_bytes == before);  // unaligned
    }
    CHECK(ada.of_bytes == products);
    CHECK(ampere.of_bytes == 0);
    CHECK(ada.count().bank_conflicts + ampere.count().bank_conflicts == 0);
}

TEST_CASE("matmul of bytes on a GPU: exact on small integers, in all layouts") {
    multiply_all<float8_e4m3, float8_e4m3, bfloat16>(accumulation::truncating);
    multiply_all<float8_e5m2, float8_e4m3, float>(accumulation::nearest);
}

TEST_CASE("matmul of bytes on a GPU: large tiles, parts of k") {
    counting_device ada({.check = emulator::checking::values_only, .mma = accumulation::truncating},
                        simt::architecture_of(89));
    const auto multiply = [&](const sizes& s, const layout& a, const layout& b) {
        multiply_exactly<ht::amp_bf16, float8_e5m2, float8_e4m3, float>(
            ada, s, exact_product(s), aligned(a, s.rows, s.depth, 16), aligned(b, s.depth, s.columns, 16), layouts[0]);
    };
    multiply({7940, 9, 65}, layouts[1], layouts[0]);
    CHECK(ada.launches() == 1);
    multiply({40, 2177, 24}, layouts[0], layouts[1]);
    multiply({40, 2177, 24}, layouts[1], layouts[0]);
    CHECK(ada.launches() == 5);
    CHECK(ada.of_bytes == 3);
}

TEST_CASE("matmul of bytes on a GPU: nothing to sum") {
    emulator::device ada = posing_as(89);
    const operand<float8_e4m3> a(3, 0, layouts[0]), b(0, 5, layouts[0]);
    const operand<float> c(3, 5, layouts[0], small_integers{1});
    ht::matmul<ht::amp_bf16>(ada, a.view, b.view, c.view);
    for (extent i = 0; i < 15; ++i) CHECK(c.view(i / 5, i % 5) == 0);
}

using no_operands = ht::pack<>;
using float_result = ht::pack<ht::detail::matmul_result<ht::symbolic::argument<0>, float>>;
template <class Tiling>
using bytes_kernel =
    matrix_unit_kernel<eight_bits, Tiling, panel_load::direct, float8_e5m2, float8_e4m3, no_operands, float_result>;
using small_tiling = matrix_unit_tiling<64, 64, 64, 2, 2, 4>;
using large_tiling = matrix_unit_tiling<128, 128, 64, 2, 4, 3>;

template <class Kernel>
bool multiplies(emulator::device& device, const sizes& s, const layout& a_layout, const layout& b_layout) {
    const operand<float8_e5m2> a(s.rows, s.depth, aligned(a_layout, s.rows, s.depth, 16), small_integers{1});
    const operand<float8_e4m3> b(s.depth, s.columns, aligned(b_layout, s.depth, s.columns, 16), small_integers{2});
    const operand<float> c(s.rows, s.columns, layouts[0]);
    const auto epilogue = ht::epilogue_of(ht::plain{}, c.view);
    device.launch(Kernel{make_operand(a.view), make_operand(ht::transpose(b.view)), epilogue, access_to(epilogue)});
    return holds(c, s, exact_product(s));
}

TEST_CASE("matmul of bytes on a GPU with damage") {
    const auto ada = simt::architecture_of(89);
    emulator::check_kernels(
        [](emulator::device& d) {
            return multiplies<bytes_kernel<small_tiling>>(d, {70, 5 * 64, 40}, layouts[0], layouts[0]);
        },
        ada);
    emulator::check_kernels(
        [](emulator::device& d) {
            return multiplies<bytes_kernel<large_tiling>>(d, {90, 4 * 64, 128}, layouts[1], layouts[1]);
        },
        ada);
}

TEST_CASE("matmul of bytes on a GPU: every pair of layouts of every tiling") {
    emulator::device device = posing_as(89);
    for (std::size_t a = 0; a < 2; ++a) {
        for (std::size_t b = 0; b < 2; ++b) {
            CAPTURE(a);
            CAPTURE(b);
            CHECK(multiplies<bytes_kernel<small_tiling>>(device, {70, 130, 90}, layouts[a], layouts[b]));
            CHECK(multiplies<bytes_kernel<large_tiling>>(device, {200, 70, 130}, layouts[a], layouts[b]));
        }
    }
    CHECK(device.count().bank_conflicts == 0);
}

/// Bug: panels whose outer axis is contiguous are written with one swizzle and read with another.
struct mixed_swizzles : small_tiling {
    template <class T, int Outer, along Axis>
    struct panel : matrix_panel<T, Outer, depth, Axis> {
        static constexpr int outer = Outer;
        HALFTONE_HD static word place(int line, int column) {
            return matrix_panel<T, Outer, depth, Axis, simt::swizzle::b32>::place(line, column);
        }
    };
};
TEST_CASE("matmul of bytes on a GPU: deliberate bugs are found") {
    emulator::device device = posing_as(89);
    device.how().check = emulator::checking::values_only;
    for (const layout& l : {layouts[0], layouts[1]})
        CHECK(!multiplies<bytes_kernel<mixed_swizzles>>(device, {70, 200, 40}, l, l));
}

// ---- bounds

/// Positive numbers, so that sums grow with k beyond what 14 bits can represent.
struct positive {
    explicit positive(std::uint64_t seed) : data(seed) {}
    float operator()(extent, extent) { return 0.5f + std::fabs(static_cast<float>(data.normal())); }
    support::random data;
};

/// The bound of kernel/matmul/matmul.hpp for sums of eight-bit products: `of_unit` for each sum of 32, and the additions
/// of these sums.
template <class A, class B, class Values>
void within_bounds_of(emulator::device& device, const sizes& s, double of_unit, Values) {
    const operand<A> a(s.rows, s.depth, aligned(layouts[1], s.rows, s.depth, 16), Values(1));
    const operand<B> b(s.depth, s.columns, aligned(layouts[0], s.depth, s.columns, 16), Values(2));
    const operand<float> c(s.rows, s.columns, layouts[0]);
    ht::matmul<ht::amp_bf16>(device, a.view, b.view, c.view);
    const auto counted = [](auto x, double least) { return x == 0 ? 0 : std::max(std::fabs(number(x)), least); };
    constexpr double least_a = ht::number_traits<A>::min_normal, least_b = ht::number_traits<B>::min_normal;
    support::comparison all;
    ht::reference::matmul<bfloat16>(a.view, b.view, [&](double sum, extent i, extent j) {
        double magnitude = 0;
        for (extent k = 0; k < s.depth; ++k)
            magnitude += counted(a.view(i, k), least_a) * counted(b.view(k, j), least_b);
        const double additions = std::ceil(static_cast<double>(s.depth) / 32) + 16;  // those of parts of k, too
        all.expect(number(c.view(i, j)), sum, (of_unit + support::gamma(additions)) * magnitude);
    });
    CHECK_WITHIN(all);
}

TEST_CASE("matmul of bytes on a GPU: sums in 14 bits within their bounds, for any k") {
    const auto check = [](int version, double of_unit) {
        CAPTURE(version);
        emulator::device device = posing_as(version, accumulation::truncating);
        within_bounds_of<float8_e4m3, float8_e4m3>(device, {19, 300, 33}, of_unit, normals(1));
        within_bounds_of<float8_e5m2, float8_e4m3>(device, {9, 2100, 20}, of_unit, positive(1));
    };
    check(89, 35 * 0x1p-13);
    check(120, 9 * 0x1p-23);
}

}  // namespace emulator_kernel_matmul_bytes_tests
