// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis, and masks, on tapes of any device: values and gradients compared with definitions, exactly on small
/// whole numbers, and with differences in double.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/gather.hpp>
#include <halftone/autodiff/op/mask.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel/gather/reference.hpp>
#include <halftone/observe/check_gradients.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"
#include "support/values.hpp"

namespace choosing_checks {

namespace ht = halftone;
using ht::extent;
using support::guarded;
using support::values;
using doubles = std::vector<double>;

inline doubles as_doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

/// The sum of y times dy, whose gradient by y is dy.
template <class Tape, class Y, int Rank>
auto weigh(Tape& tape, const ht::variable<Y, Rank>& y, const std::vector<float>& dy) {
    const auto weights = tape.template make<float>(y.shape(), false);
    tape.device().memory().write(weights.view().data(), dy.data(), dy.size() * sizeof(float));
    return ht::sum<float>(tape, ht::mul<float>(tape, y, weights));
}

template <class T, int Rank>
ht::view<T, Rank> shown(std::vector<T>& v, const ht::shape<Rank>& s) {
    return {v.data(), s};
}
template <class T, int Rank>
ht::const_view<T, Rank> shown(const std::vector<T>& v, const ht::shape<Rank>& s) {
    return {v.data(), s};
}

/// gather and take_along_dim: y is the definition's, dx what the definition adds up; x is used twice.
template <class T, class Device>
void gathers(Device& device) {
    support::random data(11);
    const ht::shape<3> s{2, 5, 3}, places{2, 4, 3};
    std::vector<T> x = data.integers<T>(s.size(), 5);
    const std::vector<std::int32_t> index = data.indices(places.size(), 5);
    const std::vector<float> dy = data.integers<float>(places.size(), 4);
    const auto chosen = shown(index, places);
    doubles want(dy.size()), dx(x.size());
    ht::reference::gather(ht::const_view<T, 3>(x.data(), s), 1, chosen, shown(want, places));
    for (int use = 0; use < 2; ++use)
        ht::reference::scatter_add(ht::const_view<float, 3>(dy.data(), places), 1, chosen, shown(dx, s));
    ht::tape tape{device};
    const auto leaf = tape.leaf(shown(x, s));
    const auto y = ht::gather(tape, leaf, ht::axes<1>, chosen);
    const auto z = ht::take_along_dim(tape, leaf, ht::axes<-2>, tape.constant(chosen));
    static_assert(std::is_same_v<decltype(y), const ht::variable<T, 3>>);
    CHECK(values(device, y.view()) == want);
    CHECK(values(device, z.view()) == want);
    tape.backward(ht::add(tape, weigh(tape, y, dy), weigh(tape, z, dy)));
    CHECK(values(device, tape.gradient(leaf)) == dx);
}

/// An index, or a tensor, of extent 1 along another axis is broadcast.
template <class Device>
void stretches(Device& device) {
    std::vector<float> x{1, 2, 3, 4, 5, 6}, row{10, 20, 30};
    const std::vector<std::int32_t> index{2, 0}, several{0, 2, 1, 1, 2, 2};
    ht::tape tape{device};
    const auto a = tape.leaf(shown(x, ht::shape<2>{2, 3})), b = tape.leaf(shown(row, ht::shape<2>{1, 3}));
    const auto y = ht::take_along_dim(tape, a, ht::axes<1>, shown(index, ht::shape<2>{1, 2}));
    const auto z = ht::take_along_dim(tape, b, ht::axes<1>, shown(several, ht::shape<2>{3, 2}));
    const std::vector<std::int32_t> rows{1, 1, 0};
    const auto w = ht::take_along_dim(tape, a, ht::axes<0>, shown(rows, ht::shape<2>{3, 1}));
    CHECK(values(device, y.view()) == doubles{3, 1, 6, 4});
    CHECK(values(device, z.view()) == doubles{10, 30, 20, 20, 30, 30});
    CHECK(values(device, w.view()) == doubles{4, 5, 6, 4, 5, 6, 1, 2, 3});
    tape.backward(ht::add(tape, ht::add(tape, weigh(tape, y, {1, 2, 3, 4}), weigh(tape, z, {1, 2, 3, 4, 5, 6})),
                          weigh(tape, w, {1, 1, 1, 10, 10, 10, 100, 100, 100})));
    CHECK(values(device, tape.gradient(a)) == doubles{102, 100, 101, 15, 11, 14});
    CHECK(values(device, tape.gradient(b)) == doubles{1, 7, 13});
    CHECK_THROWS_WITH_AS(
        ht::take_along_dim(tape, a, ht::axes<1>, shown(std::vector<std::int32_t>(6), ht::shape<2>{3, 2})),
        "take_along_dim: the index is (3, 2), the tensor (2, 3); along axis 0 their extents are equal, or one of them is 1",
        ht::shape_error);
}

/// index_select and its inverse.
template <class T, class Device>
void selects(Device& device) {
    support::random data(12);
    const ht::shape<3> s{2, 5, 3}, selected{2, 7, 3};
    std::vector<T> x = data.integers<T>(s.size(), 5), source = data.integers<T>(selected.size(), 5);
    const std::vector<std::int32_t> index{4, 0, 4, 4, 1, 0, 3};
    const std::vector<float> dy = data.integers<float>(selected.size(), 4), dsum = data.integers<float>(s.size(), 4);
    const auto chosen = shown(index, ht::shape<1>{7});
    const ht::const_view<std::int32_t, 3> for_all(index.data(), selected, {0, 1, 0});
    doubles want(dy.size()), sum(x.begin() == x.end() ? 0 : x.size()), dx(x.size()), dsource(source.size());
    ht::reference::gather(ht::const_view<T, 3>(x.data(), s), 1, for_all, shown(want, selected));
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] = static_cast<double>(x[i]), dx[i] = static_cast<double>(dsum[i]);
    ht::reference::scatter_add(ht::const_view<T, 3>(source.data(), selected), 1, for_all, shown(sum, s));
    ht::reference::scatter_add(ht::const_view<float, 3>(dy.data(), selected), 1, for_all, shown(dx, s));
    ht::reference::gather(ht::const_view<float, 3>(dsum.data(), s), 1, for_all, shown(dsource, selected));
    ht::tape tape{device};
    const auto a = tape.leaf(shown(x, s)), b = tape.leaf(shown(source, selected));
    const auto y = ht::index_select(tape, a, ht::axes<1>, chosen);
    const auto z = ht::index_add(tape, a, ht::axes<1>, chosen, b);
    CHECK(values(device, y.view()) == want);
    CHECK(values(device, z.view()) == sum);
    tape.backward(ht::add(tape, weigh(tape, y, dy), weigh(tape, z, dsum)));
    CHECK(values(device, tape.gradient(a)) == dx);
    CHECK(values(device, tape.gradient(b)) == dsource);
}

