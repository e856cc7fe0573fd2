// SPDX-License-Identifier: MIT
/// \file
/// The GPU kernels of reductions that read elements: one pass, which computes a float for each piece of each output's
/// elements; the combination of the pieces; and the search for an element.
#pragma once

#include <cmath>
#include <type_traits>

#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/device/rows.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <auto Value>
using axis_constant = std::integral_constant<decltype(Value), Value>;

/// The division of each output's elements into pieces.
struct axis_cut {
    extent pieces, each;

    static axis_cut of(const axis_layout& l) {
        const extent each = l.is_columns() ? 512 : 16384;
        return {l.reduced_size <= each ? 1 : detail::ceil_div(l.reduced_size, each), each};
    }
    HALFTONE_HD extent end(const axis_layout& l, extent piece) const {
        return (piece + 1) * each < l.reduced_size ? (piece + 1) * each : l.reduced_size;
    }
};

/// Reduces one piece of one output's elements, with a warp or a block.
template <axis_term Term, class X, int N, int Threads>
struct axis_row_kernel {
    using team = row_team<Threads, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    axis_rows<X, N> rows;
    axis_cut cut;
    global_span<const float> parameters;
    global_span<float> sums;  // (pieces, outputs)

    grid_shape grid() const { return team::grid(sums.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= sums.count) return;
        const extent output = row % rows.layout.outputs, piece = row / rows.layout.outputs;
        float p = 0;
        if constexpr (reads_parameter<Term>) p = simt.load(parameters, output);
        const float all = rows.template reduce<Term, team, 0>(simt, output, piece * cut.each,
                                                              cut.end(rows.layout, piece), p);
        if (team::member(simt) == 0) simt.store(sums, row, all);
    }
};

/// Reduces one piece of the elements of 32 * N adjacent outputs, with a block of eight warps.
template <axis_term Term, class X, int N>
struct axis_column_kernel {
    using team = column_team<N, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    axis_layout layout;
    axis_cut cut;
    global_span<const float> parameters;
    global_span<float> sums;  // (pieces, outputs)

    HALFTONE_HD extent outer() const { return layout.outputs / layout.inner(); }
    grid_shape grid() const {
        return simt::folded(simt::blocks_for(layout.inner(), team::columns), outer() * cut.pieces);
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent fold = simt::folded_row(simt.block());
        if (fold >= outer() * cut.pieces) return;
        const extent piece = fold / outer(), inner = layout.inner(), output = fold % outer() * inner;
        const extent j = team::column(simt), end = cut.end(layout, piece);
        vec<float, N> all;
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) all[e] = nothing_of(Term);
        if (j < inner) {
            vec<float, N> p{};
            if constexpr (reads_parameter<Term>) {
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) p[e] = simt.load(parameters, output + j + e);
            }
            const extent first = layout.output_offset(output) + j;
            for (extent i = piece * cut.each + simt.warp(); i < end; i += team::warps) {
                const vec<float, N> v = load_floats<N>(simt, x.from(first + layout.reduced_offset(i)), 0);
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) all[e] =
                    combine<Term>(all[e], axis_term_of<Term>(v[e], p[e]));
            }
        }
        team::leave(simt, 0, all);
        simt.barrier();
        const extent begin = static_cast<extent>(simt.block().x) * team::columns;
        for (int c = simt.thread(); c < team::columns; c += threads) {
            if (begin + c < inner) simt.store(sums, piece * layout.outputs + output + begin + c, total(simt, c));
        }
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static float total(Simt simt, int c) {
        const shared_span<float> left{0, shared_bytes / sizeof(float)};
        float all = nothing_of(Term);
        HALFTONE_UNROLL for (int w = 0; w < team::warps; ++w) all =
            combine<Term>(all, simt.load(left, w * team::columns + c));
        return all;
    }
};

/// y = the step's function of the total, for which the pieces are combined in double in their order.
template <axis_term Term, axis_step Step, class Y>
struct axis_finish_kernel {
    static constexpr int threads = 128;
    static constexpr word shared_bytes = 0;

