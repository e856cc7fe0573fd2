// SPDX-License-Identifier: MIT
/// \file
/// The GPU kernels of the gradients of reductions, and of cumulative sums along an axis.
#pragma once

#include <cmath>

#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/rows/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// dx = (or +=) the gradient of x from that of its output. A thread computes N adjacent elements, which belong to one
/// output, or to N adjacent outputs.
template <axis_operation Operation, class X, class Y, int N>
struct axis_share_kernel {
    static constexpr int threads = 128;
    static constexpr word shared_bytes = 0;
    static constexpr bool reads_x = Operation != axis_operation::sum;

    global_span<const X> x;
    axis_layout layout;
    global_span<const float> kept;
    global_span<const Y> dy;
    global_span<const float> shared_by;  // optional: the number of elements that share a gradient; for a product, its zeros
    global_span<X> dx;
    float factor;
    write_mode mode;

    HALFTONE_HD extent count() const { return layout.outputs * layout.reduced_size / N; }
    grid_shape grid() const { return simt::blocks_for(count(), threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent k = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (k >= count()) return;
        const bool is_columns = layout.is_columns();
        const extent across = (is_columns ? layout.inner() : layout.reduced_size) / N;
        const extent line = k / across, along = k % across * N;
        const extent output = is_columns ? line / layout.reduced_size * layout.inner() + along : line;
        const extent index = is_columns ? line % layout.reduced_size : along;
        const extent at = layout.output_offset(output) + layout.reduced_offset(index);
        vec<float, N> v{}, out{};
        if constexpr (reads_x) v = load_floats<N>(simt, x.from(at), 0);
        if (mode == write_mode::add) out = load_floats<N>(simt, dx.from(at), 0);
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            const extent o = is_columns ? output + e : output;
            float slope = factor * static_cast<float>(simt.load(dy, o));
            if (Operation != axis_operation::prod && shared_by.is_there()) slope /= simt.load(shared_by, o);
            out[e] += share(simt, v[e], o, slope);
        }
        store_rounded<N>(simt, dx.from(at), 0, out);
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE float share(Simt simt, float v, extent o, float slope) const {
        if constexpr (Operation == axis_operation::sum) {
            return slope;
        } else {
            const float p = simt.load(kept, o);
            if constexpr (Operation == axis_operation::var) return (v - p) * slope;
            if constexpr (Operation == axis_operation::logsumexp) return std::exp(v - p) * slope;
            if constexpr (Operation == axis_operation::prod) {
                const auto shares = product_shares<float>::of(p, simt.load(shared_by, o), slope);
                return v == 0.0f ? shares.q : shares.q * (shares.p / v);
            }
            return v == p ? slope : 0.0f * slope;
        }
    }
};

template <axis_operation Operation, class Device, class X, class Y>
void share_out(Device& device, const reduction_gradient<X, Y>& a, double factor, const float* shared_by) {
    const axis_layout& l = a.layout;
    const auto launch = [&]<int N>(constant<N>) {
        device.launch(axis_share_kernel<Operation, X, Y, N>{fp64::span_of_layout(a.x, l),
                                                            l,
                                                            {a.kept, l.outputs},
                                                            {a.dy, l.outputs},
                                                            {shared_by, l.outputs},
                                                            fp64::span_of_layout(a.dx, l),
                                                            static_cast<float>(factor),
                                                            a.mode});
    };
    constexpr int n = longest<X>;
    const axis_run last = l.is_columns() ? l.last_kept() : l.last_reduced();
    last.stride == 1 && can_use_vectors(n, last.count, a.x, a.dx) ? launch(constant<n>{}) : launch(constant<1>{});
}

/// Cumulative sums along rows: one warp per row sums 32 adjacent elements at a time in float, and adds these sums in
/// double.
template <class X, class Y>
struct running_sum_kernel {
    using team = row_team<32>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = 0;

    global_span<const X> x;
    global_span<Y> y;
    extent rows, width;
    bool is_reversed;
    write_mode mode;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        double before = 0;
        for (extent begin = 0; begin < width; begin += 32) {
            const extent i = begin + simt.lane(), at = row * width + (is_reversed ? width - 1 - i : i);
            float sum = i < width ? static_cast<float>(simt.load(x, at)) : 0.0f;
            HALFTONE_UNROLL for (int step = 1; step < 32; step *= 2) {
                const float other = simt.shuffle(sum, simt.lane() < step ? simt.lane() : simt.lane() - step);
                if (simt.lane() >= step) sum += other;
            }
            if (i < width) {
                float value = static_cast<float>(before + static_cast<double>(sum));
                if (mode == write_mode::add) value += static_cast<float>(simt.load(y, at));
                simt.store(y, at, Y(value));
            }
            before += static_cast<double>(simt.shuffle(sum, 31));
        }
    }
};

}  // namespace on_device
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
