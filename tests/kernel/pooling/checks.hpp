// SPDX-License-Identifier: MIT
/// \file
/// Pooling on any device, against its definition.
///
///     pooling_checks::all(device);
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/pooling/pooling.hpp>
#include <halftone/kernel/pooling/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace pooling_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using support::guarded;
using doubles = std::vector<double>;

struct pool_case {
    ht::shape<4> x;
    ht::max_pool_options o;
};
/// Empty tensors, one element; windows that touch, that overlap, with gaps between them, beyond the edges, and, in the last
/// case, completely outside the image.
inline const pool_case cases[] = {{{1, 1, 1, 1}, {1}},
                                  {{2, 3, 7, 9}, {2}},
                                  {{2, 3, 7, 9}, {3, 2, 1}},
                                  {{1, 2, 8, 20}, {{3, 2}, {2, 1}, {1, 0}}},
                                  {{2, 1, 9, 37}, {{2, 3}, {3, 2}, {1, 1}, {2, 3}}},
                                  {{1, 2, 6, 5}, {3, 2, 1, 1, true}},
                                  {{1, 2, 5, 67}, {5, 1, 2}},
                                  {{2, 2, 16, 16}, {16}},
                                  {{0, 3, 4, 4}, {2}},
                                  {{2, 0, 4, 4}, {2}},
                                  {{1, 1, 2, 2}, {2, 1, 2, 4}}};

template <class F>
void for_each_case(const F& f) {
    for (const pool_case& c : cases) {
        CAPTURE(c.x);
        f(c.x, c.o, ht::kernel::pooled_shape(c.x, ht::kernel::pool_layout_of("test", c.x, c.o)));
    }
}

/// Compares gradients: `want` and `sizes` are the sums of shares and of their magnitudes over `uses` windows. Each share has
/// been rounded twice; in write mode `add` the sum is added to the value before.
template <class G>
void compare_sums(support::comparison& all, const guarded<G>& got, const std::vector<G>& before, write_mode mode,
                  const doubles& want, const doubles& sizes, const doubles& uses) {
    for (std::size_t i = 0; i < want.size(); ++i) {
        const double old = mode == write_mode::add ? static_cast<double>(before[i]) : 0;
        const double error = support::gamma(uses[i] + 3) * (sizes[i] + std::fabs(old));
        all.expect(static_cast<double>(got[static_cast<extent>(i)]), want[i] + old,
                   support::rounded<G>(want[i] + old, error));
    }
    CHECK(got.intact());
}
template <class T>
doubles magnitudes(const guarded<T>& v) {
    doubles all;
    for (extent i = 0; i < v.size(); ++i) all.push_back(std::fabs(static_cast<double>(v[i])));
    return all;
}

/// Values and indices equal the definition's, also where several elements are equally large; then the gradient.
template <class X, class Y, class Device>
void largest(Device& device, write_mode mode) {
    support::comparison all;
    for_each_case([&](const ht::shape<4>& s, const ht::max_pool_options& o, const ht::shape<4>& windows) {
        support::random data(static_cast<std::uint64_t>(s.size() + 1));
        const guarded<X> x(data.integers<X>(s.size(), 3));
        const guarded<Y> y(windows.size(), 3), want(windows.size(), 3);
        const guarded<std::int32_t> index(windows.size(), 2), places(windows.size(), 2);
        ht::max_pool2d(device, x.const_view(s), o, y.view(windows), index.view(windows));
        ht::reference::max_pool2d(x.const_view(s), o, want.view(windows), places.view(windows));
        CHECK(y.same_bits(want));
        CHECK(index.same_bits(places));
        CHECK((y.intact() && index.intact()));

        const guarded<Y> dy(data.normals<Y>(windows.size()));
        const std::vector<X> before = data.normals<X>(s.size());
        const guarded<X> dx(before, 5);
        ht::max_pool2d_gradient(device, dy.const_view(windows), o, index.const_view(windows), dx.view(s), mode);
        const auto n = static_cast<std::size_t>(s.size());
        doubles sums(n), sizes(n), uses(n), of_dy = magnitudes(dy), ones(of_dy.size(), 1.0);
        const auto add = [&](const auto* from, doubles& to) {
            ht::reference::max_pool2d_gradient(ht::view(from, windows), places.const_view(windows),
                                               ht::view<double, 4>(to.data(), s));
        };
        add(dy.data(), sums), add(of_dy.data(), sizes), add(ones.data(), uses);
        compare_sums(all, dx, before, mode, sums, sizes, uses);
    });
    CHECK_MESSAGE(all.within(), all);
    CHECK_MESSAGE(all.telling(0.1), all);  // most elements are in no window the largest, and their gradient is 0
}

