// SPDX-License-Identifier: MIT
/// \file
/// Tests of a convolution, its gradients, unfold and fold, for every device.
///
///     conv2d_checks::exact<ht::amp_bf16, bfloat16, bfloat16>(device);
///     conv2d_checks::within_bounds<ht::full_fp32, float, float>(device);
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/conv2d/conv2d.hpp>
#include <halftone/kernel/conv2d/reference.hpp>
#include <halftone/kernel/unfold/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace conv2d_checks {

namespace ht = halftone;
using ht::bfloat16, ht::float16, ht::extent, ht::write_mode;
using support::guarded;
using doubles = std::vector<double>;

struct conv2d_case {
    ht::shape<4> x;
    extent outputs;
    ht::shape<2> window;
    ht::conv2d_options options{};

    ht::shape<4> weight() const { return {outputs, x[1] / options.groups, window[0], window[1]}; }
    ht::detail::conv2d_problem problem() const { return ht::detail::conv2d_problem::of("test", x, weight(), options); }
};
inline const conv2d_case cases[] = {
    {{2, 5, 6, 7}, 4, {1, 1}},                                                   // few positions: several images in one product
    {{2, 3, 16, 17}, 5, {1, 1}},                                                 // many positions: x is read in place
    {{2, 4, 16, 16}, 6, {1, 1}, {.groups = 2}},                                  //
    {{2, 3, 9, 8}, 5, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},            //
    {{1, 3, 19, 17}, 4, {7, 7}, {.stride = {2, 2}, .padding = {3, 3}}},          //
    {{3, 4, 7, 6}, 6, {3, 3}, {.padding = {1, 1}, .groups = 2}},                 //
    {{2, 5, 6, 7}, 5, {3, 3}, {.padding = {1, 1}, .groups = 5}},                 // depthwise
    {{2, 3, 5, 5}, 6, {3, 3}, {.stride = {2, 1}, .padding = {1, 0}, .groups = 3}},
    {{2, 2, 5, 11}, 3, {1, 4}, {.stride = {1, 3}, .padding = {0, 2}, .dilation = {1, 2}}},
    {{2, 2, 9, 8}, 3, {3, 2}, {.stride = {3, 2}, .padding = {2, 1}, .dilation = {2, 3}}},
    {{1, 2, 2, 1}, 2, {3, 3}, {.padding = {1, 1}}},                              // a window larger than the image
    {{1, 1, 1, 1}, 1, {1, 1}},                                                   //
    {{5, 2, 16, 16}, 3, {3, 3}, {.padding = {1, 1}}},                            // four images, then one
    {{4, 3, 8, 8}, 2, {1, 1}, {.stride = {2, 2}}},                               //
    {{2, 3, 7, 6}, 4, {1, 1}, {.stride = {2, 2}, .padding = {1, 1}}},            // of four classes the last has the tap
    {{0, 3, 5, 5}, 4, {3, 3}, {.padding = {1, 1}}},                              // no images
    {{1, 0, 4, 4}, 4, {3, 3}, {.padding = {1, 1}}},                              // no channels: the bias
    {{2, 0, 4, 4}, 4, {1, 1}, {.groups = 2}},                                    //
    {{2, 3, 4, 4}, 0, {3, 3}, {.padding = {1, 1}}},                              // no outputs: gradients of 0
    {{2, 4, 16, 16}, 0, {1, 1}, {.groups = 2}},                                  //
    {{1, 0, 4, 4}, 0, {3, 3}},                                                   //
    {{1, 2, 0, 4}, 3, {3, 3}, {.padding = {2, 1}}},                              // no rows: padding alone
    {{3, 60, 7, 7}, 20, {3, 3}, {.padding = {1, 1}}},                            // deep: more terms than are packed at once
    {{1, 3, 5, 40}, 270, {3, 3}, {.stride = {1, 2}, .padding = {1, 1}}},         // many outputs
    {{2, 36, 6, 9}, 34, {3, 2}, {.padding = {2, 1}, .dilation = {2, 1}, .groups = 2}},
    {{2, 528, 3, 3}, 280, {1, 1}, {.stride = {2, 2}}},                           // a weight in place: blocks of outputs and depth
    {{1, 72, 3, 5}, 420, {1, 1}, {.stride = {1, 2}, .groups = 2}},               //
};
/// An image whose matrix is larger than what is unfolded at once: it is cut by rows, and its gradient by channels.
inline const conv2d_case large = {{1, 64, 64, 64}, 2, {3, 3}, {.padding = {1, 1}}};

