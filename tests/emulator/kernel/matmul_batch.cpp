// SPDX-License-Identifier: MIT
/// \file
/// Products of many matrices in one launch, on the emulated GPU: the bits of a launch for each.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/matmul/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/matmul/checks.hpp"

namespace emulator_kernel_matmul_batch_tests {

using namespace matmul_test;
namespace emulator = ht::emulator;
namespace simt = ht::simt;
using ht::write_mode;

/// (count, rows, columns), as stored or transposed, with `apart` elements between matrices.
template <class T>
struct batch {
    support::guarded<T> memory;
    ht::view<T, 3> view;

    batch(extent count, extent rows, extent columns, bool is_transposed, extent apart, extent offset,
          std::uint64_t seed)
        : memory(support::random(seed).integers<T>(count * (rows * columns + apart), 3), offset),
          view(memory.data(), {count, rows, columns}) {
        const extent step = rows * columns + apart;
        view = is_transposed ? ht::view<T, 3>(memory.data(), {count, rows, columns}, {step, 1, rows})
                             : ht::view<T, 3>(memory.data(), {count, rows, columns}, {step, columns, 1});
    }
};

struct trial {
    sizes s;
    bool a_transposed, b_transposed;
    extent apart, offset;
    bool is_one_launch;
};

template <class Compute, class A, class B, class C>
void as_one_by_one(const trial& t, write_mode mode, const simt::architecture& gpu = simt::architecture_of(80)) {
    constexpr extent count = 3;
    CAPTURE(t.s.rows);
    CAPTURE(t.s.columns);
    CAPTURE(t.offset);
    const batch<A> a(count, t.s.rows, t.s.depth, t.a_transposed, t.apart, t.offset, 1);
    const batch<B> b(count, t.s.depth, t.s.columns, t.b_transposed, t.apart, t.offset, 2);
    const batch<C> together(count, t.s.rows, t.s.columns, false, t.apart, t.offset, 3),
        apart(count, t.s.rows, t.s.columns, false, t.apart, t.offset, 3),
        before(count, t.s.rows, t.s.columns, false, t.apart, t.offset, 3);
    emulator::device one{{}, gpu}, each{{}, gpu};
    ht::detail::product_each<Compute>(one, a.view, b.view, together.view, mode);
    for (extent i = 0; i < count; ++i)
        ht::detail::product<Compute>(each, matrix(a.view, i), matrix(b.view, i), matrix(apart.view, i), mode);
    CHECK(together.memory.same_bits(apart.memory));
    CHECK(together.memory.intact());
    CHECK(one.launches() == (t.is_one_launch ? each.launches() / count : each.launches()));
    // Compared with the definition: sums of small whole numbers are exact.
    bool right = true;
    for (extent m = 0; m < count; ++m) {
        for (extent i = 0; i < t.s.rows; ++i) {
            for (extent j = 0; j < t.s.columns; ++j) {
                double sum = mode == write_mode::add ? number(before.view(m, i, j)) : 0;
                for (extent p = 0; p < t.s.depth; ++p) sum += number(a.view(m, i, p)) * number(b.view(m, p, j));
                right = right && number(together.view(m, i, j)) == number(C(static_cast<float>(sum)));
            }
        }
    }
    CHECK(right);
}

template <class Compute, class A, class B, class C>
void in_every_way() {
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        for (const bool a : {false, true}) {
            for (const bool b : {false, true}) {
                if (mode == write_mode::add && a == b) continue;
                as_one_by_one<Compute, A, B, C>({{40, 32, 72}, a, b, 0, 0, true}, mode);  // aligned
                as_one_by_one<Compute, A, B, C>({{37, 33, 65}, a, b, 0, 1, true}, mode);  // unaligned
            }
        }
        as_one_by_one<Compute, A, B, C>({{40, 32, 72}, false, true, 16, 0, true}, mode);  // aligned, gaps between
        as_one_by_one<Compute, A, B, C>({{40, 32, 72}, true, false, 1, 0, false}, mode);  // only the first matrix is aligned
        as_one_by_one<Compute, A, B, C>({{9, 2100, 16}, false, true, 0, 0, true}, mode);  // parts of k
        as_one_by_one<Compute, A, B, C>({{1, 24, 1}, false, false, 0, 0, true}, mode);    // rows of one element
        as_one_by_one<Compute, A, B, C>({{5, 0, 8}, false, false, 0, 0, true}, mode);     // sums over nothing
    }
}

TEST_CASE("products of many matrices on a GPU: one launch, the bits of one for each, fp32") {
    in_every_way<float, float, float, float>();
}
TEST_CASE("products of many matrices on a GPU: one launch, the bits of one for each, bf16") {
    in_every_way<bfloat16, bfloat16, bfloat16, bfloat16>();
}
TEST_CASE("products of many matrices on a GPU: one launch, the bits of one for each, tf32") {
    in_every_way<ht::tfloat32, float, float, float>();
}
TEST_CASE("products of many matrices on a GPU: one launch, the bits of one for each, mixed types and bytes") {
    in_every_way<bfloat16, float, bfloat16, float>();
    simt::architecture ada = simt::architecture_of(89);
    as_one_by_one<bfloat16, ht::float8_e4m3, ht::float8_e5m2, float>({{32, 64, 48}, false, true, 0, 0, true},
                                                                     write_mode::add, ada);
}

