// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on the CPU: the forward pass. axis_reduction.hpp has the arguments and the contract.
///
/// A task computes some outputs: up to `columns` outputs with adjacent elements, which are read row by row in vectors
/// over the outputs; or some outputs one after another, whose elements are read in blocks. If few outputs have many
/// elements each, the elements are divided into pieces, whose results are joined in their order. Elements are read from
/// memory once: variances and logarithms of sums of exponentials take two passes over each block while a cache holds it.
#pragma once

#include <algorithm>
#include <cmath>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>

#define HALFTONE_BODY <halftone/kernel/axis_reduction/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace axis_cpu {

/// The largest number of outputs of a task; the rows whose terms are added in float before the result is added in
/// double; and the floats that are widened at a time.
inline constexpr extent columns = 1024, rows_in_float = 64, widened = 4 * columns;
/// How many elements before they are reduced those of another run are prefetched.
inline constexpr extent prefetched = 3 * axis_block;

/// Elements whose type is erased.
struct source {
    const std::byte* data;
    extent bytes;  ///< bytes per element
    void (*widen)(const void* from, extent stride, extent count, float* to);
    void (*widen_rows)(const void* from, extent stride, extent rows, extent width, extent known, float* to);
    bool is_float;

    /// Some elements as floats: in place if they are contiguous floats, otherwise widened into `buffer`.
    const float* floats(extent offset, extent stride, extent count, float* buffer) const;
};
template <class X>
source source_of(const cpu& device, const X* x) {
    return {reinterpret_cast<const std::byte*>(x), static_cast<extent>(sizeof(X)),
            device.select(&portable::widen_elements<X>, &avx2::widen_elements<X>, &avx512::widen_elements<X>),
            device.select(&portable::widen_rows<X>, &avx2::widen_rows<X>, &avx512::widen_rows<X>),
            std::is_same_v<X, float>};
}
/// The destination of results, with its element type erased.
struct sink {
    std::byte* data;
    extent bytes;
    void (*narrow)(const float* from, extent count, void* to, extent stride, write_mode mode);

    void put(const float* from, extent count, extent offset, extent stride = 1,
             write_mode mode = write_mode::overwrite) const {
        narrow(from, count, data + offset * bytes, stride, mode);
    }
};
template <class Y>
sink sink_of(const cpu& device, Y* y) {
    return {reinterpret_cast<std::byte*>(y), static_cast<extent>(sizeof(Y)),
            device.select(&portable::narrow_elements<Y>, &avx2::narrow_elements<Y>, &avx512::narrow_elements<Y>)};
}

/// One pass over the elements, and what combines its results.
struct pass {
    float nothing;
    bool chooses;  ///< whether it determines the largest or the smallest element
    float (*block)(const float* x, extent count, float parameter, float* differences);
    void (*rows)(extent rows, extent width, const float* x, extent stride, extent known, const float* p, float* all,
                 float* differences);
    void (*fold)(extent width, const float* from, double* total);
    void (*join)(extent width, const double* from, double* total);
    double (*combine)(double a, double b);
};
template <axis_term Term>
pass pass_of(const cpu& device) {
    return {nothing_of(Term),
            is_choice(Term),
            device.select(&portable::reduce_block<Term>, &avx2::reduce_block<Term>, &avx512::reduce_block<Term>),
            device.select(&portable::reduce_rows<Term>, &avx2::reduce_rows<Term>, &avx512::reduce_rows<Term>),
            device.select(&portable::fold_columns<Term, float>, &avx2::fold_columns<Term, float>,
                          &avx512::fold_columns<Term, float>),
            device.select(&portable::fold_columns<Term, double>, &avx2::fold_columns<Term, double>,
                          &avx512::fold_columns<Term, double>),
            &combine<Term, double>};
}

/// Scratch memory of a worker. `total` has the results of the elements so far; `center` the sums that belong to squares
/// about a mean, or the largest elements that belong to sums of exponentials.
struct worker {
    double total[columns], center[columns];
    float parameters[columns], all[columns], slopes[columns], buffer[widened];
};

/// The division of outputs among tasks, and of their elements into pieces.
struct plan {
    extent tasks, tiles, each, pieces, piece_size;
    bool is_columns;

    static plan of(const axis_layout& l);
    extent first(const axis_layout& l, extent task) const {
        return is_columns ? task / tiles * l.inner() + task % tiles * each : task * each;
    }
    extent count(const axis_layout& l, extent task) const {
        return std::min(each, (is_columns ? l.inner() : l.outputs) - task % tiles * each);
    }
};

/// The elements of an output from `index` on that have a constant stride, and end at or before `end`.
struct run_at {
    extent offset, stride, count;
    run_at(const axis_layout& l, extent index, extent end);
};

