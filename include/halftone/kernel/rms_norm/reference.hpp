// SPDX-License-Identifier: MIT
/// \file
/// The definition of root mean square normalisation and of its gradients, in double.
///
///     y = x rstd gain,    rstd = 1 / sqrt(mean of x^2 + epsilon)
///
///     reference::rms_norm(x, gain, 1e-6, y, rstd);
#pragma once

#include <cmath>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// y, and of every row 1 / sqrt(mean of squares + epsilon).
template <class X, class W, class Y, class S>
void rms_norm(const view<X, 2>& x,                  // (rows, width)
              const view<W, 1>& gain,               // (width)
              double epsilon, const view<Y, 2>& y,  // (rows, width)
              const view<S, 1>& rstd) {             // (rows)
    const extent rows = x.extent_of(0), width = x.extent_of(1);
    for (extent i = 0; i < rows; ++i) {
        double squares = 0;
        for (extent j = 0; j < width; ++j) squares += static_cast<double>(x(i, j)) * static_cast<double>(x(i, j));
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
        for (extent j = 0; j < width; ++j)
            y(i, j) = static_cast<Y>(static_cast<double>(x(i, j)) * scale * static_cast<double>(gain(j)));
        rstd(i) = static_cast<S>(scale);
    }
}

/// Adds into dgain, over the rows; overwrites dx. With n = x rstd and h = dy gain:
///
///     dx = rstd (h - n (mean of h n)),    dgain += dy n
template <class X, class W, class Y, class S, class D, class G>
void rms_norm_backward(const view<X, 2>& x, const view<W, 1>& gain, const view<Y, 2>& dy, const view<S, 1>& rstd,
                       const view<D, 2>& dx, const view<G, 1>& dgain) {
    const extent rows = x.extent_of(0), width = x.extent_of(1);
    for (extent i = 0; i < rows; ++i) {
        const double scale = static_cast<double>(rstd(i));
        double mean_hn = 0;
        for (extent j = 0; j < width; ++j) {
            const double n = static_cast<double>(x(i, j)) * scale, d = static_cast<double>(dy(i, j));
            mean_hn += d * static_cast<double>(gain(j)) * n / static_cast<double>(width);
            dgain(j) = static_cast<G>(static_cast<double>(dgain(j)) + d * n);
        }
        for (extent j = 0; j < width; ++j) {
            const double n = static_cast<double>(x(i, j)) * scale;
            const double h = static_cast<double>(dy(i, j)) * static_cast<double>(gain(j));
            dx(i, j) = static_cast<D>(scale * (h - n * mean_hn));
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
