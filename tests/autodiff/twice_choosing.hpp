// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives of gathering along an axis, of masks and of losses with options, each compared with central differences in
/// double, on any device.
#pragma once

#include <halftone/autodiff/op/cross_entropy.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/mask.hpp>
#include <halftone/autodiff/op/sampling.hpp>
#include <halftone/kernel/weighted_cross_entropy/reference.hpp>

#include "autodiff/second_order.hpp"

namespace twice_checks {

namespace ht = halftone;
using second_order::check;
using second_order::doubles;
using second_order::weigh;
using second_order::weighed;

/// x (3, 4); what is chosen passes through tanh, so that there is a second derivative.
template <class Device>
void check_choosing(Device& device) {
    static const std::int32_t index[] = {1, 1, 2, 0, 3, 2, 1, 0, 2, 3, 3, 1}, rows[] = {2, 0, 2, 1};
    static const bool mask[] = {true, false, true, true, false, false, true, true, false, true, false, true};
    static const bool column[] = {false, false, true, false};
    const ht::const_view<std::int32_t, 2> at(index, {3, 4});
    const ht::const_view<std::int32_t, 1> slices(rows, {4});
    check(
        device, nullptr, {3, 4}, 12,
        [&](auto& t, const auto& x) { return weigh(t, ht::tanh(t, ht::gather(t, ht::exp(t, x), ht::axes<1>, at))); },
        [](const doubles& x) {
            doubles y;
            for (std::size_t i = 0; i < 12; ++i)
                y.push_back(std::tanh(std::exp(x[i / 4 * 4 + static_cast<std::size_t>(index[i])])));
            return weighed(y);
        });
    // Rows of x selected, squared and added to others of it.
    check(
        device, nullptr, {3, 4}, 12,
        [&](auto& t, const auto& x) {
            const auto chosen = ht::index_select(t, x, ht::axes<0>, slices);
            return weigh(t, ht::tanh(t, ht::index_add(t, x, ht::axes<0>, slices, ht::mul(t, chosen, chosen))));
        },
        [](const doubles& x) {
            doubles y = x;
            for (std::size_t i = 0; i < 16; ++i) {
                const double v = x[static_cast<std::size_t>(rows[i / 4]) * 4 + i % 4];
                y[static_cast<std::size_t>(rows[i / 4]) * 4 + i % 4] += v * v;
            }
            for (double& v : y) v = std::tanh(v);
            return weighed(y);
        });
    check(
        device, nullptr, {3, 4}, 12,
        [&](auto& t, const auto& x) {
            const auto y = ht::where(t, ht::const_view<bool, 2>(mask, {3, 4}), ht::exp(t, x), ht::mul(t, x, x));
            return weigh(t, ht::tanh(t, ht::masked_fill(t, ht::tril(t, y, 1), ht::const_view<bool, 1>(column, {4}), 0.5)));
        },
        [](const doubles& x) {
            doubles y;
            for (std::size_t i = 0; i < 12; ++i) {
                const double v = mask[i] ? std::exp(x[i]) : x[i] * x[i];
                y.push_back(std::tanh(column[i % 4] ? 0.5 : i % 4 <= i / 4 + 1 ? v : 0));
            }
            return weighed(y);
        });
}

template <class Device>
void check_loss_options(Device& device) {
    static const std::int32_t targets[] = {2, -7, 0, 4};
    static const float weight[] = {0.5f, 2, 1, 0.25f, 1.5f};
    static const double exact[] = {0.5, 2, 1, 0.25, 1.5};
    const ht::const_view<std::int32_t, 1> ids(targets, {4});
    const auto losses = [](doubles x, const ht::kernel::cross_entropy_terms<double>& terms, doubles& each) {
        each.assign(4, 0);
        return ht::reference::weighted_cross_entropy(ht::const_view<double, 2>(x.data(), {4, 5}),
                                                     ht::const_view<std::int32_t, 1>(targets, {4}), -7, terms,
                                                     ht::view<double, 1>(each.data(), {4}));
    };
    const ht::kernel::cross_entropy_terms<double> all{0.25, 0.125, ht::const_view<double, 1>(exact, {5})};
    check(
        device, nullptr, {4, 5}, 20,
        [&](auto& t, const auto& x) {
            return ht::cross_entropy(t, x, ids, {.label_smoothing = 0.25,
                                                 .weight = ht::const_view<float, 1>(weight, {5}),
                                                 .z_loss = 0.125,
                                                 .ignore_index = -7});
        },
        [&](const doubles& x) {
            doubles each;
            return losses(x, all, each);
        });
    check(
        device, nullptr, {4, 5}, 20,
        [&](auto& t, const auto& x) {
            return weigh(t, ht::tanh(t, ht::cross_entropy<ht::reduction::none>(
                                            t, x, ids, {.label_smoothing = 0.25, .ignore_index = -7})));
        },
        [&](const doubles& x) {
            doubles each;
            losses(x, {0.25, 0, {}}, each);
            for (double& l : each) l = std::tanh(l);
            return weighed(each);
        });
    check(
        device, nullptr, {2, 3}, 6,
        [](auto& t, const auto& x) {
            return ht::add(t, ht::mse_loss(t, ht::tanh(t, x), x, ht::reduction::sum),
                           weigh(t, ht::huber_loss<ht::reduction::none>(t, ht::tanh(t, x), x, 0.0625)));
        },
        [](const doubles& x) {
            doubles each;
            double sum = 0;
            for (const double a : x) {
                const double d = std::fabs(std::tanh(a) - a);
                sum += d * d, each.push_back(d < 0.0625 ? d * d / 2 : 0.0625 * (d - 0.03125));
            }
            return sum + weighed(each);
        });
}

}  // namespace twice_checks