/// scatter_add of another type than its base: the sum has the wider one.
template <class Device>
void scatters(Device& device) {
    std::vector<ht::bfloat16> x(6, ht::bfloat16(1.0f));
    std::vector<float> source{1, 2, 3, 4};
    const std::vector<std::int32_t> index{2, 2, 0, 1};
    ht::tape tape{device};
    const auto a = tape.leaf(shown(x, ht::shape<2>{2, 3}));
    const auto b = tape.leaf(shown(source, ht::shape<2>{2, 2}));
    const auto y = ht::scatter_add(tape, a, ht::axes<1>, shown(index, ht::shape<2>{2, 2}), b);
    static_assert(std::is_same_v<decltype(y), const ht::variable<float, 2>>);
    CHECK(values(device, y.view()) == doubles{1, 1, 4, 4, 5, 1});
    tape.backward(weigh(tape, y, {1, 2, 3, 4, 5, 6}));
    CHECK(values(device, tape.gradient(a)) == doubles{1, 2, 3, 4, 5, 6});
    CHECK(values(device, tape.gradient(b)) == doubles{3, 3, 4, 5});
}

/// Masks of bools, bytes and numbers; what is not chosen has no gradient, infinite as it may be.
template <class Device>
void masks(Device& device) {
    static const bool bools[] = {true, false, true, false, false, true};
    static const std::uint8_t bytes[] = {1, 0, 1, 0, 0, 1};
    std::vector<float> x{1, 2, 3, 4, 5, 6}, z{-1, -2, -3, -4, -5, -6}, numbers{0.5f, 0, -7, 0, -0.0f, 1e-30f}, one{9};
    const ht::shape<2> s{2, 3};
    const ht::const_view<bool, 2> mask(bools, s);
    ht::tape tape{device};
    const auto a = tape.leaf(shown(x, s)), b = tape.leaf(shown(z, s));
    const auto c = tape.leaf(shown(one, ht::shape<0>{}));
    const auto chosen = ht::where(tape, mask, a, b);
    CHECK(values(device, chosen.view()) == doubles{1, -2, 3, -4, -5, 6});
    CHECK(values(device, ht::where(tape, ht::const_view<std::uint8_t, 2>(bytes, s), a, c).view()) ==
          doubles{1, 9, 3, 9, 9, 6});
    CHECK(values(device, ht::where(tape, tape.constant(shown(numbers, s)), a, 0.25).view()) ==
          doubles{1, 0.25, 3, 0.25, 0.25, 6});
    CHECK(values(device, ht::where(tape, mask, 0.25, a).view()) == doubles{0.25, 2, 0.25, 4, 5, 0.25});
    const auto hidden = ht::masked_fill(tape, a, tape.to_device(mask), -HUGE_VAL);
    CHECK(values(device, hidden.view()) == doubles{-HUGE_VAL, 2, -HUGE_VAL, 4, 5, -HUGE_VAL});
    const auto columns = ht::masked_fill(tape, a, ht::const_view<bool, 1>(bools, {3}), 7);
    CHECK(values(device, columns.view()) == doubles{7, 2, 7, 7, 5, 7});
    CHECK(values(device, ht::tril(tape, a).view()) == doubles{1, 0, 0, 4, 5, 0});
    CHECK(values(device, ht::tril(tape, a, 1).view()) == doubles{1, 2, 0, 4, 5, 6});
    CHECK(values(device, ht::triu(tape, a).view()) == doubles{1, 2, 3, 0, 5, 6});
    CHECK(values(device, ht::triu(tape, a, -1).view()) == values(device, a.view()));
    const auto upper = ht::triu(tape, a, 1);
    CHECK(values(device, upper.view()) == doubles{0, 2, 3, 0, 0, 6});
    const auto all = ht::add(tape, ht::add(tape, ht::sum(tape, chosen), weigh(tape, ht::exp(tape, hidden), {0, 0, 0, 0, 0, 0})),
                             ht::add(tape, weigh(tape, columns, {10, 20, 30, 40, 50, 60}),
                                     weigh(tape, upper, {100, 200, 300, 400, 500, 600})));
    tape.backward(all);
    CHECK(values(device, tape.gradient(a)) == doubles{1, 220, 301, 0, 50, 601});
    CHECK(values(device, tape.gradient(b)) == doubles{0, 1, 0, 1, 1, 0});

    const std::vector<std::int32_t> index{2, 0, 1};
    const auto hot = ht::one_hot<ht::bfloat16>(tape, shown(index, ht::shape<1>{3}), 3);
    static_assert(std::is_same_v<decltype(hot), const ht::variable<ht::bfloat16, 2>>);
    CHECK(values(device, hot.view()) == doubles{0, 0, 1, 1, 0, 0, 0, 1, 0});
    CHECK_THROWS_AS(ht::one_hot(tape, shown(index, ht::shape<1>{3}), -1), ht::argument_error);
}