/// How the elements of an output become its result: by one pass; or block by block by two, of which the second needs
/// what the first has found, the block's mean or the largest element so far.
struct method {
    enum class kind { terms, variance, logsumexp } of_kind;
    pass first, second;
    double factor, share;  ///< share: 1 divided by the number of elements
    decltype(&portable::raise_columns) raise;
    decltype(&portable::add_exponentials) add_exponentials;
    decltype(&portable::add_variances) add_variances;
    decltype(&portable::join_variances) join_variances;

    static method of(const cpu& device, axis_operation operation, extent size, double factor);
    /// One pass.
    static method of(const cpu& device, const pass& only, double factor = 1);

    double nothing() const { return of_kind == kind::terms ? static_cast<double>(first.nothing) : 0; }
    double no_center() const { return of_kind == kind::logsumexp ? -HUGE_VAL : 0; }
    double result(double total, double center) const;
};

/// Some elements of an output, reduced.
struct state {
    double total, center;

    /// Adds a block of `count` elements to the `before` ones.
    void add(const method& how, extent before, const float* x, extent count, float parameter);
};

/// Reduces the elements [begin, end) of one output.
state reduce_output(const source& x, const axis_layout& l, const method& how, extent output, extent begin, extent end,
                    float parameter, float* buffer);

/// Reduces the elements [begin, end) of each of `width` adjacent outputs, into w.total and w.center, with their parameters
/// in w.parameters.
void reduce_columns(const source& x, const axis_layout& l, const method& how, extent output, extent width, extent begin,
                    extent end, worker& w);

/// Joins the results of all pieces of `count` outputs, from which the first of `outputs` is `first`, into w.total and
/// w.center.
void join_pieces(const method& how, const plan& cut, const axis_layout& l, extent first, extent count,
                 const double* totals, const double* centers, worker& w);

/// A whole reduction. `parameters`: one per output, or nullptr if it has none. Results are written to `y`, the values for
/// the gradient to `kept`; either may be missing.
void reduce(cpu& device, const source& x, const axis_layout& l, const method& how, const float* parameters,
            const sink* y, float* kept, write_mode mode = write_mode::overwrite);

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline const float* source::floats(extent offset, extent stride, extent count, float* buffer) const {
    const std::byte* const from = data + offset * bytes;
    if (is_float && stride == 1) return reinterpret_cast<const float*>(from);
    widen(from, stride, count, buffer);
    return buffer;
}

inline plan plan::of(const axis_layout& l) {
    plan p{};
    p.is_columns = l.is_columns();
    const extent group = p.is_columns ? l.inner() : l.outputs;
    const extent fitting = 16384 / std::max<extent>(l.reduced_size, 1);
    p.each = p.is_columns ? columns : std::clamp<extent>(fitting, 1, columns);
    p.tiles = (group + p.each - 1) / p.each;
    p.tasks = group == 0 ? 0 : l.outputs / group * p.tiles;
    const extent in_task = std::min(group, p.each) * l.reduced_size,
                 granule = p.is_columns ? rows_in_float : axis_block;
    p.pieces = p.tasks == 0 || p.tasks >= 32 ? 1 : std::clamp<extent>(in_task / 32768, 1, 64);
    p.piece_size = ((l.reduced_size + p.pieces - 1) / p.pieces + granule - 1) / granule * granule;
    p.pieces = l.reduced_size == 0 ? 1 : (l.reduced_size + p.piece_size - 1) / p.piece_size;
    return p;
}

inline run_at::run_at(const axis_layout& l, extent index, extent end) {
    const axis_run run = l.last_reduced();
    offset = l.reduced_offset(index);
    stride = run.stride;
    count = std::min(run.count - index % run.count, end - index);
}

inline void state::add(const method& how, extent before, const float* x, extent count, float parameter) {
    float off = 0;
    if (how.of_kind == method::kind::terms) {
        total = how.first.combine(total, static_cast<double>(how.first.block(x, count, parameter, &off)));
    } else if (how.of_kind == method::kind::logsumexp) {
        const double largest =
            combine<axis_term::maximum>(center, static_cast<double>(how.first.block(x, count, 0, &off)));
        if (total != 0 && largest != center) total *= std::exp(finite_shift(center) - finite_shift(largest));
        center = largest;
        total += static_cast<double>(how.second.block(x, count, static_cast<float>(finite_shift(center)), &off));
    } else {
        // The squares about the block's mean, and then those about the mean of all: Chan, Golub, LeVeque, "Updating
        // formulae and a pairwise algorithm for computing sample variances".
        const auto n = static_cast<double>(count), old = static_cast<double>(before);
        const auto p = static_cast<float>(static_cast<double>(how.first.block(x, count, 0, &off)) / n);
        double squares = static_cast<double>(how.second.block(x, count, p, &off));
        const double rest = is_nan(off) ? 0 : static_cast<double>(off), sum = static_cast<double>(p) * n + rest;
        squares -= rest * rest / n;
        const double apart = before == 0 ? 0 : sum / n - center / old;
        total += squares + apart * apart * (old * n / (old + n));
        center += sum;
    }
}

