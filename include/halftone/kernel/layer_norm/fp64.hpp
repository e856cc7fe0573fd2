// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation in double, a row a thread: layer_norm.hpp has the rules, fp64/each.hpp the contract.
#pragma once

#include <cmath>
#include <limits>

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/common/rows/care.hpp>
#include <halftone/kernel/layer_norm/layer_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

/// A row that needs care (rows/care.hpp), by a power of two so that its squares stay in range. Its mean is two numbers, of which
/// the second corrects the first; without one, as root mean square normalisation has it, both are 0.
struct careful_double_row {
    double down = 1, high = 0, low = 0, scale = 0;  // of the scaled numbers
    double saved = 0;                               // rstd of those before
    int exponent = 0;

    HALFTONE_KERNEL template <class Thread, class X>
    HALFTONE_HD careful_double_row(Thread thread, const rows_of<const X>& x, extent row, extent width, double epsilon,
                                   bool centred) {
        const auto n = static_cast<double>(width);
        double largest = 0, squares = 0;
        for (extent j = 0; j < width; ++j) largest = std::fmax(largest, std::fabs(x.load(thread, row, j)));
        if (largest > 0 && largest <= std::numeric_limits<double>::max()) exponent = std::ilogb(largest);
        if (exponent < -1000) exponent = -1000;  // of subnormals; the factor is finite
        down = std::scalbn(1.0, -exponent);
        for (int pass = 0; centred && pass < 3; ++pass) {
            double sum = 0;
            for (extent j = 0; j < width; ++j) sum += x.load(thread, row, j) * down - high;
            (pass < 2 ? high : low) += sum / n;
        }
        for (extent j = 0; j < width; ++j) {
            const double d = deviation(x.load(thread, row, j));
            squares += d * d;
        }
        scale = 1 / std::hypot(std::sqrt(squares / n), std::scalbn(std::sqrt(epsilon), -exponent));
        saved = std::scalbn(scale, -exponent);
        // Of a constant row, next to which epsilon vanishes: the deviations are 0, and stay that.
        constexpr double most = std::numeric_limits<double>::max();
        if (scale > most && epsilon > 0) scale = most, saved = 1 / std::sqrt(epsilon);
    }
    HALFTONE_HD double deviation(double x) const { return x * down - high - low; }
    HALFTONE_HD double average() const { return std::scalbn(high + low, exponent); }
};

template <class X, class W, class Y>
struct layer_norm_row {
    rows_of<const X> x;
    global_span<const W> gain, bias;
    rows_of<Y> y;
    global_span<double> mean, rstd;
    extent width;
    double epsilon;
    row_limits<double> limits;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const auto n = static_cast<double>(width);
        double sum = 0, squares = 0;
        for (extent j = 0; j < width; ++j) sum += x.load(thread, row, j);
        const double average = sum / n;
        for (extent j = 0; j < width; ++j) {
            const double deviation = x.load(thread, row, j) - average;
            squares += deviation * deviation;
        }
        if (limits.are_passed(average, squares / n)) {
            const careful_double_row careful(thread, x, row, width, epsilon, true);
            const auto deviation = [&](double v) { return careful.deviation(v); };
            return write(thread, row, deviation, careful.scale, careful.average(), careful.saved);
        }
        const double scale = 1 / std::sqrt(squares / n + epsilon);
        write(thread, row, [&](double v) { return v - average; }, scale, average, scale);
    }

  private:
    HALFTONE_KERNEL template <class Thread, class Deviation>
    HALFTONE_HD void write(Thread thread, extent row, const Deviation& deviation, double scale, double average,
                           double saved) const {
        for (extent j = 0; j < width; ++j) {
            const double shift = bias.is_there() ? static_cast<double>(thread.load(bias, j)) : 0.0;
            y.store(thread, row, j,
                    deviation(x.load(thread, row, j)) * scale * static_cast<double>(thread.load(gain, j)) + shift);
        }
        if (mean.is_there()) thread.store(mean, row, average);
        if (rstd.is_there()) thread.store(rstd, row, saved);
    }
};

/// One term of the gradients of gain and bias: dy n and dy.
template <class X, class Y>
struct norm_gain_term {
    rows_of<const X> x;
    rows_of<const Y> dy;
    global_span<const double> mean, rstd;  // mean or none: 0

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double normalised(Thread thread, extent row, extent column) const {
        const double average = mean.is_there() ? thread.load(mean, row) : 0.0;
        const double scale = thread.load(rstd, row);
        const double part = scale < 0x1p-900 ? 0.5 : 1.0;  // halves, where a difference may leave the range
        return (x.load(thread, row, column) * part - average * part) * (scale / part);
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double operator()(Thread thread, extent row, extent column) const {
        return dy.load(thread, row, column) * normalised(thread, row, column);
    }
};
template <class Y>
struct norm_bias_term {
    rows_of<const Y> dy;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double operator()(Thread thread, extent row, extent column) const {
        return dy.load(thread, row, column);
    }
};

/// dx = rstd (h - mean of h - n (mean of h n)); without a mean, as root mean square normalisation has it, the first of
/// the two means is left out.
template <class X, class W, class Y>
struct norm_backward_row {
    norm_gain_term<X, Y> in;
    global_span<const W> gain;
    rows_of<X> dx;
    extent width;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const auto n = static_cast<double>(width);
        double sum_h = 0, sum_hn = 0;
        for (extent j = 0; j < width; ++j) {
            const double h = slope(thread, row, j);
            sum_h += h;
            sum_hn += h * in.normalised(thread, row, j);
        }
        const double mean_h = in.mean.is_there() ? sum_h / n : 0.0, mean_hn = sum_hn / n;
        const double scale = thread.load(in.rstd, row);
        for (extent j = 0; j < width; ++j) {
            const double rest = slope(thread, row, j) - mean_h - in.normalised(thread, row, j) * mean_hn;
            dx.store(thread, row, j, scale * rest, mode);
        }
    }

  private:
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double slope(Thread thread, extent row, extent j) const {
        return in.dy.load(thread, row, j) * static_cast<double>(thread.load(gain, j));
    }
};

template <class Device, class X, class W, class Y>
void layer_norm_rows(Device& device, const layer_norm_forward<X, W, Y>& a) {
    check(a);
    const extent width = a.x.extent_of(1);
    for_each(
        device, a.x.extent_of(0), width,
        layer_norm_row<X, W, Y>{rows_of<const X>(a.x), simt::span_of(a.gain), simt::span_of(a.bias), rows_of<Y>(a.y),
                                simt::span_of(a.mean), simt::span_of(a.rstd), width, static_cast<double>(a.epsilon),
                                row_limits<double>(width, static_cast<double>(a.epsilon))});
}

template <class Device, class X, class W, class Y, class G>
void layer_norm_rows(Device& device, const layer_norm_backward<X, W, Y, G>& a) {
    check(a);
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    const norm_gain_term<X, Y> in{rows_of<const X>(a.x), rows_of<const Y>(a.dy), simt::span_of(a.mean),
                                  simt::span_of(a.rstd)};
    // Sums first: dx may be dy.
    if (a.dgain.data() != nullptr) sum_rows(device, rows, width, 2, in, 1.0, a.dgain.data(), a.parameter_mode);
    if (a.dbias.data() != nullptr) {
        sum_rows(device, rows, width, 1, norm_bias_term<Y>{rows_of<const Y>(a.dy)}, 1.0, a.dbias.data(),
                 a.parameter_mode);
    }
    for_each(device, rows, width,
             norm_backward_row<X, W, Y>{in, simt::span_of(a.gain), rows_of<X>(a.dx), width, a.dx_mode});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