/// One shape of mean pooling. `run` and `back` call the device's functions; o are the definition's options; a window has at
/// most most * most elements.
template <class X, class Y, class Options, class Run, class Back>
void mean_of(const ht::shape<4>& s, const ht::shape<4>& windows, const Options& o, extent most, write_mode mode,
             support::comparison& means, support::comparison& gradients, const Run& run, const Back& back) {
    support::random data(static_cast<std::uint64_t>(s.size() + 2));
    const guarded<X> x(data.normals<X>(s.size(), 1, 0.5));
    const guarded<Y> y(windows.size(), 3);
    run(x.const_view(s), y.view(windows));
    doubles want(static_cast<std::size_t>(windows.size())), sizes(want.size()), of_x = magnitudes(x);
    ht::reference::mean_pool2d(x.const_view(s), o, ht::view<double, 4>(want.data(), windows));
    ht::reference::mean_pool2d(ht::const_view<double, 4>(of_x.data(), s), o,
                               ht::view<double, 4>(sizes.data(), windows));
    for (std::size_t i = 0; i < want.size(); ++i)
        means.expect(static_cast<double>(y[static_cast<extent>(i)]), want[i],
                     support::rounded<Y>(want[i], support::gamma(static_cast<double>(most) + 2) * sizes[i]));
    CHECK(y.intact());

    const guarded<Y> dy(data.normals<Y>(windows.size(), 1, 0.5));
    const std::vector<X> before = data.normals<X>(s.size());
    const guarded<X> dx(before, 5);
    back(dy.const_view(windows), dx.view(s));
    const auto n = static_cast<std::size_t>(s.size());
    // A gradient of most * most gives each element of a window at least 1, so that `uses` is at least the number of windows.
    doubles sums(n), of_sums(n), uses(n), of_dy = magnitudes(dy),
                                          shares(of_dy.size(), static_cast<double>(most * most));
    const auto add = [&](const auto* from, doubles& to) {
        ht::reference::mean_pool2d_gradient(ht::view(from, windows), o, ht::view<double, 4>(to.data(), s));
    };
    add(dy.data(), sums), add(of_dy.data(), of_sums), add(shares.data(), uses);
    compare_sums(gradients, dx, before, mode, sums, of_sums, uses);
}

template <class X, class Y, class Device>
void means(Device& device, write_mode mode) {
    support::comparison of_means, of_gradients;
    for (const extent divisor : {0, 7}) {
        for (const bool counts_padding : {true, false}) {
            for_each_case([&](const ht::shape<4>& s, const ht::max_pool_options& with, const ht::shape<4>&) {
                const ht::height_width padding{with.padding.height > 0, with.padding.width > 0};
                const ht::avg_pool_options o{with.kernel_size, with.stride,    padding,
                                             with.ceil_mode,   counts_padding, divisor};
                const ht::shape<4> windows = ht::kernel::pooled_shape(s, ht::kernel::pool_layout_of("test", s, o));
                const extent most = with.kernel_size.height + with.kernel_size.width;
                mean_of<X, Y>(
                    s, windows, o, most, mode, of_means, of_gradients,
                    [&](const auto& x, const auto& y) { ht::avg_pool2d(device, x, o, y); },
                    [&](const auto& dy, const auto& dx) { ht::avg_pool2d_gradient(device, dy, o, dx, mode); });
            });
        }
    }
    using out_of = ht::height_width;
    for (const out_of out : {out_of(1), out_of(3, 4), out_of(7, 9), out_of(10, 2), out_of(5)}) {
        const ht::shape<4> s{2, 3, 7, 9}, windows{2, 3, out.height, out.width};
        mean_of<X, Y>(
            s, windows, ht::reference::adaptive{}, 16, mode, of_means, of_gradients,
            [&](const auto& x, const auto& y) { ht::adaptive_avg_pool2d(device, x, y); },
            [&](const auto& dy, const auto& dx) { ht::adaptive_avg_pool2d_gradient(device, dy, dx, mode); });
    }
    CHECK_WITHIN(of_means);
    CHECK_WITHIN(of_gradients);
}