/// Numbers as an operation that computes in Compute reads them.
template <class Compute, class T>
doubles as_read(const guarded<T>& v) {
    doubles all;
    for (extent i = 0; i < v.size(); ++i) {
        const auto x = static_cast<double>(v[i]);
        if constexpr (std::is_same_v<Compute, double>) {
            all.push_back(x);
        } else {
            all.push_back(static_cast<double>(static_cast<float>(Compute(static_cast<float>(x)))));
        }
    }
    return all;
}
inline doubles magnitudes(doubles v) {
    for (double& x : v) x = std::fabs(x);
    return v;
}
inline ht::view<double, 4> of(doubles& v, const ht::shape<4>& s) { return {v.data(), s}; }

/// The results of a definition, on numbers and on their magnitudes.
struct defined {
    doubles value, size;

    template <class Run>
    static defined by(extent count, const doubles& a, const doubles& b, const Run& run) {
        defined d{doubles(static_cast<std::size_t>(count)), doubles(static_cast<std::size_t>(count))};
        doubles x = a, y = b, p = magnitudes(a), q = magnitudes(b);
        run(x, y, d.value);
        run(p, q, d.size);
        return d;
    }
};

/// The unit roundoff of a device's sums of products in Compute: matrix units of a GPU may truncate.
template <class Device, class Compute>
constexpr double sum_roundoff() {
    if (std::is_same_v<Compute, double>) return ht::unit_roundoff<double>;
    return support::is_on_cpu<Device> || std::is_same_v<Compute, float> ? support::u : 2 * support::u;
}

/// Compares results with the definition: small whole numbers must be equal after rounding, others within the bound of a
/// sum of `terms` products that is then rounded. `before`: the values to which the results were added.
template <class Compute, class T, class Device>
void compare(support::comparison& c, bool integers, const guarded<T>& got, const defined& want, const doubles& before,
             double terms) {
    for (std::size_t i = 0; i < want.value.size(); ++i) {
        const auto value = static_cast<double>(got[static_cast<extent>(i)]);
        const double expected = want.value[i] + before[i], size = want.size[i] + std::fabs(before[i]);
        if (integers) {
            REQUIRE(value == static_cast<double>(T(static_cast<float>(expected))));
        } else {
            const double error = support::product_error<Compute>(terms + 2, sum_roundoff<Device, Compute>()) * size;
            c.expect(value, expected, support::rounded<T>(expected, error));
        }
    }
    CHECK(got.intact());
}
inline doubles zeros(extent n) { return doubles(static_cast<std::size_t>(n)); }

/// The numbers of one case; x also with the channels last in memory.
template <class X, class W, class Y>
struct operands {
    guarded<X> x, channels_last;
    guarded<W> w, b;
    guarded<Y> dy;

    operands(support::random& data, const conv2d_case& t, bool integers)
        : x(numbers<X>(data, t.x.size(), integers), 3),
          channels_last(t.x.size(), 5),
          w(numbers<W>(data, t.weight().size(), integers), 2),
          b(numbers<W>(data, t.outputs, integers)),
          dy(numbers<Y>(data, t.problem().result().size(), integers), 7) {
        const auto from = x.view(t.x), to = last(t);
        for (extent n = 0; n < t.x[0]; ++n)
            for (extent c = 0; c < t.x[1]; ++c)
                for (extent i = 0; i < t.x[2]; ++i)
                    for (extent j = 0; j < t.x[3]; ++j) to(n, c, i, j) = from(n, c, i, j);
    }
    ht::view<X, 4> last(const conv2d_case& t) const {
        return {channels_last.data(), t.x, {t.x[1] * t.x[2] * t.x[3], 1, t.x[1] * t.x[3], t.x[1]}};
    }
    template <class T>
    static std::vector<T> numbers(support::random& data, extent n, bool integers) {
        return integers ? data.integers<T>(n, 3) : data.normals<T>(n);
    }
};

