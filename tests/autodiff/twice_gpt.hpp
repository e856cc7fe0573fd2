// SPDX-License-Identifier: MIT
/// \file
/// The Hessian of a whole GPT times a vector, on any device, against central differences of its gradients in double
/// (nn/oracle.hpp).
#pragma once

#include <halftone/autodiff/op/elementwise_loss.hpp>

#include "autodiff/second_order.hpp"
#include "nn/oracle.hpp"

namespace twice_checks {

namespace ht = halftone;

/// The model is given `b` and the oracle `rows`, the same as rows of a batch. The bound is second_order::check's: roundings
/// of `longest` + 8 a record, relative to the largest sum of magnitudes in the product, or gradient.
template <class Device, class Batch>
void check_gpt(Device& device, const ht::nn::gpt_config& config, const Batch& b, const nn_test::batch& rows,
               double longest) {
    using second_order::doubles;
    ht::nn::gpt<ht::full_fp32> model{device, config};
    nn_test::randomize(model, 3);
    const auto& entries = model.parameters().entries();
    support::random data(6);
    std::vector<std::vector<float>> v;
    for (const auto& e : entries) {
        v.emplace_back();
        for (std::size_t i = 0; i < e.count; ++i) v.back().push_back(static_cast<float>(data.uniform(-1, 1)));
    }

    ht::tape tape{device, ht::double_backward};
    doubles got;
    double operations = 0;
    {
        const auto grads = tape.gradients(model.loss(tape, b), model);
        REQUIRE(grads.size() == entries.size());
        ht::variable<float, 0> total;
        for (std::size_t i = 0; i < grads.size(); ++i) {
            const auto weights = tape.constant(ht::const_view<float, 1>(v[i].data(), grads[i].shape()));
            const auto part = ht::dot(tape, grads[i], weights);
            total = i == 0 ? part : ht::add(tape, total, part);
        }
        operations = static_cast<double>(tape.graph().records());
        support::gradient_sink sink(model.parameters());
        tape.backward(total, sink);
        for (std::size_t i = 0; i < entries.size(); ++i) {
            for (const float h : sink.entry(i)) got.push_back(static_cast<double>(h));
        }
    }
    CHECK(tape.memory().live() == 0);

    const auto start = nn_test::parameters_of<double>(model);
    // The gradients at the parameters plus t times a direction, concatenated.
    const auto gradients_at = [&](const std::vector<std::vector<float>>& direction, double t) {
        auto moved = start;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            auto& values = moved.at(entries[i].path).values;
            for (std::size_t j = 0; j < values.size(); ++j) values[j] += t * static_cast<double>(direction[i][j]);
        }
        const auto all = nn_test::oracle<double>(config, moved)(rows).gradients;
        doubles g;
        for (const auto& e : entries) {
            const auto& values = all.at(e.path).values;
            g.insert(g.end(), values.begin(), values.end());
        }
        return g;
    };
    const auto differences = [&](const std::vector<std::vector<float>>& direction, double h) {
        doubles above = gradients_at(direction, h);
        const doubles below = gradients_at(direction, -h);
        for (std::size_t i = 0; i < above.size(); ++i) above[i] = (above[i] - below[i]) / (2 * h);
        return above;
    };
    const doubles wide = differences(v, 1e-4), narrow = differences(v, 5e-5), first = gradients_at(v, 0);
    double largest = 0;
    for (const double g : first) largest = std::max(largest, std::fabs(g));
    doubles magnitudes(got.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
        for (std::size_t j = 0; j < v[i].size(); ++j) {
            auto axis = v;
            for (auto& part : axis) std::fill(part.begin(), part.end(), 0.0f);
            axis[i][j] = v[i][j];
            const doubles column = differences(axis, 1e-4);
            for (std::size_t k = 0; k < column.size(); ++k) magnitudes[k] += std::fabs(column[k]);
        }
    }
    for (const double m : magnitudes) largest = std::max(largest, m);
    support::comparison c;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double correction = (narrow[i] - wide[i]) / 3;
        // A gradient is a sum of fewer than 10^5 roundings in double.
        const double inexact = std::fabs(correction) + 1e5 * ht::unit_roundoff<double> * largest / 1e-4;
        c.expect(got[i], narrow[i] + correction, inexact + support::gamma(operations * (longest + 8)) * largest);
    }
    CHECK_WITHIN(c);
}

template <class Device>
void check_gpt(Device& device, const ht::nn::gpt_config& config, int rows, int time, double longest) {
    const auto b = nn_test::batch::random(rows, time, static_cast<int>(config.vocabulary), 4);
    check_gpt(device, config, b, b, longest);
}

inline constexpr ht::nn::gpt_config quick_gpt{.vocabulary = 5, .context = 4, .layers = 1, .heads = 2, .width = 4};
inline constexpr ht::nn::gpt_config larger_gpt{.vocabulary = 11, .context = 6, .layers = 2, .heads = 2, .width = 8};

}  // namespace twice_checks
