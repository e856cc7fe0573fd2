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
            device.select(HALFTONE_EACH_SET(widen_elements<X>)), device.select(HALFTONE_EACH_SET(widen_rows<X>)),
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
            device.select(HALFTONE_EACH_SET(narrow_elements<Y>))};
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
            device.select(HALFTONE_EACH_SET(reduce_block<Term>)),
            device.select(HALFTONE_EACH_SET(reduce_rows<Term>)),
            device.select(HALFTONE_EACH_SET(fold_columns<Term, float>)),
            device.select(HALFTONE_EACH_SET(fold_columns<Term, double>)),
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

}  // namespace axis_cpu

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/axis_reduction/cpu/forward.body.hpp>
#endif
