// SPDX-License-Identifier: MIT
/// \file
/// Products by warpgroups, with any tile, on any device that has warpgroups.
///
///     matmul_test::warpgroups_in_all_layouts(device);
#pragma once

#include <halftone/kernel/matmul/device.hpp>

#include "kernel/matmul/checks.hpp"

namespace matmul_test {

namespace on_device = ht::kernel::on_device;

/// c = epilogue(ab) with tiles of one kind, in this number of parts.
template <class T, class Device, class C, class Epilogue>
void by_warpgroups(Device& device, const on_device::matmul_cut& cut, const ht::view<T, 2>& a, const ht::view<T, 2>& b,
                   const ht::view<C, 2>& c, const Epilogue& epilogue) {
    const auto end = ht::epilogue_of(epilogue, c);
    const auto x = on_device::make_operand(a), y = on_device::make_operand(ht::transpose(b));
    on_device::multiply_by_warpgroups<T>(
        device, x, y, end, on_device::access_to(end), cut,
        on_device::planning::storing_of(on_device::describe_product<T>(device, x, y, end, on_device::one_matrix{})));
}

/// Sums of small integers, which are exact, compared with the definition; operands are aligned.
template <class T, class C, class Device>
bool warpgroups_multiply(Device& device, const sizes& s, const on_device::matmul_cut& cut, std::size_t of_a,
                         std::size_t of_b, const layout& of_c) {
    const std::vector<double> want = exact_product(s);
    const operand<T> a(s.rows, s.depth, aligned(layouts[of_a], s.rows, s.depth), small_integers{1}),
        b(s.depth, s.columns, aligned(layouts[of_b], s.depth, s.columns), small_integers{2});
    const operand<C> c(s.rows, s.columns, of_c);
    by_warpgroups(device, cut, a.view, b.view, c.view, ht::plain{});
    device.synchronize();
    return holds(c, s, want);
}
template <class T, class C, class Device>
bool warpgroups_multiply(Device& device, const sizes& s, const on_device::matmul_cut& cut, std::size_t of_a,
                         std::size_t of_b, std::size_t of_c) {
    return warpgroups_multiply<T, C>(device, s, cut, of_a, of_b, layouts[of_c]);
}

/// Tiles in the middle and at the edges, fewer and more panels than slots, one and several tiles per block, rows of c that are
/// whole chunks and others.
template <class Device>
void warpgroups_in_all_layouts(Device& device) {
    using on_device::matmul_tile;
    constexpr sizes edges{150, 5 * 64 + 8, 408};
    for (std::size_t a = 0; a < 4; ++a) {
        for (std::size_t b = 0; b < 4; ++b) {
            CAPTURE(a);
            CAPTURE(b);
            if ((a + b) % 2 == 0) {
                CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, edges, {matmul_tile::wide, 1}, a, b, 0));
            } else {
                CHECK(warpgroups_multiply<bfloat16, float>(device, edges, {matmul_tile::widest, 1}, a, b, 0));
            }
        }
    }
    CHECK(warpgroups_multiply<float16, float16>(device, edges, {matmul_tile::widest, 1}, 0, 1, 0));
    CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, {150, 11 * 64 + 8, 136}, {matmul_tile::narrow, 1}, 0, 0, 0));
    CHECK(warpgroups_multiply<bfloat16, float>(device, {150, 72, 136}, {matmul_tile::narrow, 1}, 1, 1, 0));
    CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, {70, 72, 203}, {matmul_tile::wide, 1}, 0, 0, 2));  // odd rows of c
    CHECK(warpgroups_multiply<bfloat16, float>(device, {1, 8, 1}, {matmul_tile::wide, 1}, 0, 0, 0));
    CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, {130, 9 * 64 + 24, 203}, {matmul_tile::wide, 3}, 0, 1, 0));
    CHECK(warpgroups_multiply<float16, float>(device, {130, 9 * 64, 272}, {matmul_tile::widest, 4}, 1, 0, 2));
}