TEST_CASE("products of many matrices on a GPU: unaligned ones that are copied first are multiplied one by one") {
    simt::architecture small = simt::architecture_of(80);
    small.multiprocessors = 1;
    const sizes s{517, 33, 520};
    REQUIRE(ht::kernel::on_device::pays_to_align(small, s.rows, s.columns, s.depth, (s.rows + s.columns) * s.depth));
    as_one_by_one<bfloat16, bfloat16, bfloat16, bfloat16>({s, false, true, 0, 1, false}, write_mode::overwrite, small);
}

TEST_CASE("products of many matrices on a GPU: doubles, matrix by matrix") {
    as_one_by_one<double, double, double, double>({{9, 17, 11}, false, true, 0, 0, false}, write_mode::add);
}

/// A kernel that only stores which matrix it multiplies, and a device that stores its launches.
struct noted_kernel {
    static constexpr int threads = 32, min_blocks = 0;
    static constexpr ht::simt::word shared_bytes = 0;
    static constexpr bool has_parts = true;
    extent first = 0;

    simt::grid_shape grid() const { return {2, 1, 16}; }
    noted_kernel of_matrix(extent number, extent by_a, extent, extent) const { return {first + number * by_a}; }
};
struct noting_device {
    std::vector<extent> firsts;
    std::vector<int> depths;
    template <class Kernel>
    void launch(const Kernel& kernel) {
        firsts.push_back(kernel.first.first);
        depths.push_back(kernel.grid().z);
    }
};

TEST_CASE("products of many matrices on a GPU: no more in a launch than fit into a grid") {
    noting_device device;
    launch_each(device, noted_kernel{}, ht::kernel::on_device::matrix_batch{10000, 3, 0, 0});
    CHECK(device.firsts == std::vector<extent>{0, 3 * 4095, 3 * 8190});
    CHECK(device.depths == std::vector<int>{16 * 4095, 16 * 4095, 16 * (10000 - 8190)});
}

TEST_CASE("products of many matrices on a GPU: sums of parts in little memory") {
    using namespace ht::kernel::on_device;
    constexpr extent count = 5;
    const sizes s{9, 300, 16};
    const batch<float> a(count, s.rows, s.depth, false, 0, 0, 1), b(count, s.depth, s.columns, true, 0, 0, 2);
    const batch<float> little(count, s.rows, s.columns, false, 0, 0, 3), much(count, s.rows, s.columns, false, 0, 0, 3);
    const auto multiply_with = [&](const batch<float>& c, extent most_bytes) {
        emulator::device device;
        const auto epilogue = epilogue_of(ht::add_product{}, matrix(c.view, 0));
        multiply<by_multiply_adds<float, multiply_add_tiling<64, 64>, float, float>>(
            device, make_operand(matrix(a.view, 0)), make_operand(transpose(matrix(b.view, 0))), epilogue,
            access_to(epilogue), 3, matrix_batch{count, s.rows * s.depth, s.depth * s.columns, s.rows * s.columns},
            most_bytes);
        return device.launches();
    };
    CHECK(multiply_with(much, 1 << 20) == 2);
    CHECK(multiply_with(little, 2 * 3 * 9 * 16 * 4) == 6);  // two matrices at a time
    CHECK(little.memory.same_bits(much.memory));
    CHECK(little.memory.intact());
}

TEST_CASE("products of many matrices on a GPU: right in every schedule, and every damage is found") {
    constexpr extent count = 2, rows = 70, depth = 5 * 32, columns = 40;  // the last panel is in the first slot
    const batch<bfloat16> a(count, rows, depth, false, 0, 0, 1), b(count, depth, columns, true, 0, 0, 2);
    emulator::check_kernels([&](emulator::device& device) {
        const batch<float> c(count, rows, columns, false, 0, 0, 3), old(count, rows, columns, false, 0, 0, 3);
        ht::detail::product_each<bfloat16>(device, a.view, b.view, c.view, write_mode::add);
        bool right = c.memory.intact();
        for (extent m = 0; m < count; ++m) {
            for (extent i = 0; i < rows; ++i) {
                for (extent j = 0; j < columns; ++j) {
                    double sum = number(old.view(m, i, j));
                    for (extent p = 0; p < depth; ++p) sum += number(a.view(m, i, p)) * number(b.view(m, p, j));
                    right = right && number(c.view(m, i, j)) == sum;
                }
            }
        }
        return right;
    });
}

TEST_CASE("products of many matrices on a GPU: scratch memory is what workspace_bytes returns") {
    const batch<bfloat16> a(3, 9, 2100, false, 0, 0, 1), b(3, 2100, 16, false, 0, 0, 2);
    const batch<float> c(3, 9, 16, false, 0, 0, 3);
    emulator::device device{{.check = emulator::checking::values_only}};
    const std::size_t bytes =
        ht::workspace_bytes(device, [&](auto& d) { ht::batched_matmul<ht::amp_bf16>(d, a.view, b.view, c.view); });
    ht::batched_matmul<ht::amp_bf16>(device, a.view, b.view, c.view);
    CHECK(bytes > 0);
    CHECK(device.scratch().peak() == bytes);
}

}  // namespace emulator_kernel_matmul_batch_tests