/// One case: the forward pass with and without a bias; both gradients, which overwrite memory or are added to it.
template <class P, class X, class W, class Y, class Device>
void check_case(Device& device, const conv2d_case& t, bool integers, support::comparison& c) {
    using compute = ht::unscaled_compute<P>;
    namespace ref = ht::reference;
    CAPTURE(t.x);
    CAPTURE(t.window);
    const auto p = t.problem();
    support::random data(static_cast<std::uint64_t>(t.x.size() + 31 * t.outputs));
    const operands<X, W, Y> in(data, t, integers);
    const doubles x = as_read<compute>(in.x), w = as_read<compute>(in.w), dy = as_read<compute>(in.dy);
    const auto spread = [&](const guarded<W>& bias) {
        doubles all;
        for (extent i = 0; i < p.result().size(); ++i)
            all.push_back(static_cast<double>(bias[i / p.positions() % p.outputs]));
        return all;
    };

    const defined y = defined::by(p.result().size(), x, w, [&](doubles& a, doubles& b, doubles& to) {
        ref::conv2d(of(a, t.x), of(b, t.weight()), t.options, of(to, p.result()));
    });
    const auto depth = static_cast<double>(p.depth());
    const guarded<Y> plain(p.result().size(), 1), biased(p.result().size(), 4);
    const auto weight = in.w.const_view(t.weight());
    ht::conv2d<P>(device, in.x.const_view(t.x), weight, ht::view<W, 1>{}, plain.view(p.result()), t.options);
    ht::conv2d<P>(device, in.last(t), weight, in.b.const_view(), biased.view(p.result()), t.options);
    compare<compute, Y, Device>(c, integers, plain, y, zeros(p.result().size()), depth);
    compare<compute, Y, Device>(c, integers, biased, y, spread(in.b), depth);

    const defined dx = defined::by(t.x.size(), w, dy, [&](doubles& a, doubles& b, doubles& to) {
        ref::conv2d_input(of(a, t.weight()), of(b, p.result()), t.options, of(to, t.x));
    });
    const defined dw = defined::by(in.w.size(), x, dy, [&](doubles& a, doubles& b, doubles& to) {
        ref::conv2d_weight(of(a, t.x), of(b, p.result()), t.options, of(to, t.weight()));
    });
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        const guarded<X> to_x(operands<X, W, Y>::template numbers<X>(data, t.x.size(), integers));
        const guarded<W> to_w(operands<X, W, Y>::template numbers<W>(data, in.w.size(), integers));
        const bool adds = mode == write_mode::add;
        const doubles x_before = adds ? as_read<double>(to_x) : zeros(t.x.size()),
                      w_before = adds ? as_read<double>(to_w) : zeros(in.w.size());
        const auto g = in.dy.const_view(p.result());
        // Sums over outputs, which are added for each tap; or one sum over outputs and some of the taps (conv2d/implicit).
        const bool is_one_sum = ht::detail::is_implicit<compute, X, W, Y>(device, p);
        const extent terms = is_one_sum ? p.group_outputs() * p.window.taps() : p.group_outputs() + p.window.taps();
        ht::conv2d_input<P>(device, weight, g, to_x.view(t.x), t.options, mode);
        ht::conv2d_weight<P>(device, in.last(t), g, to_w.view(t.weight()), t.options, mode);
        compare<compute, X, Device>(c, integers, to_x, dx, x_before, static_cast<double>(terms));
        // A sum in each product, and the sum of the products, in order.
        compare<compute, W, Device>(c, integers, to_w, dw, w_before,
                                    static_cast<double>(p.images * (p.positions() + p.window.down.positions)));
    }
}

/// Small whole numbers, whose sums are exact in any order.
template <class P, class X, class W, class Y, class Device>
void exact(Device& device) {
    support::comparison unused;
    for (const conv2d_case& t : cases) check_case<P, X, W, Y>(device, t, true, unused);
}
template <class P, class X, class W, class Y, class Device>
void within_bounds(Device& device) {
    support::comparison c;
    for (const conv2d_case& t : cases) check_case<P, X, W, Y>(device, t, false, c);
    CHECK_WITHIN(c);
}

