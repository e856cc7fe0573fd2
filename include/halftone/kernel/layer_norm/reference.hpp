// SPDX-License-Identifier: MIT
/// \file
/// The definition of layer normalisation and of its gradients, in double.
///
///     y = (x - mean) rstd gain + bias,    rstd = 1 / sqrt(mean of (x - mean)^2 + epsilon)
///
///     reference::layer_norm(x, gain, bias, 1e-5, y, mean, rstd);
#pragma once

#include <cmath>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// y, and of every row the mean and 1 / sqrt(variance + epsilon).
template <class X, class W, class Y, class S>
void layer_norm(const view<X, 2>& x,                  // (rows, width)
                const view<W, 1>& gain,               // (width)
                const view<W, 1>& bias,               // (width), or none
                double epsilon, const view<Y, 2>& y,  // (rows, width)
                const view<S, 1>& mean,               // (rows)
                const view<S, 1>& rstd) {             // (rows)
    const extent rows = x.extent_of(0), width = x.extent_of(1);
    for (extent i = 0; i < rows; ++i) {
        double sum = 0;
        for (extent j = 0; j < width; ++j) sum += static_cast<double>(x(i, j));
        const double average = sum / static_cast<double>(width);

        double squares = 0;
        for (extent j = 0; j < width; ++j) {
            const double deviation = static_cast<double>(x(i, j)) - average;
            squares += deviation * deviation;
        }
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);

        for (extent j = 0; j < width; ++j) {
            const double normalised = (static_cast<double>(x(i, j)) - average) * scale;
            const double shift = bias.data() == nullptr ? 0.0 : static_cast<double>(bias(j));
            y(i, j) = static_cast<Y>(normalised * static_cast<double>(gain(j)) + shift);
        }
        mean(i) = static_cast<S>(average);
        rstd(i) = static_cast<S>(scale);
    }
}

/// Adds into dgain and dbias, over the rows; overwrites dx. With n = (x - mean) rstd and h = dy gain:
///
///     dx = rstd (h - mean of h - n (mean of h n)),    dgain += dy n,    dbias += dy
template <class X, class W, class Y, class S, class D, class G>
void layer_norm_backward(const view<X, 2>& x, const view<W, 1>& gain, const view<Y, 2>& dy, const view<S, 1>& mean,
                         const view<S, 1>& rstd, const view<D, 2>& dx, const view<G, 1>& dgain,
                         const view<G, 1>& dbias) {
    const extent rows = x.extent_of(0), width = x.extent_of(1);
    for (extent i = 0; i < rows; ++i) {
        const double average = static_cast<double>(mean(i)), scale = static_cast<double>(rstd(i));
        double mean_h = 0, mean_hn = 0;
        for (extent j = 0; j < width; ++j) {
            const double n = (static_cast<double>(x(i, j)) - average) * scale;
            const double d = static_cast<double>(dy(i, j));
            const double h = d * static_cast<double>(gain(j));
            mean_h += h / static_cast<double>(width);
            mean_hn += h * n / static_cast<double>(width);
            dgain(j) = static_cast<G>(static_cast<double>(dgain(j)) + d * n);
            dbias(j) = static_cast<G>(static_cast<double>(dbias(j)) + d);
        }
        for (extent j = 0; j < width; ++j) {
            const double n = (static_cast<double>(x(i, j)) - average) * scale;
            const double h = static_cast<double>(dy(i, j)) * static_cast<double>(gain(j));
            dx(i, j) = static_cast<D>(scale * (h - mean_h - n * mean_hn));
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
