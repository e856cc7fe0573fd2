// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives of convolutions against central differences in double, on any device.
///
///     twice_checks::check_conv2d(device);
#pragma once

#include <halftone/autodiff/op/conv2d.hpp>
#include <halftone/kernel/conv2d/reference.hpp>

#include "autodiff/second_order.hpp"

namespace twice_checks {

namespace ht = halftone;
using second_order::doubles;

/// A convolution of images (2, 2, 3, 3) with filters (2, 2 / groups, 2, 2).
struct conv2d_case {
    ht::conv2d_options options;

    ht::shape<4> images() const { return {2, 2, 3, 3}; }
    ht::shape<4> filters() const { return {2, 2 / options.groups, 2, 2}; }
    ht::shape<4> results() const {
        return ht::detail::conv2d_problem::of("conv2d", images(), filters(), options).result();
    }
    doubles define(const doubles& x, const double* w, const double* bias) const {
        const ht::shape<4> s = results();
        doubles y(static_cast<std::size_t>(s.size()));
        ht::reference::conv2d(ht::const_view<double, 4>(x.data(), images()), ht::const_view<double, 4>(w, filters()),
                              options, ht::view<double, 4>(y.data(), s));
        for (std::size_t i = 0; i < y.size(); ++i)
            y[i] += bias == nullptr ? 0 : bias[i / static_cast<std::size_t>(s[2] * s[3]) % 2];
        return y;
    }
};

/// By the images, which are behind a tanh, a parameter that is the weight, and one that is the bias.
template <class Device>
void check_conv2d_of_parameters(Device& device, const conv2d_case& c) {
    using P = ht::full_fp32;
    ht::store parameters(device.memory());
    const auto weight = parameters.add<P, ht::op::conv2d>("weight", c.filters(), {.deviation = 0.5f});
    const auto bias = parameters.add<P, ht::op::conv2d>("bias", ht::shape<1>{2}, {.deviation = 0.5f});
    parameters.commit(1);
    second_order::check(
        device, &parameters, {4, 9}, 36,
        [&](auto& t, const auto& x) {
            using roles = ht::roles<float, float, float>;
            const auto in = ht::reshape(t, ht::tanh(t, x), c.images());
            return second_order::weigh(t, ht::conv2d<roles>(t, in, weight, bias, c.options));
        },
        [&](const doubles& all) {
            doubles x(all.begin(), all.begin() + 36);
            for (double& v : x) v = std::tanh(v);
            return second_order::weighed(c.define(x, &all[36], &all[36 + static_cast<std::size_t>(c.filters().size())]));
        });
}

/// Where the images are the weight, too.
template <class Device>
void check_conv2d_of_variables(Device& device, const conv2d_case& c) {
    const ht::extent columns = c.filters().size() / 4;
    second_order::check(
        device, nullptr, {4, 9}, 36,
        [&](auto& t, const auto& x) {
            const auto w = ht::reshape(t, ht::slice(t, ht::exp(t, x), ht::axes<1>, 0, columns), c.filters());
            return second_order::weigh(t, ht::conv2d(t, ht::reshape(t, x, c.images()), w, c.options));
        },
        [&](const doubles& all) {
            doubles w;
            for (std::size_t row = 0; row < 4; ++row) {
                for (std::size_t j = 0; j < static_cast<std::size_t>(columns); ++j) w.push_back(std::exp(all[row * 9 + j]));
            }
            return second_order::weighed(c.define(all, w.data(), nullptr));
        });
}

/// With groups (depthwise), a stride and padding; and dense, with dilation.
template <class Device>
void check_conv2d(Device& device) {
    for (const ht::conv2d_options& options :
         {ht::conv2d_options{.stride = {1, 2}, .padding = {0, 1}, .groups = 2},
          ht::conv2d_options{.padding = {1, 0}, .dilation = {2, 1}}}) {
        check_conv2d_of_parameters(device, {options});
        check_conv2d_of_variables(device, {options});
    }
}

}  // namespace twice_checks