/// The unfolded matrix, whole and for some rows of positions, and the image that a matrix is folded into.
template <class T, class X, class Device>
void unfolds(Device& device) {
    for (const conv2d_case& t : cases) {
        const auto p = t.problem();
        support::random data(static_cast<std::uint64_t>(t.x.size()));
        const operands<T, float, float> in(data, t, true);
        const extent rows = p.channels * p.window.taps(), columns = p.images * p.positions();
        const guarded<T> y(rows * columns, 1), want(rows * columns, 1);
        ht::kernel::unfold<Device>::run(device, ht::kernel::unfold_arguments<T>{.x = in.last(t),
                                                                                .y = y.view(ht::shape<2>{rows, columns}),
                                                                                .window = p.window,
                                                                                .rows = p.window.down.positions});
        ht::reference::unfold(p.window, in.x.view(t.x), want.view(ht::shape<2>{rows, columns}));
        CHECK(y.same_bits(want));
        CHECK(y.intact());
        const extent first = p.window.down.positions / 2, some = p.window.down.positions - first,
                     width = p.images * some * p.window.across.positions;
        const guarded<T> part(rows * width, 1);
        ht::kernel::unfold<Device>::run(device, ht::kernel::unfold_arguments<T>{.x = in.x.view(t.x),
                                                                                .y = part.view(ht::shape<2>{rows, width}),
                                                                                .window = p.window,
                                                                                .first_row = first,
                                                                                .rows = some});
        bool equal = part.intact();
        for (extent i = 0; i < part.size(); ++i) {
            const extent column = i % std::max<extent>(width, 1), image = column / (some * p.window.across.positions),
                         position = column % (some * p.window.across.positions) + first * p.window.across.positions;
            equal = equal && static_cast<double>(part[i]) ==
                                 static_cast<double>(want[i / width * columns + image * p.positions() + position]);
        }
        CHECK(equal);

        using S = ht::kernel::statistic<X, X>;
        const guarded<S> spread(data.integers<S>(rows * columns, 3));
        const guarded<X> sums(data.integers<X>(t.x.size(), 3));
        doubles expected = as_read<double>(sums);
        const ht::shape<5> in_groups{p.images, p.groups, p.group_channels(), t.x[2], t.x[3]};
        ht::kernel::unfold<Device>::fold(
            device, ht::kernel::fold_arguments<S, X>{
                        .y = spread.const_view(ht::shape<3>{p.groups, rows / p.groups, columns}),
                        .x = sums.view(in_groups),
                        .window = p.window,
                        .mode = write_mode::add});
        ht::reference::fold(p.window, spread.view(ht::shape<2>{rows, columns}), of(expected, t.x));
        CHECK(as_read<double>(sums) == expected);
        CHECK(sums.intact());
    }
}

template <class Device>
void refuses(Device& device) {
    const guarded<float> x(48), w(48), b(8), y(48);
    const auto run = [&](const ht::shape<4>& of_x, const ht::shape<4>& of_w, const ht::shape<4>& of_y,
                         const ht::conv2d_options& options = {}) {
        ht::conv2d<ht::full_fp32>(device, ht::view<float, 4>(x.data(), of_x), ht::view<float, 4>(w.data(), of_w),
                                  ht::view<float, 1>{}, ht::view<float, 4>(y.data(), of_y), options);
    };
    CHECK_THROWS_WITH_AS(run({1, 3, 4, 4}, {2, 2, 1, 1}, {1, 2, 4, 4}),
                         "conv2d: the weight is (2, 2, 1, 1); for x (1, 3, 4, 4) in 1 group it is (outputs, 3, height, "
                         "width), of a window that is not empty",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(run({1, 3, 4, 4}, {2, 1, 1, 1}, {1, 2, 4, 4}, {.groups = 2}),
                         "conv2d: x (1, 3, 4, 4) has 3 channels, the weight (2, 1, 1, 1) gives 2; both have to be "
                         "multiples of the 2 groups",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(run({1, 2, 4, 3}, {2, 2, 3, 4}, {1, 2, 2, 0}),
                         "conv2d: a window of (3, 4) with dilation (1, 1) does not fit into (4, 3) with padding (0, 0)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(run({1, 2, 4, 3}, {2, 2, 3, 3}, {1, 2, 1, 1}), "conv2d: y is (1, 2, 1, 1); expected (1, 2, 2, 1)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(run({1, 2, 4, 3}, {2, 2, 1, 1}, {1, 2, 4, 3}, {.stride = {0, 1}}),
                         "conv2d: stride (0, 1), padding (0, 0), dilation (1, 1); expected strides and dilations of 1 or "
                         "more, paddings of 0 or more",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(run({1, 2, 4, 3}, {2, 2, 1, 1}, {1, 2, 4, 3}, {.groups = 0}),
                         "conv2d: 0 groups; expected 1 or more", ht::argument_error);
    CHECK_THROWS_AS(run({1, 2, 4, 3}, {2, 2, 0, 1}, {1, 2, 5, 3}), ht::shape_error);
    CHECK_THROWS_WITH_AS(
        ht::conv2d<ht::full_fp32>(device, ht::view<float, 4>(x.data(), {1, 2, 4, 3}),
                                  ht::view<float, 4>(w.data(), {2, 2, 1, 1}), ht::view<float, 1>(b.data(), {3}),
                                  ht::view<float, 4>(y.data(), {1, 2, 4, 3})),
        "conv2d: bias is (3); expected (2)", ht::shape_error);
}

}  // namespace conv2d_checks
