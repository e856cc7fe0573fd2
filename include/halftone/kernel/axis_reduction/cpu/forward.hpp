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
#include <limits>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/number/integer.hpp>

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
/// How many bytes of an output are prefetched before they are read.
inline constexpr extent bytes_ahead = 10240;

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
    float nothing_more;  ///< of what is found besides
    bool chooses;        ///< whether it determines the largest or the smallest element
    float (*block)(const float* x, extent count, float parameter, float* more);
    void (*rows)(extent rows, extent width, const float* x, extent stride, extent known, const float* p, float* all,
                 float* more);
    void (*fold)(extent width, const float* from, double* total);
    void (*join)(extent width, const double* from, double* total);
    double (*combine)(double a, double b);
};
template <axis_term Term>
pass pass_of(const cpu& device) {
    return {nothing_of(Term),
            Term == axis_term::exponential ? -beyond_all : 0.0f,
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
    float parameters[columns], all[columns], more[columns], buffer[widened];
};
/// Arrays of a worker have room for whole vectors.
inline constexpr extent padded(extent width) { return round_up(width, 16); }

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
/// what the first has found, a mean or the largest element. If the mean or the largest element of earlier blocks serves
/// as well, which the second pass tells, a block takes only the second.
struct method {
    enum class kind { terms, variance, logsumexp } of_kind;
    pass first, second;
    double factor, share;  ///< share: 1 divided by the number of elements
    decltype(&portable::raise_columns) raise;
    decltype(&portable::join_exponentials) join_exponentials;
    decltype(&portable::add_variances) add_variances;
    decltype(&portable::join_variances) join_variances;
    decltype(&portable::are_near_mean) are_near_mean;
    decltype(&portable::are_below) are_below;
    bool is_root = false;  ///< whether the result is the root of a variance

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

  private:
    void add_squares(const method& how, extent before, const float* x, extent count);
    void add_exponentials(const method& how, const float* x, extent count);
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
    p.tiles = detail::ceil_div(group, p.each);
    p.tasks = group == 0 ? 0 : l.outputs / group * p.tiles;
    const extent in_task = std::min(group, p.each) * l.reduced_size,
                 granule = p.is_columns ? rows_in_float : axis_block;
    p.pieces =
        p.tasks == 0 || p.tasks >= 32 ? 1 : std::clamp<extent>(in_task / 32768, 1, std::min<extent>(64, 128 / p.tasks));
    p.piece_size = round_up(detail::ceil_div(l.reduced_size, p.pieces), granule);
    p.pieces = l.reduced_size == 0 ? 1 : detail::ceil_div(l.reduced_size, p.piece_size);
    return p;
}

inline run_at::run_at(const axis_layout& l, extent index, extent end) {
    const axis_run run = l.last_reduced();
    offset = l.reduced_offset(index);
    stride = run.stride;
    count = std::min(run.count - index % run.count, end - index);
}

inline void state::add_squares(const method& how, extent before, const float* x, extent count) {
    const auto n = static_cast<double>(count), old = static_cast<double>(before);
    float off = 0;
    // The sum of finite floats may be beyond float's range, but their mean is not.
    const auto mean_in_double = [&] {
        double sum = 0;
        for (extent i = 0; i < count; ++i) sum += static_cast<double>(x[i]);
        return static_cast<float>(sum / n);
    };
    const auto mean_of_block = [&] {
        const auto mean = static_cast<float>(static_cast<double>(how.first.block(x, count, 0, &off)) / n);
        return is_finite(mean) ? mean : mean_in_double();
    };
    auto p = before == 0 ? mean_of_block() : static_cast<float>(center / old);
    float squares = how.second.block(x, count, p, &off);
    if (before != 0 && !(off * off * (4 / static_cast<float>(count)) <= squares)) {
        p = mean_of_block();
        squares = how.second.block(x, count, p, &off);
    }
    // Differences of finite floats may be infinite: then the squares are, too.
    if (const float mean = is_inf(off) ? mean_in_double() : off; is_inf(off) && is_finite(mean)) p = mean, off = 0;
    // The squares about the block's mean, and then those about the mean of all: Chan, Golub, LeVeque, "Updating formulae
    // and a pairwise algorithm for computing sample variances".
    const double rest = is_nan(off) ? 0 : static_cast<double>(off), sum = static_cast<double>(p) * n + rest;
    const double apart = before == 0 ? 0 : sum / n - center / old;
    total += static_cast<double>(squares) - rest * rest / n + apart * apart * (old * n / (old + n));
    center += sum;
}

inline void state::add_exponentials(const method& how, const float* x, extent count) {
    float largest = 0;
    if (std::abs(center) < HUGE_VAL) {
        const double sum = static_cast<double>(how.second.block(x, count, static_cast<float>(center), &largest));
        if (static_cast<double>(largest) <= center + 2) {
            total += sum;
            return;
        }
    }
    const double found =
        combine<axis_term::maximum>(center, static_cast<double>(how.first.block(x, count, 0, &largest)));
    if (total != 0) total *= std::exp(finite_shift(center) - finite_shift(found));
    center = found;
    // An infinite or missing largest element is the result.
    if (std::abs(center) < HUGE_VAL)
        total += static_cast<double>(how.second.block(x, count, static_cast<float>(center), &largest));
}

inline void state::add(const method& how, extent before, const float* x, extent count, float parameter) {
    if (how.of_kind == method::kind::variance) return add_squares(how, before, x, count);
    if (how.of_kind == method::kind::logsumexp) return add_exponentials(how, x, count);
    float none;
    total = how.first.combine(total, static_cast<double>(how.first.block(x, count, parameter, &none)));
}

/// Prefetches as many elements of an output as have just been found, `count` before i, further on: a processor's own
/// prefetching ends where a run or a page does. Those behind the last one are likely the next output's.
HALFTONE_INLINE void prefetch_later(const source& x, const axis_layout& l, extent first, extent i, extent count,
                                    extent end) {
    extent offset = i - count + bytes_ahead / x.bytes;
    if (l.reduced_count > 1) {
        if (offset >= end) return;
        const run_at later(l, offset, end);
        offset = later.offset, count = std::min(count, later.count);
    }
    halftone::detail::prefetch(x.data + (first + offset) * x.bytes, static_cast<std::size_t>(count * x.bytes));
}

inline state reduce_output(const source& x, const axis_layout& l, const method& how, extent output, extent begin,
                           extent end, float parameter, float* buffer) {
    const extent first = l.output_offset(output);
    state all{how.nothing(), how.no_center()};
    // One pass over floats is so fast that the processor's own prefetching goes far enough ahead.
    const bool prefetches = !x.is_float || how.of_kind != method::kind::terms;
    extent held = 0, reduced = 0;  // number of floats in the buffer, and of those that have left it
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        const extent count = std::min(run.count, axis_block - held);
        i += count;
        if (prefetches && count >= 64 && run.stride == 1) prefetch_later(x, l, first, i, count, end);
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

/// Some rows of adjacent outputs, of which the first has its first element at the offset `first`, and is output `column`
/// of its task.
struct rows_of_columns {
    const source& x;
    const axis_layout& l;
    extent first, column, width, begin, end;

    rows_of_columns narrowed(extent from, extent to) const {
        return {x, l, first + from, column + from, std::min(to, width - from), begin, end};
    }
    /// Calls with.rows for them.
    void visit(const pass& with, bool prefetches, worker& w) const;
    /// The mean of the rows of a column, whose sum in float is not finite.
    float mean_in_double(extent of, worker& w) const;
    /// Columns of finite floats whose differences from the mean are infinite: their squares are, too.
    void replace_infinite(worker& w) const;
    /// Two passes: for the mean, or the largest element, and with that. If they are not all rows, exponentials are of
    /// differences from 2 more than the largest element, so that it serves later rows with elements up to 4 larger.
    void two_passes(const method& how, bool is_all, worker& w) const;
    /// The second pass alone with what is known from earlier rows; both for columns in which that does not serve.
    void second_pass(const method& how, worker& w) const;
};

inline void rows_of_columns::visit(const pass& with, bool prefetches, worker& w) const {
    std::fill_n(w.all + column, padded(width), with.nothing);
    std::fill_n(w.more + column, padded(width), with.nothing_more);
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        const extent known = prefetches ? run_at(l, i, l.reduced_size).count : 0;
        const std::byte* const from = x.data + (first + run.offset) * x.bytes;
        const float *const p = w.parameters + column, *floats = reinterpret_cast<const float*>(from);
        extent rows = run.count, stride = run.stride;
        if (!x.is_float) {
            rows = std::min(rows, widened / width / 4 * 4);
            x.widen_rows(from, stride, rows, width, known, w.buffer);
            floats = w.buffer, stride = width;
        }
        with.rows(rows, width, floats, stride, x.is_float ? known : 0, p, w.all + column, w.more + column);
        i += rows;
    }
}

inline float rows_of_columns::mean_in_double(extent of, worker& w) const {
    double sum = 0;
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        const extent rows = std::min(run.count, axis_block);
        x.widen(x.data + (first + of + run.offset) * x.bytes, run.stride, rows, w.buffer);
        for (extent k = 0; k < rows; ++k) sum += static_cast<double>(w.buffer[k]);
        i += rows;
    }
    return static_cast<float>(sum / static_cast<double>(end - begin));
}