inline state reduce_output(const source& x, const axis_layout& l, const method& how, extent output, extent begin,
                           extent end, float parameter, float* buffer) {
    const extent first = l.output_offset(output);
    state all{how.nothing(), how.no_center()};
    extent held = 0, reduced = 0;  // number of floats in the buffer, and of those that have left it
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        const extent count = std::min(run.count, axis_block - held);
        i += count;
        // A processor's own prefetching ends where a run does.
        if (l.reduced_count > 1 && count >= 64 && i + prefetched < end) {
            const run_at later(l, i + prefetched, end);
            if (later.stride == 1)
                halftone::detail::prefetch(x.data + (first + later.offset) * x.bytes,
                                           static_cast<std::size_t>(std::min(axis_block, later.count) * x.bytes));
        }
        if (held == 0 && (count == axis_block || i == end)) {
            all.add(how, reduced, x.floats(first + run.offset, run.stride, count, buffer), count, parameter);
            reduced += count;
            continue;
        }
        x.widen(x.data + (first + run.offset) * x.bytes, run.stride, count, buffer + held);
        held += count;
        if (held == axis_block || i == end) {
            all.add(how, reduced, buffer, held, parameter);
            reduced += held;
            held = 0;
        }
    }
    return all;
}

/// Calls with.rows for the elements [begin, end) of adjacent outputs, which begin at the offset `first`.
inline void visit_rows(const source& x, const axis_layout& l, const pass& with, extent first, extent width,
                       extent begin, extent end, bool prefetches, worker& w) {
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        const extent known = prefetches ? run_at(l, i, l.reduced_size).count : 0;
        const std::byte* const from = x.data + (first + run.offset) * x.bytes;
        if (x.is_float) {
            with.rows(run.count, width, reinterpret_cast<const float*>(from), run.stride, known, w.parameters, w.all,
                      w.slopes);
            i += run.count;
            continue;
        }
        const extent rows = std::min(run.count, widened / width / 4 * 4);
        x.widen_rows(from, run.stride, rows, width, known, w.buffer);
        with.rows(rows, width, w.buffer, width, 0, w.parameters, w.all, w.slopes);
        i += rows;
    }
}

inline void reduce_columns(const source& x, const axis_layout& l, const method& how, extent output, extent width,
                           extent begin, extent end, worker& w) {
    using enum method::kind;
    constexpr extent most_lanes = 16;
    const extent first = l.output_offset(output), filled = (width + most_lanes - 1) / most_lanes * most_lanes;
    std::fill_n(w.total, filled, how.nothing());
    std::fill_n(w.center, filled, how.no_center());
    std::fill_n(w.all, filled, how.first.nothing);
    for (extent i = begin; i < end; i += rows_in_float) {
        const extent rows = std::min(rows_in_float, end - i);
        visit_rows(x, l, how.first, first, width, i, i + rows, true, w);
        if (how.of_kind == terms && how.first.chooses) continue;
        if (how.of_kind != terms) {
            if (how.of_kind == logsumexp) how.raise(width, w.all, w.center, w.total, w.parameters);
            const float share = 1.0f / static_cast<float>(rows);
            for (extent j = 0; j < filled && how.of_kind == variance; ++j) w.parameters[j] = w.all[j] * share;
            std::fill_n(w.all, filled, how.second.nothing);
            std::fill_n(w.slopes, filled, 0.0f);
            visit_rows(x, l, how.second, first, width, i, i + rows, false, w);
        }
        if (how.of_kind == variance) {
            how.add_variances(width, static_cast<double>(i - begin), static_cast<double>(rows), w.parameters, w.all,
                              w.slopes, w.center, w.total);
        } else {
            how.second.fold(width, w.all, w.total);
        }
        std::fill_n(w.all, filled, how.first.nothing);
    }
    if (how.of_kind == terms && how.first.chooses) how.first.fold(width, w.all, w.total);
}

inline method method::of(const cpu& device, const pass& only, double factor) {
    return {kind::terms,
            only,
            only,
            factor,
            1,
            device.select(&portable::raise_columns, &avx2::raise_columns, &avx512::raise_columns),
            device.select(&portable::add_exponentials, &avx2::add_exponentials, &avx512::add_exponentials),
            device.select(&portable::add_variances, &avx2::add_variances, &avx512::add_variances),
            device.select(&portable::join_variances, &avx2::join_variances, &avx512::join_variances)};
}