/// Gradients against differences.
template <class Device>
void differences(Device& device) {
    support::random data(21);
    doubles x = data.normals<double>(12), z = data.normals<double>(12);
    [[maybe_unused]] static const std::int32_t index[] = {1, 1, 2, 0, 2, 1}, slices[] = {2, 0, 2, 1};
    [[maybe_unused]] static const bool mask[] = {true, false, true, true, false, false, true, true, false, true, false, true};
    const ht::shape<2> s{3, 4};
    const auto matrix = [&](doubles& d) { return ht::view<double, 2>(d.data(), s); };
    const auto agrees = [&](const auto& f) {
        const auto report = ht::check_gradients(device, f, matrix(x), matrix(z));
        CHECK_MESSAGE(report.agrees(), report.text());
        CHECK(report.checked == 24);
    };
    agrees([](auto& ctx, auto a, auto b) {
        const ht::const_view<std::int32_t, 2> at(index, {2, 3});
        return ht::mul(ctx, ht::gather(ctx, ht::mul(ctx, a, b), ht::axes<1>, at), ht::gather(ctx, b, ht::axes<0>, at));
    });
    agrees([](auto& ctx, auto a, auto b) {
        const ht::const_view<std::int32_t, 2> at(index, {2, 3});
        return ht::mul(ctx, ht::scatter_add(ctx, a, ht::axes<1>, at, ht::gather(ctx, b, ht::axes<1>, at)), a);
    });
    agrees([](auto& ctx, auto a, auto b) {
        const ht::const_view<std::int32_t, 1> at(slices, {4});
        const auto rows = ht::index_select(ctx, a, ht::axes<0>, at);
        return ht::mul(ctx, ht::index_add(ctx, b, ht::axes<0>, at, ht::mul(ctx, rows, rows)), a);
    });
    agrees([](auto& ctx, auto a, auto b) {
        const ht::const_view<bool, 2> is(mask, {3, 4});
        return ht::mul(ctx, ht::where(ctx, is, ht::mul(ctx, a, b), b), ht::masked_fill(ctx, ht::tril(ctx, a, 1), is, 0.5));
    });
}

/// Tensors without elements, an index without one.
template <class Device>
void empty(Device& device) {
    std::vector<float> x{1, 2, 3, 4};
    ht::tape tape{device};
    const auto a = tape.leaf(shown(x, ht::shape<2>{2, 2}));
    const auto none = tape.constant(ht::const_view<float, 2>(x.data(), {0, 3}));
    const ht::const_view<std::int32_t, 1> nothing(nullptr, {0});
    const auto y = ht::index_select(tape, a, ht::axes<1>, nothing);
    CHECK(y.shape() == ht::shape<2>{2, 0});
    CHECK(ht::gather(tape, none, ht::axes<1>, ht::const_view<std::int32_t, 2>(nullptr, {0, 5})).shape() ==
          ht::shape<2>{0, 5});
    CHECK(ht::where(tape, ht::const_view<bool, 2>(nullptr, {0, 3}), none, 1.0).size() == 0);
    CHECK(ht::tril(tape, none).size() == 0);
    tape.backward(ht::add(tape, ht::sum(tape, y), ht::sum(tape, ht::index_add(tape, a, ht::axes<1>, nothing, y))));
    CHECK(values(device, tape.gradient(a)) == doubles{1, 1, 1, 1});
}

template <class Device>
void all(Device& device) {
    gathers<float>(device);
    gathers<ht::bfloat16>(device);
    stretches(device);
    selects<float>(device);
    selects<ht::float16>(device);
    scatters(device);
    masks(device);
    differences(device);
    empty(device);
}

}  // namespace choosing_checks
