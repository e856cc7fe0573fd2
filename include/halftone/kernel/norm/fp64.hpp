// SPDX-License-Identifier: MIT
/// \file
/// Layer and root mean square normalisation in double, one thread a row: what reference.hpp defines, with care for rows
/// whose mean or squares doubles do not hold. layer_norm.hpp and rms_norm.hpp have the rules, common/fp64/each.hpp the
/// contract.
#pragma once

#include <cmath>

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/norm/care/limits.hpp>
#include <halftone/kernel/norm/norm.hpp>
#include <halftone/kernel/norm/reference.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

/// A row that needs care (care/limits.hpp), scaled by a power of two so that its squares neither overflow nor
/// underflow. Its mean is the sum of two doubles; for RMS normalisation, which has no mean, both are 0.
struct careful_double_row {
    double down = 1, high = 0, low = 0, scale = 0;  // of the scaled row
    double saved = 0;                               // rstd of the unscaled row
    int exponent = 0;

    HALFTONE_KERNEL template <class Thread, class X>
    HALFTONE_HD careful_double_row(Thread thread, const rows_of<const X>& x, extent row, extent width, double epsilon,
                                   bool centred) {
        const auto n = static_cast<double>(width);
        double largest = 0, squares = 0;
        for (extent j = 0; j < width; ++j) largest = std::fmax(largest, std::fabs(x.load(thread, row, j)));
        if (largest > 0 && largest <= largest_number) exponent = std::ilogb(largest);
        if (exponent < -1000) exponent = -1000;  // for subnormals: keeps the factor finite
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
        // A constant row, so large that epsilon vanishes against it: the deviations are 0, and remain 0.
        if (scale > largest_number && epsilon > 0) scale = largest_number, saved = 1 / std::sqrt(epsilon);
    }
    HALFTONE_HD double deviation(double x) const { return x * down - high - low; }
    HALFTONE_HD double average() const { return std::scalbn(high + low, exponent); }
};

template <bool Centred, class X, class W, class Y>
struct norm_row {
    rows_of<const X> x;
    global_span<const W> gain, bias;
    rows_of<Y> y;
    global_span<double> mean, rstd;
    extent width;
    double epsilon;
    row_limits<double> limits;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const auto value = [&](extent j) { return x.load(thread, row, j); };
        const auto [average, variance] = reference::statistics_of_row<Centred>(width, value);
        if (limits.are_exceeded(average, variance)) {
            const careful_double_row careful(thread, x, row, width, epsilon, Centred);
            const auto deviation = [&](extent j) { return careful.deviation(x.load(thread, row, j)); };
            return write(thread, row, deviation, 0, careful.scale, careful.average(), careful.saved);
        }
        const double scale = 1 / std::sqrt(variance + epsilon);
        write(thread, row, value, average, scale, average, scale);
    }

  private:
    HALFTONE_KERNEL template <class Thread, class Value>
    HALFTONE_HD void write(Thread thread, extent row, const Value& value, double average, double scale,
                           double saved_average, double saved_scale) const {
        const auto factor = [&](extent j) { return load_or_zero(thread, gain, j); };
        const auto shift = [&](extent j) { return load_or_zero(thread, bias, j); };
        const auto store = [&](extent j, double v) { y.store(thread, row, j, v); };
        reference::normalise_row<Centred>(width, value, average, scale, factor, shift, store);
        if (mean.is_there()) thread.store(mean, row, saved_average);
        if (rstd.is_there()) thread.store(rstd, row, saved_scale);
    }
};

/// One term of the gradient of gain, dy n; that of bias has the terms dy.
template <class X, class Y>
struct norm_gain_term {
    rows_of<const X> x;
    rows_of<const Y> dy;
    global_span<const double> mean, rstd;  // an empty mean counts as 0

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double normalised(Thread thread, extent row, extent column) const {
        const double average = mean.is_there() ? thread.load(mean, row) : 0.0;
        const double scale = thread.load(rstd, row);
        const double part = scale < 0x1p-900 ? 0.5 : 1.0;  // in halves if a difference may overflow
        return (x.load(thread, row, column) * part - average * part) * (scale / part);
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double operator()(Thread thread, extent row, extent column) const {
        return dy.load(thread, row, column) * normalised(thread, row, column);
    }
};

template <bool Centred, class X, class W, class Y>
struct norm_backward_row {
    norm_gain_term<X, Y> in;
    global_span<const W> gain;
    rows_of<X> dx;
    extent width;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const auto n = [&](extent j) { return in.normalised(thread, row, j); };
        const auto dy = [&](extent j) { return in.dy.load(thread, row, j); };
        const auto factor = [&](extent j) { return load_or_zero(thread, gain, j); };
        const auto store = [&](extent j, double v) { dx.store(thread, row, j, v, mode); };
        reference::norm_backward_row<Centred>(width, n, thread.load(in.rstd, row), dy, factor, store);
    }
};

/// Arguments of either normalisation.
template <class Device, class Arguments>
void norm_rows(Device& device, const Arguments& a) {
    using X = typename decltype(a.x)::value_type;
    using W = typename decltype(a.gain)::value_type;
    using Y = typename decltype(a.y)::value_type;
    const extent width = a.x.extent_of(1);
    for_each(device, a.x.extent_of(0), width,
             norm_row<is_centred<Arguments>, X, W, Y>{rows_of<const X>(a.x), simt::span_of(a.gain),
                                                      simt::span_of(bias_of(a)), rows_of<Y>(a.y),
                                                      simt::span_of(mean_of(a)), simt::span_of(a.rstd), width,
                                                      a.epsilon, row_limits<double>(width, a.epsilon)});
}

template <class Device, class Arguments>
void norm_backward_rows(Device& device, const Arguments& a) {
    using X = typename decltype(a.x)::value_type;
    using W = typename decltype(a.gain)::value_type;
    using Y = typename decltype(a.dy)::value_type;
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    const norm_gain_term<X, Y> in{rows_of<const X>(a.x), rows_of<const Y>(a.dy), simt::span_of(mean_of(a)),
                                  simt::span_of(a.rstd)};
    // Sums first, since dx may be the memory of dy.
    if (a.dgain.data() != nullptr) sum_rows(device, rows, width, 2, in, 1.0, a.dgain.data(), a.parameter_mode);
    if (auto* const dbias = dbias_of(a).data(); dbias != nullptr)
        sum_rows(device, rows, width, 1, element_term<const Y>{rows_of<const Y>(a.dy)}, 1.0, dbias, a.parameter_mode);
    for_each(device, rows, width,
             norm_backward_row<is_centred<Arguments>, X, W, Y>{in, simt::span_of(a.gain), rows_of<X>(a.dx), width,
                                                               a.dx_mode});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