inline void rows_of_columns::replace_infinite(worker& w) const {
    for (extent j = 0; j < width; ++j) {
        if (!is_inf(w.more[column + j])) continue;
        const float mean = mean_in_double(j, w);
        if (is_finite(mean)) w.parameters[column + j] = mean, w.more[column + j] = 0;
    }
}

inline void rows_of_columns::two_passes(const method& how, bool is_all, worker& w) const {
    visit(how.first, true, w);
    if (how.of_kind == method::kind::logsumexp) {
        how.raise(width, w.all + column, is_all ? 0 : 2, w.center + column, w.total + column, w.parameters + column);
    } else {
        const float share = 1.0f / static_cast<float>(end - begin);
        for (extent j = column; j < column + padded(width); ++j) w.parameters[j] = w.all[j] * share;
        for (extent j = 0; j < width; ++j) {
            if (!is_finite(w.parameters[column + j])) w.parameters[column + j] = mean_in_double(j, w);
        }
    }
    visit(how.second, false, w);
    // An infinite largest element is the result, unless there is a NaN. It serves no other rows.
    for (extent j = column; j < column + width && how.of_kind == method::kind::logsumexp; ++j) {
        if (is_inf(w.center[j])) w.all[j] = 0, w.parameters[j] = std::numeric_limits<float>::quiet_NaN();
    }
}

