// SPDX-License-Identifier: MIT
/// \file
/// The definition of layer normalisation, of root mean square normalisation and of their gradients, in double. The
/// second is the first without mean and bias (rows that are not centred).
///
///     layer norm:  y = (x - mean) rstd gain + bias,    rstd = 1 / sqrt(mean of (x - mean)^2 + epsilon)
///     RMS norm:    y = x rstd gain,                    rstd = 1 / sqrt(mean of x^2 + epsilon)
///
///     reference::layer_norm(x, gain, bias, 1e-5, y, mean, rstd);
///     reference::rms_norm(x, gain, 1e-6, y, rstd);
///
/// The functions of one row are also used by the kernels in double (fp64.hpp).
#pragma once

#include <cmath>

#include <halftone/kernel/common/definition/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// For a row that is not centred the mean is 0, and the variance is the mean square.
struct row_statistics {
    double mean, variance;
};

/// The statistics of the `width` numbers x(j).
HALFTONE_KERNEL template <bool Centred, class X>
HALFTONE_HD row_statistics statistics_of_row(extent width, const X& x) {
    const auto count = static_cast<double>(width);
    double mean = 0;
    if constexpr (Centred) {
        double sum = 0;
        for (extent j = 0; j < width; ++j) sum += x(j);
        mean = sum / count;
    }
    double squares = 0;
    for (extent j = 0; j < width; ++j) {
        const double deviation = x(j) - mean;
        squares += deviation * deviation;
    }
    return {mean, squares / count};
}

/// y = (x - mean) rstd gain, plus the bias if rows are centred.
HALFTONE_KERNEL template <bool Centred, class X, class Gain, class Bias, class Y>
HALFTONE_HD void normalise_row(extent width, const X& x, double mean, double rstd, const Gain& gain, const Bias& bias,
                               const Y& y) {
    for (extent j = 0; j < width; ++j) {
        double value = (x(j) - mean) * rstd * gain(j);
        if constexpr (Centred) value += bias(j);
        y(j, value);
    }
}

/// With n the normalised x and h = dy gain:
///
///     layer norm:  dx = rstd (h - mean of h - n (mean of h n))
///     RMS norm:    dx = rstd (h - n (mean of h n))
HALFTONE_KERNEL template <bool Centred, class N, class Dy, class Gain, class Dx>
HALFTONE_HD void norm_backward_row(extent width, const N& n, double rstd, const Dy& dy, const Gain& gain, const Dx& dx) {
    const auto count = static_cast<double>(width);
    double sum_h = 0, sum_hn = 0;
    for (extent j = 0; j < width; ++j) {
        const double h = dy(j) * gain(j);
        sum_h += h;
        sum_hn += h * n(j);
    }
    const double mean_h = Centred ? sum_h / count : 0.0, mean_hn = sum_hn / count;
    for (extent j = 0; j < width; ++j) dx(j, rstd * (dy(j) * gain(j) - mean_h - n(j) * mean_hn));
}

/// y = (x - mean) rstd gain + bias, row by row, with the mean and rstd = 1 / sqrt(variance + epsilon) of each row.
template <class X, class W, class Y, class S>
void layer_norm(const view<X, 2>& x,                  // (rows, width)
                const view<W, 1>& gain,               // (width)
                const view<W, 1>& bias,               // (width), or without data
                double epsilon, const view<Y, 2>& y,  // (rows, width)
                const view<S, 1>& mean,               // (rows)
                const view<S, 1>& rstd) {             // (rows)
    const extent rows = x.extent_of(0), width = x.extent_of(1);
    const auto shift = [&](extent j) { return bias.data() == nullptr ? 0.0 : static_cast<double>(bias(j)); };
    for (extent i = 0; i < rows; ++i) {
        const row_statistics s = statistics_of_row<true>(width, read_row(x, i));
        const double scale = 1 / std::sqrt(s.variance + epsilon);
        normalise_row<true>(width, read_row(x, i), s.mean, scale, read_row(gain), shift, write_row(y, i));
        mean(i) = static_cast<S>(s.mean);
        rstd(i) = static_cast<S>(scale);
    }
}

/// y = x rstd gain, row by row, with rstd = 1 / sqrt(mean of squares + epsilon) of each row.
template <class X, class W, class Y, class S>
void rms_norm(const view<X, 2>& x,                  // (rows, width)
              const view<W, 1>& gain,               // (width)
              double epsilon, const view<Y, 2>& y,  // (rows, width)
              const view<S, 1>& rstd) {             // (rows)
    const extent rows = x.extent_of(0), width = x.extent_of(1);
    for (extent i = 0; i < rows; ++i) {
        const double scale = 1 / std::sqrt(statistics_of_row<false>(width, read_row(x, i)).variance + epsilon);
        normalise_row<false>(width, read_row(x, i), 0, scale, read_row(gain), nullptr, write_row(y, i));
        rstd(i) = static_cast<S>(scale);
    }
}

/// Adds into dgain and dbias, over the rows: dgain += dy n, dbias += dy. Overwrites dx, by norm_backward_row.
template <class X, class W, class Y, class S, class D, class G>
void layer_norm_backward(const view<X, 2>& x, const view<W, 1>& gain, const view<Y, 2>& dy, const view<S, 1>& mean,
                         const view<S, 1>& rstd, const view<D, 2>& dx, const view<G, 1>& dgain,
                         const view<G, 1>& dbias) {
    const extent rows = x.extent_of(0), width = x.extent_of(1);
    for (extent i = 0; i < rows; ++i) {
        const double average = static_cast<double>(mean(i)), scale = static_cast<double>(rstd(i));
        const auto n = [&](extent j) { return (static_cast<double>(x(i, j)) - average) * scale; };
        norm_backward_row<true>(width, n, scale, read_row(dy, i), read_row(gain), write_row(dx, i));
        for (extent j = 0; j < width; ++j) {
            const auto d = static_cast<double>(dy(i, j));
            dgain(j) = static_cast<G>(static_cast<double>(dgain(j)) + d * n(j));
            dbias(j) = static_cast<G>(static_cast<double>(dbias(j)) + d);
        }
    }
}

/// Adds into dgain, over the rows: dgain += dy n. Overwrites dx.
template <class X, class W, class Y, class S, class D, class G>
void rms_norm_backward(const view<X, 2>& x, const view<W, 1>& gain, const view<Y, 2>& dy, const view<S, 1>& rstd,
                       const view<D, 2>& dx, const view<G, 1>& dgain) {
    const extent rows = x.extent_of(0), width = x.extent_of(1);
    for (extent i = 0; i < rows; ++i) {
        const double scale = static_cast<double>(rstd(i));
        const auto n = [&](extent j) { return static_cast<double>(x(i, j)) * scale; };
        norm_backward_row<false>(width, n, scale, read_row(dy, i), read_row(gain), write_row(dx, i));
        for (extent j = 0; j < width; ++j)
            dgain(j) = static_cast<G>(static_cast<double>(dgain(j)) + static_cast<double>(dy(i, j)) * n(j));
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
