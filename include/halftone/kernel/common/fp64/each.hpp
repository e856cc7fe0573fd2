// SPDX-License-Identifier: MIT
/// \file
/// Kernels in double, written once for every device: a function of one index, called for all of them. It accesses
/// memory through spans and the functions load and store, like any GPU kernel; on the CPU these access a pointer.
///
///     struct doubled {
///         simt::global_span<double> x;
///         HALFTONE_KERNEL template <class Thread>
///         HALFTONE_HD void operator()(Thread thread, extent i) const { thread.store(x, i, 2 * thread.load(x, i)); }
///     };
///     fp64::for_each(device, n, 1, doubled{simt::span_of(x)});
///
/// Numeric contract: everything in double; operands are widened exactly, and results rounded once, when they are
/// stored. A sum over rows adds 32 consecutive rows in order, then 32 of those sums, and so on: a tree that depends on
/// the number of rows, in which a term passes through at most sum_depth(rows) additions. Sums within a row follow its
/// order. Neither depends on the number of threads or on the instruction set.
#pragma once

#include <limits>
#include <utility>

#include <halftone/exec/simt/memory.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

using simt::global_span;

inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
inline constexpr double largest_number = std::numeric_limits<double>::max();

/// The thread handle on the host.
struct host_thread {
    template <class T>
    static std::remove_const_t<T> load(const global_span<T>& s, extent i) {
        return s.data[i];
    }
    template <class T>
    static void store(const global_span<T>& s, extent i, std::type_identity_t<T> value) {
        s.data[i] = value;
    }
};

/// Specialised for the CPU and for devices of exec/simt: run(device, count, cost, work) calls work(thread, i) for every
/// i in [0, count). `cost`: the number of elements that one call accesses.
template <class Device>
struct each;

template <class Device, class Work>
void for_each(Device& device, extent count, extent cost, const Work& work) {
    each<Device>::run(device, count, cost, work);
}

/// A number as a double; 0 for an empty span.
HALFTONE_KERNEL template <class Thread, class T>
HALFTONE_HD double load_or_zero(Thread thread, const global_span<T>& s, extent i) {
    return s.is_there() ? static_cast<double>(thread.load(s, i)) : 0.0;
}

/// A matrix with any leading dimension.
template <class T>
struct rows_of {
    global_span<T> values;
    extent stride;

    explicit rows_of(const view<T, 2>& v) : values(simt::bounding_span_of(v)), stride(v.stride_of(0)) {}

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double load(Thread thread, extent row, extent column) const {
        return static_cast<double>(thread.load(values, row * stride + column));
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void store(Thread thread, extent row, extent column, double value,
                           write_mode mode = write_mode::overwrite) const {
        if (mode == write_mode::add) value = load(thread, row, column) + value;
        thread.store(values, row * stride + column, static_cast<T>(value));
    }
};
template <class T>
rows_of(const view<T, 2>&) -> rows_of<T>;

// ---- sums over rows

/// The elements of a matrix as the terms of a sum.
template <class T>
struct element_term {
    rows_of<T> x;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double operator()(Thread thread, extent row, extent column) const {
        return x.load(thread, row, column);
    }
};

inline constexpr extent sum_fan = 32;

constexpr extent sum_groups(extent rows) { return rows <= sum_fan ? 1 : detail::ceil_div(rows, sum_fan); }

constexpr extent sum_depth(extent rows) { return rows <= sum_fan ? rows : sum_fan + sum_depth(sum_groups(rows)); }

/// One level of the tree: out[group, column] = factor times the sum of the terms of its rows.
template <class Term, class G>
struct sum_level {
    Term term;
    extent rows, columns;
    double factor;
    global_span<G> out;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const extent group = i / columns, column = i - group * columns;
        const extent begin = group * sum_fan, end = begin + sum_fan < rows ? begin + sum_fan : rows;
        double sum = 0;
        for (extent row = begin; row < end; ++row) sum += term(thread, row, column);
        sum *= factor;
        if (mode == write_mode::add) sum = static_cast<double>(thread.load(out, i)) + sum;
        thread.store(out, i, static_cast<G>(sum));
    }
};

/// out[column] = (or +=) factor times the sum over rows of term(thread, row, column), which accesses `cost` elements.
template <class Device, class Term, class G>
void sum_rows(Device& device, extent rows, extent columns, extent cost, const Term& term, double factor, G* out,
              write_mode mode) {
    const global_span<G> results{out, columns};
    extent left = sum_groups(rows);
    if (left == 1)
        return for_each(device, columns, rows * cost, sum_level<Term, G>{term, rows, columns, factor, results, mode});
    const workspace::lease lease(device.scratch(),
                                 static_cast<std::size_t>((left + sum_groups(left)) * columns) * sizeof(double));
    auto *from = lease.as<double>(), *to = from + left * columns;
    for_each(device, left * columns, sum_fan * cost,
             sum_level<Term, double>{term, rows, columns, 1.0, {from, left * columns}, write_mode::overwrite});
    using below = element_term<const double>;
    const auto sums = [&] { return below{rows_of<const double>({from, {left, columns}})}; };
    while (sum_groups(left) > 1) {
        const extent groups = sum_groups(left);
        for_each(device, groups * columns, sum_fan,
                 sum_level<below, double>{sums(), left, columns, 1.0, {to, groups * columns}, write_mode::overwrite});
        std::swap(from, to);
        left = groups;
    }
    for_each(device, columns, left, sum_level<below, G>{sums(), left, columns, factor, results, mode});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
