// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation in double, a row a thread: rms_norm.hpp has the rules, fp64/each.hpp the contract.
#pragma once

#include <halftone/kernel/layer_norm/fp64.hpp>
#include <halftone/kernel/rms_norm/rms_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

template <class X, class W, class Y>
struct rms_norm_row {
    rows_of<const X> x;
    global_span<const W> gain;
    rows_of<Y> y;
    global_span<double> rstd;
    extent width;
    double epsilon;
    row_limits<double> limits;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        double squares = 0;
        for (extent j = 0; j < width; ++j) {
            const double v = x.load(thread, row, j);
            squares += v * v;
        }
        const double mean_square = squares / static_cast<double>(width);
        if (limits.are_passed(0, mean_square)) {
            const careful_double_row careful(thread, x, row, width, epsilon, false);
            return write(thread, row, careful.down, careful.scale, careful.saved);
        }
        const double scale = 1 / std::sqrt(mean_square + epsilon);
        write(thread, row, 1, scale, scale);
    }

  private:
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void write(Thread thread, extent row, double down, double scale, double saved) const {
        for (extent j = 0; j < width; ++j)
            y.store(thread, row, j,
                    x.load(thread, row, j) * down * scale * static_cast<double>(thread.load(gain, j)));
        if (rstd.is_there()) thread.store(rstd, row, saved);
    }
};

template <class Device, class X, class W, class Y>
void rms_norm_rows(Device& device, const rms_norm_forward<X, W, Y>& a) {
    check(a);
    const extent width = a.x.extent_of(1);
    for_each(device, a.x.extent_of(0), width,
             rms_norm_row<X, W, Y>{rows_of<const X>(a.x), simt::span_of(a.gain), rows_of<Y>(a.y), simt::span_of(a.rstd),
                                   width, static_cast<double>(a.epsilon),
                                   row_limits<double>(width, static_cast<double>(a.epsilon))});
}

template <class Device, class X, class W, class Y, class G>
void rms_norm_rows(Device& device, const rms_norm_backward<X, W, Y, G>& a) {
    check(a);
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    const norm_gain_term<X, Y> in{rows_of<const X>(a.x), rows_of<const Y>(a.dy), {}, simt::span_of(a.rstd)};
    if (a.dgain.data() != nullptr) sum_rows(device, rows, width, 2, in, 1.0, a.dgain.data(), a.parameter_mode);
    for_each(device, rows, width,
             norm_backward_row<X, W, Y>{in, simt::span_of(a.gain), rows_of<X>(a.dx), width, a.dx_mode});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
