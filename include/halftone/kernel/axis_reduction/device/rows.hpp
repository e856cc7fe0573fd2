// SPDX-License-Identifier: MIT
/// \file
/// How a team of GPU threads reduces adjacent elements, and the kernel that computes a whole reduction of each row whose
/// elements are one piece: a variance and a logsumexp read such a row twice, of which the second time from a cache.
#pragma once

#include <cmath>
#include <type_traits>

#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/rows/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <axis_term Term>
HALFTONE_HD HALFTONE_INLINE float axis_term_of(float x, float p) {
    if constexpr (Term == axis_term::square) return (x - p) * (x - p);
    if constexpr (Term == axis_term::exponential) return std::exp(x - p);
    if constexpr (Term == axis_term::equal) return x == p ? 1.0f : 0.0f;
    if constexpr (Term == axis_term::product) return x == 0.0f ? p : x;
    return x;
}
template <axis_term Term>
inline constexpr bool reads_parameter =
    Term == axis_term::square || Term == axis_term::exponential || Term == axis_term::equal || Term == axis_term::product;
template <axis_term Term>
struct axis_combine {
    HALFTONE_HD float operator()(float a, float b) const { return combine<Term>(a, b); }
};

/// The function of an output's total after a pass.
enum class axis_step {
    scale,      ///< total * factor
    shift,      ///< the total if it is finite, else 0
    logarithm,  ///< log(total) + parameter
    root,       ///< the square root of total * factor
};

/// Where the result of a reduction goes, and how it follows from an output's total.
template <class Y>
struct axis_result {
    double factor;
    global_span<Y> y;
    global_span<float> kept, kept_parameter;  // optional: the result as a float, and the parameter
    write_mode mode;

    HALFTONE_KERNEL template <axis_term Term, axis_step Step, class Simt>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, extent o, double total, float p) const {
        if (kept_parameter.is_there()) simt.store(kept_parameter, o, p);
        float value;
        if constexpr (Step == axis_step::shift) {
            value = static_cast<float>(finite_shift(total));
        } else if constexpr (Step == axis_step::logarithm) {
            value = static_cast<float>(std::log(total) + static_cast<double>(p));
        } else if constexpr (Step == axis_step::root) {
            value = static_cast<float>(std::sqrt(factor * total));
        } else {
            value = static_cast<float>(is_choice(Term) || Term == axis_term::product ? total : factor * total);
        }
        if (kept.is_there()) simt.store(kept, o, value);
        if (mode == write_mode::add) value += detail::in_float(simt.load(y, o));
        simt.store(y, o, Y(value));
    }
};

/// The elements of all outputs, of which a team of threads reduces those of one output at a time. Each thread reduces
/// every Threads-th vector of N elements: the elements of a vector from the first to the last, and then the vectors in
/// their order. `ahead` vectors are loaded before the first of them is used.
template <class X, int N>
struct axis_rows {
    static constexpr int ahead = 4;
    static constexpr extent by_warp = 8192, by_warp_singly = 1024;  // elements that one warp reduces at most

    global_span<const X> x;
    axis_layout layout;
    bool is_run;            // an output's elements are adjacent
    bool has_whole_vectors;  // elements i * N to i * N + N - 1 of each output are an aligned vector

    axis_rows(const global_span<const X>& from, const axis_layout& l)
        : x(from), layout(l), is_run(l.reduced_count == 1 && l.reduced[0].stride == 1),
          has_whole_vectors(l.last_reduced().stride == 1 && starts_vector(from.data, N)) {
        for (int i = 0; i < l.kept_count; ++i)
            has_whole_vectors = has_whole_vectors && (l.kept[i].count == 1 || l.kept[i].stride % N == 0);
        for (int i = 0; i + 1 < l.reduced_count; ++i)
            has_whole_vectors = has_whole_vectors && l.reduced[i].stride % N == 0;
        has_whole_vectors = has_whole_vectors && l.last_reduced().count % N == 0;
    }
    /// Whether a warp reduces a row, instead of a block of 256 threads: for short rows, and for rows of at most 8192
    /// elements if there are so many that each multiprocessor has several.
    bool suit_warps() const {
        if (layout.reduced_size <= by_warp_singly) return true;
        return layout.reduced_size <= by_warp && layout.outputs >= 2048 && (is_run || has_whole_vectors);
    }