inline method method::of(const cpu& device, axis_operation operation, extent size, double factor) {
    using enum axis_operation;
    if (operation == amax) return of(device, pass_of<axis_term::maximum>(device));
    if (operation == amin) return of(device, pass_of<axis_term::minimum>(device));
    if (operation == prod) return of(device, pass_of<axis_term::product>(device));
    method m = of(device, pass_of<axis_term::value>(device), operation == logsumexp ? 1 : factor);
    m.share = 1.0 / static_cast<double>(size);
    if (operation == var) {
        m.of_kind = kind::variance;
        m.second = pass_of<axis_term::square>(device);
    } else if (operation == logsumexp) {
        m.of_kind = kind::logsumexp;
        m.first = pass_of<axis_term::maximum>(device);
        m.second = pass_of<axis_term::exponential>(device);
    }
    return m;
}

inline double method::result(double total, double center) const {
    if (of_kind != kind::logsumexp) return total * factor;
    return is_inf(center) ? center : std::log(total) + center;
}

inline void join_pieces(const method& how, const plan& cut, const axis_layout& l, extent first, extent count,
                        const double* totals, const double* centers, worker& w) {
    std::fill_n(w.total, columns, how.nothing());
    std::fill_n(w.center, columns, how.no_center());
    const auto of_piece = [&](const double* from, extent piece) { return from + piece * l.outputs + first; };
    if (how.of_kind == method::kind::logsumexp) {
        for (extent piece = 0; piece < cut.pieces; ++piece) how.first.join(count, of_piece(centers, piece), w.center);
    }
    for (extent piece = 0; piece < cut.pieces; ++piece) {
        const double* const total = of_piece(totals, piece);
        const double* const center = how.of_kind == method::kind::terms ? nullptr : of_piece(centers, piece);
        if (how.of_kind == method::kind::terms) {
            how.first.join(count, total, w.total);
        } else if (how.of_kind == method::kind::logsumexp) {
            how.add_exponentials(count, center, total, w.center, w.total);
        } else {
            const extent before = piece * cut.piece_size, some = std::min(cut.piece_size, l.reduced_size - before);
            how.join_variances(count, static_cast<double>(before), static_cast<double>(some), center, total, w.center,
                               w.total);
        }
    }
}

inline void reduce(cpu& device, const source& x, const axis_layout& l, const method& how, const float* parameters,
                   const sink* y, float* kept, write_mode mode) {
    const plan cut = plan::of(l);
    // Whole vectors are read, beyond the last output, too.
    const std::size_t all = static_cast<std::size_t>(cut.pieces * l.outputs + 16) * sizeof(double);
    const bool is_cut = cut.pieces > 1, has_center = how.of_kind != method::kind::terms;
    const workspace::lease first_part(device.scratch(), is_cut ? all : 0),
        second_part(device.scratch(), is_cut && has_center ? all : 0);
    auto* const totals = first_part.as<double>();
    auto* const centers = second_part.as<double>();
    // Reduces the elements [begin, end) of a task's outputs into w.total and w.center.
    const auto some = [&](extent task, extent begin, extent end, worker& w) {
        const extent first = cut.first(l, task), count = cut.count(l, task);
        if (parameters == nullptr) {
            std::fill_n(w.parameters, count, 0.0f);
        } else {
            std::copy_n(parameters + first, count, w.parameters);
        }
        if (cut.is_columns) return reduce_columns(x, l, how, first, count, begin, end, w);
        for (extent o = 0; o < count; ++o) {
            const state s = reduce_output(x, l, how, first + o, begin, end, w.parameters[o], w.buffer);
            w.total[o] = s.total, w.center[o] = s.center;
        }
    };
    const auto finish = [&](extent first, extent count, worker& w) {
        const bool keeps_mean = how.of_kind == method::kind::variance;
        for (extent o = 0; o < count; ++o) {
            w.parameters[o] = static_cast<float>(how.result(w.total[o], w.center[o]));
            if (kept != nullptr)
                kept[first + o] = keeps_mean ? static_cast<float>(w.center[o] * how.share) : w.parameters[o];
        }
        if (y != nullptr) y->put(w.parameters, count, first, 1, mode);
    };
    device.parallel_for(cut.tasks * cut.pieces, sizeof(worker), [&](extent index, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent task = index / cut.pieces, piece = index % cut.pieces, begin = piece * cut.piece_size;
        const extent first = cut.first(l, task), count = cut.count(l, task);
        some(task, begin, std::min(begin + cut.piece_size, l.reduced_size), w);
        if (!is_cut) return finish(first, count, w);
        std::copy_n(w.total, count, totals + piece * l.outputs + first);
        if (has_center) std::copy_n(w.center, count, centers + piece * l.outputs + first);
    });
    if (!is_cut) return;
    device.parallel_for(cut.tasks, sizeof(worker), [&](extent task, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent first = cut.first(l, task), count = cut.count(l, task);
        join_pieces(how, cut, l, first, count, totals, centers, w);
        finish(first, count, w);
    });
}

#endif

}  // namespace axis_cpu

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