/// Rows of c that are not multiples of 16 bytes apart, or begin at odd addresses.
template <class Device>
void warpgroups_store_any_rows(Device& device) {
    using on_device::matmul_tile;
    constexpr sizes s{301, 72, 205};
    constexpr auto by_rows = order::rows;
    for (const layout& of_c : {layout{by_rows, 0, 0}, {by_rows, 1, 3}, {by_rows, 3, 7}, {by_rows, 7, 1}}) {
        CAPTURE(of_c.gap);
        for (const std::size_t b : {std::size_t{1}, std::size_t{0}}) {  // the second is loaded element by element
            CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, s, {matmul_tile::narrow, 1}, 0, b, of_c));
            CHECK(warpgroups_multiply<float16, float>(device, s, {matmul_tile::wide, 1}, 2, b, of_c));
        }
    }
    CHECK(warpgroups_multiply<float16, float16>(device, s, {matmul_tile::widest, 1}, 0, 3, {by_rows, 2, 0}));
    CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, {140, 72, 251}, {matmul_tile::widest, 1}, 0, 1, {by_rows, 0, 0}));
    CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, {9, 72, 5}, {matmul_tile::narrow, 1}, 0, 1, {by_rows, 0, 0}));
    CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, {7, 72, 5}, {matmul_tile::narrow, 1}, 0, 1, {by_rows, 0, 1}));
    CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, {130, 9 * 64 + 8, 203}, {matmul_tile::wide, 3}, 0, 1, {by_rows, 0, 1}));
    CHECK(warpgroups_multiply<bfloat16, bfloat16>(device, {136, 72, 200}, {matmul_tile::wide, 1}, 1, 1, {by_rows, 0, 3}));
}

/// An epilogue of exact sums has the same bits with these tiles as with others.
template <class T, class C, class Device, class Epilogue>
void warpgroups_finish(Device& device, const Epilogue& epilogue_with, const layout& of_c = layouts[0]) {
    constexpr sizes s{150, 136, 216};
    const operand<T> a(s.rows, s.depth, layouts[0], small_integers{1}), b(s.depth, s.columns, layouts[1], small_integers{2});
    const operand<C> extra(s.rows, s.columns, of_c, small_integers{3}), one(s.rows, s.columns, of_c, small_integers{4}),
        two(s.rows, s.columns, of_c, small_integers{4});
    const operand<float> bias(1, s.columns, layouts[0], small_integers{5});
    const ht::view<float, 1> of_columns(bias.view.data(), {s.columns});
    const auto epilogue = [&](const operand<C>& c) { return epilogue_with(of_columns, extra.view, c.view); };
    using policy = std::conditional_t<std::is_same_v<T, bfloat16>, ht::amp_bf16, ht::amp_fp16>;
    ht::matmul<policy>(device, a.view, b.view, one.view, epilogue(one));
    by_warpgroups(device, {on_device::matmul_tile::wide, 1}, a.view, b.view, two.view, epilogue(two));
    device.synchronize();
    CHECK(one.memory.same_bits(two.memory));
    CHECK(two.intact());
}
template <class Device>
void warpgroups_finish_all(Device& device) {
    const auto add = [](auto&&...) { return ht::add_product{}; };
    warpgroups_finish<bfloat16, bfloat16>(device, add);
    warpgroups_finish<bfloat16, float>(device, add);
    warpgroups_finish<float16, float16>(device, [](auto&& bias, auto&&...) { return ht::bias_gelu{bias}; });
    warpgroups_finish<bfloat16, bfloat16>(device, [](auto&& bias, auto&& extra, auto&&) { return ht::bias_residual{bias, extra}; });
    warpgroups_finish<bfloat16, bfloat16>(device, [](auto&&, auto&&, auto&& c) { return ht::gelu_gradient{c}; });
    warpgroups_finish<bfloat16, bfloat16>(
        device, [](auto&& bias, auto&& extra, auto&&) { return ht::bias_residual{bias, extra}; }, layouts[2]);
    warpgroups_finish<bfloat16, float>(device, add, layouts[2]);
    warpgroups_finish<bfloat16, float>(device, [](auto&& bias, auto&& extra, auto&&) {
        return ht::then{[](auto sum, auto x, auto beta) { return sum * x + beta; }, extra, bias};
    });
    warpgroups_finish<bfloat16, bfloat16>(device, [](auto&& bias, auto&& extra, auto&&) { return ht::bias_gelu_keep{bias, extra}; });
}

}  // namespace matmul_test
