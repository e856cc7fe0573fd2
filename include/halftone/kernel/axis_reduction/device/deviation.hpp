// SPDX-License-Identifier: MIT
/// \file
/// The GPU kernels of variances and standard deviations, and of the latter's gradients, that float does not hold: in
/// double, with a block of threads for each output. The kernels see to it which ones these are.
#pragma once

#include <cmath>

#include <halftone/exec/simt/reduce.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/rows/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// A block takes several outputs of few elements one after another, or one output of many.
template <int Threads>
struct deviation_team {
    static constexpr int threads = Threads;
    static constexpr extent outputs = Threads == 32 ? 32 : 1;
    static constexpr word shared_bytes = Threads / 32 * sizeof(double);

    /// The blocks for all outputs.
    static grid_shape grid(extent count) { return simt::blocks_for(count, outputs); }
    /// Calls f(output) with every thread, for each of the block's outputs; there are `count` in all.
    HALFTONE_KERNEL template <class Simt, class F>
    HALFTONE_HD HALFTONE_INLINE static void each(Simt simt, extent count, const F& f) {
        for (extent i = 0; i < outputs; ++i) {
            const extent output = static_cast<extent>(simt.block().x) * outputs + i;
            if (output >= count) return;
            f(output);
        }
    }

    /// The mean square of an output's elements about their mean, and their mean less `origin`, in every thread.
    HALFTONE_KERNEL template <class Simt, class X>
    HALFTONE_HD static reference::reduced variance(Simt simt, const global_span<const X>& x, const axis_layout& l,
                                                   extent output, double origin = 0) {
        const shared_span<double> scratch{0, Threads / 32};
        const extent first = l.output_offset(output);
        double sum = 0, squares = 0;
        for (extent i = simt.thread(); i < l.reduced_size; i += Threads)
            sum += static_cast<double>(simt.load(x, first + l.reduced_offset(i))) - origin;
        const auto size = static_cast<double>(l.reduced_size);
        const double mean = simt::block_sum<Threads>(simt, sum, scratch) / size;
        for (extent i = simt.thread(); i < l.reduced_size; i += Threads) {
            const double d = static_cast<double>(simt.load(x, first + l.reduced_offset(i))) - origin - mean;
            squares += d * d;
        }
        return {simt::block_sum<Threads>(simt, squares, scratch) / size, mean};
    }
    /// Factor times the sum of squares about the mean (var), or its square root (std_dev), and the mean.
    HALFTONE_KERNEL template <class Simt, class X>
    HALFTONE_HD static reference::reduced reduce(Simt simt, const global_span<const X>& x, const axis_layout& l,
                                                 extent output, axis_operation operation, double factor) {
        const reference::reduced r = variance(simt, x, l, output);
        const double square = factor * (static_cast<double>(l.reduced_size) * r.value);
        return {operation == axis_operation::var ? square : std::sqrt(square), r.kept};
    }
};

/// Calls launch(constant<Threads>) with the size of the team that suits outputs of this number of elements.
template <class Launch>
void with_deviation_team(extent elements, const Launch& launch) {
    constexpr extent by_warp = 1024;  // the largest number of elements that a warp takes
    elements <= by_warp ? launch(constant<32>{}) : launch(constant<256>{});
}

template <class X, class Y, int Threads>
struct deviation_output_kernel {
    using team = deviation_team<Threads>;
    static constexpr int threads = team::threads;
    static constexpr word shared_bytes = team::shared_bytes;

    fp64::deviation_output<X, Y> output;

    grid_shape grid() const { return team::grid(output.layout.outputs); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        team::each(simt, output.layout.outputs, [&](extent o) {
            const float found = simt.load(output.results, o);
            if (!output.range.is_left_by(found)) {
                if (simt.thread() == 0) output.put(simt, o, found);
                return;
            }
            const reference::reduced r = team::reduce(simt, output.x, output.layout, o, output.operation, output.factor);
            if (simt.thread() == 0) output.replace(simt, o, r);
        });
    }
};

/// dx = (or +=) factor (x - mean) dy / deviation for the outputs that `which` names.
template <class X, class Y, int Threads>
struct deviation_share_kernel {
    using team = deviation_team<Threads>;
    static constexpr int threads = team::threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    axis_layout layout;
    global_span<X> dx;
    double factor;
    write_mode mode;
    fp64::slopes_beyond_float<Y> which;

    grid_shape grid() const { return team::grid(layout.outputs); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        team::each(simt, layout.outputs, [&](extent o) {
            if (which(simt, o)) share(simt, o);
        });
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void share(Simt simt, extent o) const {
        const reference::reduced r = team::reduce(simt, x, layout, o, axis_operation::std_dev, factor);
        const double slope = static_cast<double>(simt.load(which.dy, o));
        for (extent i = simt.thread(); i < layout.reduced_size; i += Threads) {
            const extent at = layout.output_offset(o) + layout.reduced_offset(i);
            const double off = static_cast<double>(simt.load(x, at)) - r.kept;
            double value = r.value == 0 ? 0.0 : factor * (off / r.value) * slope;
            if (mode == write_mode::add) value += static_cast<double>(simt.load(dx, at));
            simt.store(dx, at, static_cast<X>(value));
        }
    }
};

template <class Device, class X, class Y>
void finish_deviations(Device& device, const reduction<X, Y>& a, float* results) {
    const fp64::deviation_output<X, Y> output(a, results);
    if (a.layout.outputs == 0) return;
    with_deviation_team(a.layout.reduced_size, [&]<int Threads>(constant<Threads>) {
        device.launch(deviation_output_kernel<X, Y, Threads>{output});
    });
}

template <class Device, class X, class Y>
void share_deviations_beyond_float(Device& device, const reduction_gradient<X, Y>& a) {
    const axis_layout& l = a.layout;
    with_deviation_team(l.reduced_size, [&]<int Threads>(constant<Threads>) {
        device.launch(deviation_share_kernel<X, Y, Threads>{fp64::span_of_layout(a.x, l), l,
                                                            fp64::span_of_layout(a.dx, l), a.factor, a.mode,
                                                            fp64::slopes_beyond_float<Y>(a)});
    });
}

}  // namespace on_device
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
