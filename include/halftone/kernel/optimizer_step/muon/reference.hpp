// SPDX-License-Identifier: MIT
/// \file
/// The definition of Muon's step, in double.
///
///     reference::muon(w, g, m, {.momentum = 0.95}, {.steps = 5}, lr, ratio, weight_decay);
#pragma once

#include <cmath>
#include <vector>

#include <halftone/kernel/optimizer_step/muon/orthogonal.hpp>
#include <halftone/kernel/optimizer_step/rule/muon.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The product of a (rows, inner) and b (inner, columns), in row-major order.
inline std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, extent rows, extent inner,
                                   extent columns) {
    std::vector<double> c(static_cast<std::size_t>(rows * columns));
    for (extent i = 0; i < rows; ++i) {
        for (extent k = 0; k < inner; ++k) {
            for (extent j = 0; j < columns; ++j)
                c[static_cast<std::size_t>(i * columns + j)] +=
                    a[static_cast<std::size_t>(i * inner + k)] * b[static_cast<std::size_t>(k * columns + j)];
        }
    }
    return c;
}

/// X = X / max(|X|, epsilon); then o.steps times X = a X + (b G + c G G) X with G = X Xᵀ.
inline void orthogonalize(std::vector<double>& x, extent rows, extent columns, const newton_schulz_options& o) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    for (double& v : x) v /= std::fmax(std::sqrt(squares), o.epsilon);
    for (int step = 0; step < o.steps; ++step) {
        std::vector<double> t(x.size());
        for (extent i = 0; i < rows; ++i) {
            for (extent j = 0; j < columns; ++j)
                t[static_cast<std::size_t>(j * rows + i)] = x[static_cast<std::size_t>(i * columns + j)];
        }
        const std::vector<double> g = product(x, t, rows, columns, rows);
        std::vector<double> h = product(g, g, rows, rows, rows);
        for (std::size_t i = 0; i < h.size(); ++i) h[i] = o.b * g[i] + o.c * h[i];
        const std::vector<double> more = product(h, x, rows, rows, columns);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = o.a * x[i] + more[i];
    }
}

/// Muon (Jordan et al. 2024), as in torch.optim.Muon: momentum as a moving average, with Nesterov's correction, and
/// weight decay multiplied by the learning rate.
template <class W, class G, class M>
void muon(const view<W, 2>& weights, const view<G, 2>& gradients, const view<M, 2>& momentum,
          const kernel::muon_momentum_rule& r, const newton_schulz_options& o, double lr, double ratio, double weight_decay) {
    const extent rows = weights.extent_of(0), columns = weights.extent_of(1);
    std::vector<double> u;
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < columns; ++j) {
            const double g = static_cast<double>(gradients(i, j));
            const double m = r.momentum * static_cast<double>(momentum(i, j)) + (1 - r.momentum) * g;
            momentum(i, j) = static_cast<M>(m);
            u.push_back(r.nesterov ? g + r.momentum * (m - g) : m);
        }
    }
    orthogonalize(u, rows, columns, o);
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < columns; ++j)
            weights(i, j) = static_cast<W>(static_cast<double>(weights(i, j)) * (1 - lr * weight_decay) -
                                           lr * ratio * u[static_cast<std::size_t>(i * columns + j)]);
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
