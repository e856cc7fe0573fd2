// SPDX-License-Identifier: MIT
/// \file
/// The definition of Adafactor's step, in double.
///
///     reference::adafactor(w, g, rows, columns, {.beta2_decay = -0.8, .epsilon1 = 0x1p-23}, lr, decay, t);
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <halftone/kernel/gradient_norm/reference.hpp>
#include <halftone/kernel/optimizer_step/rule/adafactor.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The factors by which a step of Adafactor multiplies gradients, for error bounds.
struct adafactor_found {
    double rate;                  ///< the step for an update of 1
    std::vector<double> updates;  ///< gradient / sqrt(variance)
};

/// Algorithms 4 to 6 of Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018,
/// as torch.optim.Adafactor computes them: with means in place of sums, epsilon1 only inside the square root, and a
/// rate of at most lr. A vector is a matrix with one row, whose `rows` is without data; `columns` has the variances of
/// its elements. t counts steps from 1.
template <class W, class G, class V>
adafactor_found adafactor(const view<W, 2>& weights, const view<G, 2>& gradients, const view<V, 1>& rows,
                          const view<V, 1>& columns, const kernel::adafactor_rule& r, double lr, double weight_decay, double t,
                          const kernel::gradient_factors& factors = {}) {
    const extent height = weights.extent_of(0), width = weights.extent_of(1);
    const double weight = std::pow(t, r.beta2_decay), count = static_cast<double>(height * width);
    std::vector<double> of_rows(static_cast<std::size_t>(height)), of_columns(static_cast<std::size_t>(width));
    double sizes = 0;
    for (extent i = 0; i < height; ++i) {
        for (extent j = 0; j < width; ++j) {
            const double g = read_gradient(gradients(i, j), factors), w = static_cast<double>(weights(i, j));
            of_rows[static_cast<std::size_t>(i)] += g * g / static_cast<double>(width);
            of_columns[static_cast<std::size_t>(j)] += g * g / static_cast<double>(height);
            sizes += w * w;
        }
    }
    const bool is_vector = rows.data() == nullptr;
    const auto moved = [&](const V& old, double mean) {
        return static_cast<V>(static_cast<double>(old) + weight * (mean - static_cast<double>(old)));
    };
    double row_mean = 0;
    for (extent j = 0; j < width; ++j) columns(j) = moved(columns(j), of_columns[static_cast<std::size_t>(j)]);
    for (extent i = 0; i < height && !is_vector; ++i) {
        rows(i) = moved(rows(i), of_rows[static_cast<std::size_t>(i)]);
        row_mean += static_cast<double>(rows(i)) / static_cast<double>(height);
    }
    adafactor_found found{std::max(r.epsilon2, std::sqrt(sizes / count)) * std::min(lr, 1 / std::sqrt(t)), {}};
    double squares = 0;
    for (extent i = 0; i < height; ++i) {
        const double share = is_vector ? 1 : static_cast<double>(rows(i)) / std::max(row_mean, r.epsilon1);
        for (extent j = 0; j < width; ++j) {
            const double variance = std::max(share * static_cast<double>(columns(j)), r.epsilon1 * r.epsilon1);
            found.updates.push_back(read_gradient(gradients(i, j), factors) / std::sqrt(variance));
            squares += found.updates.back() * found.updates.back();
        }
    }
    found.rate /= std::max(1.0, std::sqrt(squares / count) / r.d);
    for (extent i = 0; i < height; ++i) {
        for (extent j = 0; j < width; ++j) {
            weights(i, j) = static_cast<W>(static_cast<double>(weights(i, j)) * (1 - lr * weight_decay) -
                                           found.rate * found.updates[static_cast<std::size_t>(i * width + j)]);
        }
    }
    return found;
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
