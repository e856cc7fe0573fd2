// SPDX-License-Identifier: MIT
/// \file
/// linear_cross_entropy with options on the CPU: values and gradients are the definition's; logits are small whole numbers and
/// therefore exact.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel.hpp>
#include <halftone/autodiff/op/cross_entropy.hpp>
#include <halftone/autodiff/op/linear.hpp>
#include <halftone/kernel/weighted_cross_entropy/reference.hpp>
#include <halftone/nn/linear.hpp>

#include "support/bounds.hpp"
#include "support/gradient_sink.hpp"
#include "support/random.hpp"

namespace autodiff_loss_options_head_tests {

namespace ht = halftone;
using ht::extent;
using doubles = std::vector<double>;
constexpr extent rows = 9, width = 5, classes = 37;

template <class P>
void head(bool has_weights, ht::reduction reduction) {
    using X = typename P::output;
    using roles = ht::roles<typename P::compute, X, typename P::grad>;
    ht::cpu device{{.threads = 2}};
    ht::store parameters(device.memory());
    ht::nn::linear<P> layer(parameters, width, classes);
    parameters.commit();
    support::random data(3);
    const std::vector<float> w = data.integers<float>(classes * width, 2);
    layer.weight.assign(w);
    std::vector<X> x = data.integers<X>(rows * width, 2);
    std::vector<std::int32_t> targets = data.indices(rows, classes);
    targets[4] = -100;
    std::vector<float> weight;
    doubles exact_weight, logits, losses(rows), dlogits(rows * classes), slopes(rows);
    for (extent j = 0; j < classes; ++j)
        weight.push_back(0.25f * static_cast<float>(j % 4)), exact_weight.push_back(weight.back());
    for (extent i = 0; i < rows * classes; ++i) {
        double sum = 0;
        for (extent d = 0; d < width; ++d)
            sum += static_cast<double>(x[static_cast<std::size_t>(i / classes * width + d)]) *
                   static_cast<double>(w[static_cast<std::size_t>(i % classes * width + d)]);
        logits.push_back(sum);
    }
    ht::kernel::cross_entropy_terms<double> terms{0.125, 0.0625};
    ht::cross_entropy_options options{.label_smoothing = 0.125, .reduction = reduction, .z_loss = 0.0625};
    if (has_weights) {
        terms.weight = ht::const_view<double, 1>(exact_weight.data(), {classes});
        options.weight = ht::const_view<float, 1>(weight.data(), {classes});
    }
    const ht::const_view<double, 2> exact(logits.data(), {rows, classes});
    const ht::const_view<std::int32_t, 1> ids(targets.data(), {rows});
    const double mean =
        ht::reference::weighted_cross_entropy(exact, ids, -100, terms, ht::view<double, 1>(losses.data(), {rows}));
    double sum = 0, divisor = 0;
    for (extent i = 0; i < rows; ++i) {
        sum += losses[static_cast<std::size_t>(i)];
        const std::int32_t t = targets[static_cast<std::size_t>(i)];
        if (t >= 0) divisor += ht::reference::class_weight(terms, t);
    }
    const bool sums = reduction == ht::reduction::sum;
    slopes.assign(rows, sums ? 1 : 1 / divisor);
    ht::reference::weighted_cross_entropy_backward(exact, ids, -100, terms, ht::const_view<double, 1>(slopes.data(), {rows}),
                                                   ht::view<double, 2>(dlogits.data(), {rows, classes}));

    ht::tape tape{device};
    support::gradient_sink sink(parameters);
    const auto leaf = tape.leaf(ht::view<X, 2>(x.data(), {rows, width}));
    const auto loss = ht::linear_cross_entropy<roles>(tape, leaf, layer.weight, ids, options);
    static_assert(std::is_same_v<decltype(loss), const ht::variable<float, 0>>);
    // Logits are exact; losses and exponentials are floats' within some hundred roundings.
    const double want = sums ? sum : mean, u = support::u;
    CHECK(std::fabs(static_cast<double>(loss.item()) - want) <= 200 * u * (1 + want));
    tape.backward(loss, sink);
    const auto error = [&](std::size_t i) { return 200 * u * slopes[0] + support::rounding<X>(dlogits[i]); };
    support::comparison dxs, dws;
    const auto dx = tape.gradient(leaf);
    const doubles dw = sink.of(layer.weight);
    for (extent i = 0; i < rows; ++i) {
        for (extent d = 0; d < width; ++d) {
            double value = 0, off = 0;
            for (extent j = 0; j < classes; ++j) {
                const auto at = static_cast<std::size_t>(i * classes + j);
                const double k = static_cast<double>(w[static_cast<std::size_t>(j * width + d)]);
                value += dlogits[at] * k;
                off += (error(at) + support::gamma(classes + 1) * std::fabs(dlogits[at])) * std::fabs(k);
            }
            dxs.expect(static_cast<double>(dx(i, d)), value, support::rounded<X>(value, off));
        }
    }
    for (extent j = 0; j < classes; ++j) {
        for (extent d = 0; d < width; ++d) {
            double value = 0, off = 0;
            for (extent i = 0; i < rows; ++i) {
                const auto at = static_cast<std::size_t>(i * classes + j);
                const double k = static_cast<double>(x[static_cast<std::size_t>(i * width + d)]);
                value += dlogits[at] * k;
                off += (error(at) + support::gamma(rows + 1) * std::fabs(dlogits[at])) * std::fabs(k);
            }
            dws.expect(dw[static_cast<std::size_t>(j * width + d)], value, support::rounded<float>(value, off));
        }
    }
    CHECK_WITHIN(dxs);
    CHECK_WITHIN(dws);
}

TEST_CASE("linear_cross_entropy with label smoothing, class weights and a z-loss: the definition's values and gradients") {
    for (const bool has_weights : {false, true}) {
        for (const ht::reduction r : {ht::reduction::mean, ht::reduction::sum}) {
            head<ht::full_fp32>(has_weights, r);
            head<ht::amp_bf16>(has_weights, r);
        }
    }
}

}  // namespace autodiff_loss_options_head_tests