    global_span<const float> sums;
    extent pieces;
    global_span<const float> parameters;
    axis_result<Y> result;

    grid_shape grid() const { return simt::blocks_for(result.y.count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent o = static_cast<extent>(simt.block().x) * threads + simt.thread(), outputs = result.y.count;
        if (o >= outputs) return;
        double total = static_cast<double>(nothing_of(Term));
        for (extent piece = 0; piece < pieces; ++piece)
            total = combine<Term>(total, static_cast<double>(simt.load(sums, piece * outputs + o)));
        float p = 0;
        if (result.kept_parameter.is_there() || Step == axis_step::logarithm) p = simt.load(parameters, o);
        result.template write<Term, Step>(simt, o, total, p);
    }
};

/// The index of the first of each output's elements that is its value in `values`, with a block per output, or with a
/// thread per output if outputs have adjacent elements.
template <class X>
struct first_equal_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(std::int32_t);

    global_span<const X> x;
    axis_layout layout;
    global_span<const float> values;
    global_span<std::int32_t> y;

    grid_shape grid() const { return simt::blocks_for(layout.outputs, layout.is_columns() ? threads : 1); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent block = simt.block().x;
        if (layout.is_columns()) {
            const extent o = block * threads + simt.thread();
            if (o < layout.outputs) simt.store(y, o, first_from(simt, o, 0, 1));
        } else {
            const shared_span<std::int32_t> of_warps{0, threads / 32};
            std::int32_t at = simt::warp_reduce(simt, first_from(simt, block, simt.thread(), threads), smaller{});
            if (simt.lane() == 0) simt.store(of_warps, simt.warp(), at);
            simt.barrier();
            if (simt.thread() != 0) return;
            HALFTONE_UNROLL for (int w = 1; w < threads / 32; ++w) at = smaller{}(at, simt.load(of_warps, w));
            simt.store(y, block, at);
        }
    }

  private:
    struct smaller {
        HALFTONE_HD std::int32_t operator()(std::int32_t a, std::int32_t b) const { return a < b ? a : b; }
    };
    /// Searches every step-th element from `begin` on; returns the number of elements if none is the value.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE std::int32_t first_from(Simt simt, extent output, extent begin, extent step) const {
        const float value = simt.load(values, output);
        const bool is_number = !is_nan(value);
        const extent first = layout.output_offset(output);
        for (extent i = begin; i < layout.reduced_size; i += step) {
            const float v = detail::in_float(simt.load(x, first + layout.reduced_offset(i)));
            if (is_number ? v == value : is_nan(v)) return static_cast<std::int32_t>(i);
        }
        return static_cast<std::int32_t>(layout.reduced_size);
    }
};

/// One pass over all elements, into sums, (pieces, outputs).
template <axis_term Term, class Device, class X>
void run_axis_pass(Device& device, const X* from, const axis_layout& l, const axis_cut& cut,
                   const global_span<const float>& parameters, const global_span<float>& sums) {
    constexpr int n = longest<X>;
    const global_span<const X> x = fp64::span_of_layout(from, l);
    if (l.is_columns()) {
        bool in_vectors = starts_vector(from, n) && l.inner() % n == 0;
        for (int i = 0; i + 1 < l.kept_count; ++i) in_vectors = in_vectors && l.kept[i].stride % n == 0;
        for (int i = 0; i < l.reduced_count; ++i)
            in_vectors = in_vectors && (l.reduced[i].count == 1 || l.reduced[i].stride % n == 0);
        if (in_vectors) return device.launch(axis_column_kernel<Term, X, n>{x, l, cut, parameters, sums});
        return device.launch(axis_column_kernel<Term, X, 1>{x, l, cut, parameters, sums});
    }
    const axis_rows<X, n> rows(x, l);
    if (rows.suit_warps()) return device.launch(axis_row_kernel<Term, X, n, 32>{rows, cut, parameters, sums});
    device.launch(axis_row_kernel<Term, X, n, 256>{rows, cut, parameters, sums});
}

}  // namespace on_device
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