/// NaNs and infinities are treated as in PyTorch.
template <class Device>
void what_is_special(Device& device) {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const guarded<float> x(std::vector<float>{nan, 1, -inf, -inf, 2, nan, -inf, -inf, 3, inf, 0, -0.0f}), y(4);
    const guarded<std::int32_t> index(4);
    const ht::shape<4> s{1, 1, 3, 4}, windows{1, 1, 1, 2};
    const ht::max_pool_options o{{3, 2}};
    ht::max_pool2d(device, x.const_view(s), o, ht::view<float, 4>(y.data(), windows),
                   ht::view<std::int32_t, 4>(index.data(), windows));
    CHECK((std::isnan(y[0]) && y[1] == 0));
    CHECK((index[0] == 5 && index[1] == 10));
    const ht::max_pool_options rows{{2, 2}};
    ht::max_pool2d(device, x.const_view(s), rows, ht::view<float, 4>(y.data(), windows),
                   ht::view<std::int32_t, 4>(index.data(), windows));
    CHECK((y[1] == -inf && index[1] == 2));
}

template <class Device>
void all(Device& device) {
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        largest<float, float>(device, mode);
        largest<bfloat16, bfloat16>(device, mode);
        means<float, float>(device, mode);
        means<bfloat16, bfloat16>(device, mode);
        means<float16, float>(device, mode);
    }
    largest<double, double>(device, write_mode::overwrite);
    means<double, double>(device, write_mode::add);
    what_is_special(device);
}

/// Results and gradients of windows that overlap, for comparisons of bits.
template <class Device>
std::vector<float> overlapping(Device& device) {
    support::random data(3);
    const ht::shape<4> s{3, 4, 33, 41}, windows{3, 4, 17, 21};
    const ht::max_pool_options o{3, 2, 1};
    const ht::avg_pool_options a{3, 2, 1, false, false};
    const auto x = data.normals<bfloat16>(s.size());
    const auto dy = data.normals<float>(windows.size());
    std::vector<std::int32_t> index(dy.size());
    std::vector<float> y(dy.size()), all(2 * x.size() + dy.size());
    const ht::const_view<bfloat16, 4> from(x.data(), s);
    const ht::const_view<float, 4> slopes(dy.data(), windows);
    ht::max_pool2d(device, from, o, ht::view<float, 4>(y.data(), windows),
                   ht::view<std::int32_t, 4>(index.data(), windows));
    ht::max_pool2d_gradient(device, slopes, o, ht::const_view<std::int32_t, 4>(index.data(), windows),
                            ht::view<float, 4>(all.data(), s));
    ht::avg_pool2d_gradient(device, slopes, a, ht::view<float, 4>(all.data() + x.size(), s));
    ht::avg_pool2d(device, from, a, ht::view<float, 4>(all.data() + 2 * x.size(), windows));
    return all;
}

template <class Device>
void refuses(Device& device) {
    const guarded<float> x(24), y(24);
    const ht::shape<4> s{1, 2, 3, 4}, windows{1, 2, 1, 2};
    const auto in = x.const_view(s);
    const auto out = y.view(windows);
    CHECK_THROWS_WITH_AS(ht::max_pool2d(device, in, {}, out),
                         "max_pool2d: kernel_size is 0 along the height; expected 1 to 16777216", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::max_pool2d(device, in, {2, 1, 2}, out),
                         "max_pool2d: padding is 2 along the height; expected 0 to 1, half the window",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::max_pool2d(device, in, {2, {1, -1}}, out),
                         "max_pool2d: stride is -1 along the width; expected 1 or more", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::max_pool2d(device, in, {2, 1, 0, 0}, out),
                         "max_pool2d: dilation is 0 along the height; expected 1 or more", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::avg_pool2d(device, in, {4}, out),
                         "avg_pool2d: no window of 4 fits into a height of 3 with padding of 0", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::avg_pool2d(device, in, {.kernel_size = 2, .divisor_override = -1}, out),
                         "avg_pool2d: divisor_override is -1; expected 1 or more, or 0: none", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::avg_pool2d(device, in, {1}, out), "avg_pool2d: y is (1, 2, 1, 2); expected (1, 2, 3, 4)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::adaptive_avg_pool2d(device, in, y.view(ht::shape<4>{1, 2, 0, 1})),
                         "adaptive_avg_pool2d: the output is (0, 1); expected 1 or more of both", ht::argument_error);
}

}  // namespace pooling_checks