inline void rows_of_columns::second_pass(const method& how, worker& w) const {
    visit(how.second, true, w);
    constexpr extent together = 64;
    for (extent j = 0; j < width; j += together) {
        const rows_of_columns some = narrowed(j, together);
        const bool serves = how.of_kind == method::kind::variance
                                ? how.are_near_mean(some.width, static_cast<float>(end - begin), w.all + some.column,
                                                    w.more + some.column)
                                : how.are_below(some.width, w.more + some.column, w.parameters + some.column);
        if (!serves) some.two_passes(how, false, w);
    }
}

inline void reduce_columns(const source& x, const axis_layout& l, const method& how, extent output, extent width,
                           extent begin, extent end, worker& w) {
    using enum method::kind;
    std::fill_n(w.total, padded(width), how.nothing());
    std::fill_n(w.center, padded(width), how.no_center());
    const extent first = l.output_offset(output);
    if (how.of_kind == terms && how.first.chooses) {
        rows_of_columns{x, l, first, 0, width, begin, end}.visit(how.first, true, w);
        return how.first.fold(width, w.all, w.total);
    }
    for (extent i = begin; i < end; i += rows_in_float) {
        const rows_of_columns some{x, l, first, 0, width, i, std::min(i + rows_in_float, end)};
        if (how.of_kind == terms) {
            some.visit(how.first, true, w);
        } else if (i == begin) {
            some.two_passes(how, some.end == end, w);
        } else {
            some.second_pass(how, w);
        }
        if (how.of_kind == variance) {
            some.replace_infinite(w);
            how.add_variances(width, static_cast<double>(i - begin), static_cast<double>(some.end - i), w.parameters,
                              w.all, w.more, w.center, w.total);
        } else {
            how.second.fold(width, w.all, w.total);
        }
    }
}

inline method method::of(const cpu& device, const pass& only, double factor) {
    return {kind::terms,
            only,
            only,
            factor,
            1,
            device.select(&portable::raise_columns, &avx2::raise_columns, &avx512::raise_columns),
            device.select(&portable::join_exponentials, &avx2::join_exponentials, &avx512::join_exponentials),
            device.select(&portable::add_variances, &avx2::add_variances, &avx512::add_variances),
            device.select(&portable::join_variances, &avx2::join_variances, &avx512::join_variances),
            device.select(&portable::are_near_mean, &avx2::are_near_mean, &avx512::are_near_mean),
            device.select(&portable::are_below, &avx2::are_below, &avx512::are_below)};
}

inline method method::of(const cpu& device, axis_operation operation, extent size, double factor) {
    using enum axis_operation;
    if (operation == amax) return of(device, pass_of<axis_term::maximum>(device));
    if (operation == amin) return of(device, pass_of<axis_term::minimum>(device));
    if (operation == prod) return of(device, pass_of<axis_term::product>(device));
    method m = of(device, pass_of<axis_term::value>(device), operation == logsumexp ? 1 : factor);
    m.share = 1.0 / static_cast<double>(size);
    if (operation == var || operation == std_dev) {
        m.of_kind = kind::variance;
        m.is_root = operation == std_dev;
        m.second = pass_of<axis_term::square>(device);
    } else if (operation == logsumexp) {
        m.of_kind = kind::logsumexp;
        m.first = pass_of<axis_term::maximum>(device);
        m.second = pass_of<axis_term::exponential>(device);
    }
    return m;
}

inline double method::result(double total, double center) const {
    if (of_kind == kind::variance) {
        const double variance = (total < 0 ? 0 : total) * factor;
        return is_root ? std::sqrt(variance) : variance;
    }
    if (of_kind != kind::logsumexp) return total * factor;
    return is_inf(center) && !is_nan(total) ? center : std::log(total) + center;
}

inline void join_pieces(const method& how, const plan& cut, const axis_layout& l, extent first, extent count,
                        const double* totals, const double* centers, worker& w) {
    std::fill_n(w.total, padded(count), how.nothing());
    std::fill_n(w.center, padded(count), how.no_center());
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
            how.join_exponentials(count, center, total, w.center, w.total);
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
    constexpr extent joined = 256;
    device.parallel_for(detail::ceil_div(l.outputs, joined), sizeof(worker), [&](extent index, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent first = index * joined, count = std::min(joined, l.outputs - first);
        join_pieces(how, cut, l, first, count, totals, centers, w);
        finish(first, count, w);
    });
}

#endif

}  // namespace axis_cpu

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
