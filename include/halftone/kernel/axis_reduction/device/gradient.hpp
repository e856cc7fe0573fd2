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
    deviation_range range;  // for a standard deviation

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
            const float given = detail::in_float(simt.load(dy, o));
            float slope;
            if constexpr (Operation == axis_operation::std_dev) {
                slope = deviation_slope::of(range, simt.load(kept, layout.outputs + o), given, factor).q;
            } else {
                slope = factor * given;
            }
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
            if constexpr (Operation == axis_operation::std_dev) return slope == 0.0f ? 0.0f : (v - p) * slope;
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
                                                            {a.kept, kept_values(Operation, l)},
                                                            {a.dy, l.outputs},
                                                            {shared_by, l.outputs},
                                                            fp64::span_of_layout(a.dx, l),
                                                            static_cast<float>(factor),
                                                            a.mode,
                                                            deviation_range::of(Operation, l.reduced_size, a.factor)});
    };
    constexpr int n = longest<X>;
    const axis_run last = l.is_columns() ? l.last_kept() : l.last_reduced();
    last.stride == 1 && can_use_vectors(n, last.count, a.x, a.dx) ? launch(constant<n>{}) : launch(constant<1>{});
}

/// Cumulative sums along rows, with one warp per row, whose lanes read a vector of N elements each. Sums within a vector are
/// computed in float, such that a term passes through at most log2(N) additions; the sums of vectors are added in double.
/// `ahead` vectors are loaded before the first of them is used.
template <class X, class Y, int N>
struct running_sum_kernel {
    using team = row_team<32>;
    static constexpr int threads = team::block_threads, ahead = N == 1 ? 1 : 4;
    static constexpr word shared_bytes = 0;

    global_span<const X> x;
    global_span<Y> y;
    extent rows, width;
    bool is_reversed;
    write_mode mode;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt), vectors = width / N;
        if (row >= rows) return;
        const auto from = x.from(row * width);
        const auto to = y.from(row * width);
        double before = 0;
        for (extent begin = simt.lane(); begin - simt.lane() < vectors; begin += 32 * ahead) {
            vec<X, N> held[ahead];
            HALFTONE_UNROLL for (int i = 0; i < ahead; ++i) {
                const extent k = begin + i * 32;
                held[i] = k < vectors ? load_elements<N>(simt, from, place(k)) : vec<X, N>{};
            }
            HALFTONE_UNROLL for (int i = 0; i < ahead; ++i) {
                const extent k = begin + i * 32;
                before = put(simt, to, k, k < vectors, in_order(to_float(held[i])), before);
            }
        }
    }

  private:
    HALFTONE_HD HALFTONE_INLINE extent place(extent k) const { return is_reversed ? width / N - 1 - k : k; }
    HALFTONE_HD HALFTONE_INLINE vec<float, N> in_order(const vec<float, N>& v) const {
        vec<float, N> turned;
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) turned[e] = is_reversed ? v[N - 1 - e] : v[e];
        return turned;
    }
    /// Stores the sums up to each element of a lane's vector number k; returns the sum of all lanes' elements and
    /// `before`.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE double put(Simt simt, const global_span<Y>& to, extent k, bool is_there,
                                           vec<float, N> v, double before) const {
        HALFTONE_UNROLL for (int step = 1; step < N; step *= 2) {
            HALFTONE_UNROLL for (int e = N - 1; e >= step; --e) v[e] += v[e - step];
        }
        double sum = static_cast<double>(v[N - 1]);
        HALFTONE_UNROLL for (int step = 1; step < 32; step *= 2) {
            const double other = simt.shuffle(sum, simt.lane() < step ? simt.lane() : simt.lane() - step);
            if (simt.lane() >= step) sum += other;
        }
        const double left = simt.shuffle(sum, simt.lane() == 0 ? 0 : simt.lane() - 1);
        const double start = simt.lane() == 0 ? before : before + left;  // the sum of all elements before the vector
        if (is_there) {
            vec<float, N> out{};
            if (mode == write_mode::add) out = in_order(load_floats<N>(simt, to, place(k)));
            HALFTONE_UNROLL for (int e = 0; e < N; ++e) out[e] += static_cast<float>(start + static_cast<double>(v[e]));
            store_rounded<N>(simt, to, place(k), in_order(out));
        }
        return before + simt.shuffle(sum, 31);
    }
};

}  // namespace on_device
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
