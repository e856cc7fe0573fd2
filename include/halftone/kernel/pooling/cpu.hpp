// SPDX-License-Identifier: MIT
/// \file
/// Pooling on the CPU; pooling.hpp has the contract and examples.
///
/// A task computes some rows of the output, or of the input's gradient. The part that all windows of a row share (the
/// largest value, or the sum, of each column) is computed for the whole row in vectors of floats, whatever the element
/// types are; then each window combines its columns. So a window of k * k elements costs k vector operations per row
/// and k scalar operations per window.
#pragma once

#include <algorithm>

#include <halftone/kernel/axis_reduction/cpu.hpp>
#include <halftone/kernel/pooling/each/places.hpp>

#define HALFTONE_BODY <halftone/kernel/pooling/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace pool_cpu {

using axis_cpu::sink;
using axis_cpu::source;

/// Calls work(row, buffer) for each row; each task has its own buffer.
template <class Work>
void for_rows(cpu& device, extent rows, extent cost, extent floats, const Work& work) {
    const row_partition partition = partition_rows(rows, cost);
    const auto bytes = static_cast<std::size_t>(floats) * sizeof(float);
    device.parallel_for(partition.count, bytes, [&](extent piece, std::byte* scratch) {
        const extent begin = partition.begin(piece), end = begin + partition.rows_of(piece);
        for (extent row = begin; row < end; ++row) work(row, reinterpret_cast<float*>(scratch));
    });
}

/// The column in [first, end) with the largest value. If several columns have it, the one with the uppermost row is
/// returned, and among these the first; of several NaNs, the last column in the lowest row.
inline extent largest_column(const float* largest, const float* rows, extent first, extent end, extent step) {
    extent at = first;
    for (extent w = first + step; w < end; w += step) {
        const float v = largest[w], found = largest[at];
        const bool is_better =
            is_nan(v) ? !is_nan(found) || rows[w] >= rows[at] : v > found || (v == found && rows[w] < rows[at]);
        if (is_better) at = w;
    }
    return at;
}

inline void largest(cpu& device, const pool_layout& l, const source& x, const sink& y, std::int32_t* index) {
    const auto take = device.select(HALFTONE_EACH_SET(pool_largest_rows));
    const extent in = l.width.in, out = l.width.out;
    for_rows(device, l.planes * l.height.out, in * l.height.size, 3 * in + out, [&](extent r, float* buffer) {
        float *const largest = buffer, *const rows = largest + in, *const widened = rows + in,
                     *const results = widened + in;
        const extent plane = r / l.height.out, top = l.height.begin(r % l.height.out),
                     bottom = l.height.end(r % l.height.out);
        std::fill_n(largest, in, -beyond_all);
        std::fill_n(rows, in, 0.0f);
        for (extent h = top; h < bottom; h += l.height.dilation)
            take(x.floats((plane * l.height.in + h) * in, 1, in, widened), in, static_cast<float>(h - top), largest,
                 rows);
        for (extent o = 0; o < out; ++o) {
            const extent first = l.width.begin(o), end = l.width.end(o);
            const bool is_empty = top >= bottom || first >= end;
            const extent at = is_empty ? 0 : largest_column(largest, rows, first, end, l.width.dilation);
            results[o] = is_empty ? -beyond_all : largest[at];
            if (index != nullptr)
                index[r * out + o] =
                    is_empty ? -1 : static_cast<std::int32_t>((top + static_cast<extent>(rows[at])) * in + at);
        }
        y.put(results, out, r * out);
    });
}

inline void largest_gradient(cpu& device, const pool_layout& l, const source& dy, const std::int32_t* index,
                             const sink& dx, write_mode mode) {
    const extent in = l.width.in, out = l.width.out;
    for_rows(device, l.planes * l.height.in, 2 * in, in + out, [&](extent r, float* buffer) {
        float *const sums = buffer, *const widened = sums + in;
        const extent plane = r / l.height.in, h = r % l.height.in, own = h * in;
        std::fill_n(sums, in, 0.0f);
        for (extent row = l.height.first_window(h); row < l.height.end_window(h); ++row) {
            const extent first = (plane * l.height.out + row) * out;
            const float* const from = dy.floats(first, 1, out, widened);
            for (extent o = 0; o < out; ++o) {
                const extent w = index[first + o] - own;
                if (w >= 0 && w < in) sums[w] += from[o];
            }
        }
        dx.put(sums, in, r * in, 1, mode);
    });
}