    /// Elements begin to end - 1 of an output, reduced by the team; every thread receives the result.
    HALFTONE_KERNEL template <axis_term Term, class Team, int Slot, class Simt>
    HALFTONE_HD HALFTONE_INLINE float reduce(Simt simt, extent output, extent begin, extent end, float p) const {
        const extent first = layout.output_offset(output);
        row_walk<N> walk{0, 0, end - begin};
        if (is_run && walk.width >= N) {
            walk = row_walk<N>::over(walk.width, x.data + first + begin);
        } else if (has_whole_vectors) {
            walk.vectors = walk.width / N;
        }
        const part<Term, Team> of{*this, first, begin, p};
        extent item = Team::member(simt);
        const float vectors = of.template add<N>(simt, nothing_of(Term), walk, item, walk.vectors);
        const float mine = of.template add<1>(simt, vectors, walk, item, walk.items());
        return Team::reduce(simt, mine, constant<Slot>{}, axis_combine<Term>{});
    }

  private:
    template <axis_term Term, class Team>
    struct part {
        const axis_rows& rows;
        extent first, begin;
        float p;

        /// Reduces a thread's items from number k on to the last before `items`, to which k is moved: vectors of M = N
        /// elements, or single elements.
        HALFTONE_KERNEL template <int M, class Simt>
        HALFTONE_HD HALFTONE_INLINE float add(Simt simt, float mine, const row_walk<N>& walk, extent& k,
                                              extent items) const {
            constexpr int team = Team::row_threads;
            for (; k + (ahead - 1) * team < items; k += ahead * team) {
                vec<X, M> held[ahead];
                HALFTONE_UNROLL for (int i = 0; i < ahead; ++i) held[i] = load<M>(simt, walk, k + i * team);
                HALFTONE_UNROLL for (int i = 0; i < ahead; ++i) mine = with<M>(mine, held[i]);
            }
            for (; k < items; k += team) mine = with<M>(mine, load<M>(simt, walk, k));
            return mine;
        }

      private:
        HALFTONE_KERNEL template <int M, class Simt>
        HALFTONE_HD HALFTONE_INLINE vec<X, M> load(Simt simt, const row_walk<N>& walk, extent k) const {
            const extent i = begin + (M == N ? walk.head + k * N : walk.edge(k));
            return load_elements<M>(simt, rows.x.from(first + rows.layout.reduced_offset(i)), 0);
        }
        template <int M>
        HALFTONE_HD HALFTONE_INLINE float with(float mine, const vec<X, M>& held) const {
            const vec<float, M> v = to_float(held);
            float all = axis_term_of<Term>(v[0], p);
            HALFTONE_UNROLL for (int e = 1; e < M; ++e) all = combine<Term>(all, axis_term_of<Term>(v[e], p));
            return combine<Term>(mine, all);
        }
    };
};

/// A whole sum, variance, standard deviation or logsumexp of each row, whose elements are one piece. The bits are those of separate passes.
template <axis_operation Operation, class X, class Y, int N, int Threads>
struct axis_whole_row_kernel {
    using team = row_team<Threads, 2>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    axis_rows<X, N> rows;
    double share;  // 1 / the number of elements
    axis_result<Y> result;

    grid_shape grid() const { return team::grid(rows.layout.outputs); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        using enum axis_operation;
        constexpr bool squares = Operation == var || Operation == std_dev;
        constexpr axis_term term = Operation == sum ? axis_term::value
                                   : squares        ? axis_term::square
                                                    : axis_term::exponential;
        constexpr axis_step step = Operation == logsumexp ? axis_step::logarithm
                                   : Operation == std_dev ? axis_step::root
                                                          : axis_step::scale;
        const extent output = team::row(simt), size = rows.layout.reduced_size;
        if (output >= rows.layout.outputs) return;
        float p = 0;
        if constexpr (squares) {
            const float total = rows.template reduce<axis_term::value, team, 0>(simt, output, 0, size, p);
            p = static_cast<float>(share * static_cast<double>(total));
        } else if constexpr (Operation == logsumexp) {
            p = finite_shift(rows.template reduce<axis_term::maximum, team, 0>(simt, output, 0, size, p));
        }
        const float total = rows.template reduce<term, team, 1>(simt, output, 0, size, p);
        if (team::member(simt) == 0) result.template write<term, step>(simt, output, static_cast<double>(total), p);
    }
};
template <axis_operation Operation, class Device, class X, class Y>
void reduce_whole_rows(Device& device, const reduction<X, Y>& a, double factor, float* kept, float* kept_parameter) {
    constexpr int n = longest<X>;
    const axis_layout& l = a.layout;
    const axis_rows<X, n> rows(fp64::span_of_layout(a.x, l), l);
    const double share = 1.0 / static_cast<double>(l.reduced_size);
    const axis_result<Y> result{
        factor, {a.y, l.outputs}, {kept, l.outputs}, {kept_parameter, l.outputs}, a.mode};
    if (rows.suit_warps()) {
        device.launch(axis_whole_row_kernel<Operation, X, Y, n, 32>{rows, share, result});
    } else {
        device.launch(axis_whole_row_kernel<Operation, X, Y, n, 256>{rows, share, result});
    }
}

}  // namespace on_device
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