inline void mean(cpu& device, const pool_layout& l, const source& x, const sink& y) {
    const auto add = device.select(HALFTONE_EACH_SET(pool_add_row));
    const extent in = l.width.in, out = l.width.out;
    const extent cost = in * (l.height.size == 0 ? l.height.in / l.height.out + 1 : l.height.size);
    for_rows(device, l.planes * l.height.out, cost, 2 * in + out, [&](extent r, float* buffer) {
        float *const sums = buffer, *const widened = sums + in, *const results = widened + in;
        const extent plane = r / l.height.out, row = r % l.height.out, bottom = l.height.end(row);
        const auto count = static_cast<float>(l.height.count(row));
        std::fill_n(sums, in, 0.0f);
        for (extent h = l.height.begin(row); h < bottom; ++h)
            add(x.floats((plane * l.height.in + h) * in, 1, in, widened), in, sums);
        for (extent o = 0; o < out; ++o) {
            float total = 0;
            const extent end = l.width.end(o);
            for (extent w = l.width.begin(o); w < end; ++w) total += sums[w];
            results[o] = total / (static_cast<float>(l.width.count(o)) * count);
        }
        y.put(results, out, r * out);
    });
}

inline void mean_gradient(cpu& device, const pool_layout& l, const source& dy, const sink& dx, write_mode mode) {
    const auto add = device.select(HALFTONE_EACH_SET(pool_add_quotients));
    const extent in = l.width.in, out = l.width.out;
    const workspace::lease memory(device.scratch(), static_cast<std::size_t>(out) * sizeof(float));
    float* const counts = memory.as<float>();
    device.run([&] {
        for (extent o = 0; o < out; ++o) counts[o] = static_cast<float>(l.width.count(o));
    });
    for_rows(device, l.planes * l.height.in, 2 * in, 2 * out + in, [&](extent r, float* buffer) {
        float *const sums = buffer, *const widened = sums + out, *const results = widened + out;
        const extent plane = r / l.height.in, h = r % l.height.in;
        std::fill_n(sums, out, 0.0f);
        for (extent row = l.height.first_window(h); row < l.height.end_window(h); ++row)
            add(dy.floats((plane * l.height.out + row) * out, 1, out, widened), counts,
                static_cast<float>(l.height.count(row)), out, sums);
        std::fill_n(results, in, 0.0f);
        for (extent o = 0; o < out; ++o) {
            const extent end = l.width.end(o);
            for (extent w = l.width.begin(o); w < end; ++w) results[w] += sums[o];
        }
        dx.put(results, in, r * in, 1, mode);
    });
}

}  // namespace pool_cpu

template <>
struct pooling<cpu> {
    template <class X, class Y>
    static void largest(cpu& device, const pool_forward<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            pool_each::run_largest(device, a);
        } else {
            pool_cpu::largest(device, a.layout, axis_cpu::source_of(device, a.x), axis_cpu::sink_of(device, a.y),
                              a.index);
        }
    }
    template <class X, class Y>
    static void largest_gradient(cpu& device, const pool_backward<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            pool_each::run_largest_gradient(device, a);
        } else {
            pool_cpu::largest_gradient(device, a.layout, axis_cpu::source_of(device, a.dy), a.index,
                                       axis_cpu::sink_of(device, a.dx), a.mode);
        }
    }
    template <class X, class Y>
    static void chosen(cpu& device, const pool_layout& l, const X* x, const std::int32_t* index, Y* y) {
        pool_each::run_chosen(device, l, x, index, y);
    }
    template <class X, class Y>
    static void mean(cpu& device, const pool_forward<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            pool_each::run_mean(device, a);
        } else {
            pool_cpu::mean(device, a.layout, axis_cpu::source_of(device, a.x), axis_cpu::sink_of(device, a.y));
        }
    }
    template <class X, class Y>
    static void mean_gradient(cpu& device, const pool_backward<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            pool_each::run_mean_gradient(device, a);
        } else {
            pool_cpu::mean_gradient(device, a.layout, axis_cpu::source_of(device, a.dy),
                                    axis_cpu::sink_of(device, a.dx), a.mode);
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
