// SPDX-License-Identifier: MIT
/// \file
/// The CPU's part of attention's math strategy: what it does between products and softmax; math/math.hpp describes the
/// functions.
#pragma once

#include <algorithm>
#include <cmath>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/attention/math/math.hpp>
#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct attention_rows<cpu> {
    static constexpr extent flag_rows = 1;

    static void check(cpu& device, const packed_sequences& sequences, const detail::attention_extents& e) {
        device.run([&] { detail::check_offsets(sequences, e); });
    }

    static void mask_scores(cpu& device, const attention_visibility& visible, float value, const view<float, 2>& x);

    template <class Compute, class T>
    static const_view<T, 2> finite(cpu& device, const const_view<T, 2>& x, const view<T, 2>& copy,
                                   std::int32_t* found) {
        const extent width = x.extent_of(1);
        const row_partition partition = partition_rows(x.extent_of(0), width);
        const auto each_row = [&](const auto& body) {
            device.parallel_for(partition.count, [&](extent piece) {
                const extent begin = partition.begin(piece), end = begin + partition.rows_of(piece);
                for (extent i = begin; i < end; ++i) body(i, x.data() + i * x.stride_of(0));
            });
        };
        const auto reads_finite = [](const T& value) {
            return attention_reads_finite<Compute>(detail::in_float(value));
        };
        each_row([&](extent i, const T* row) { found[i] = std::all_of(row, row + width, reads_finite) ? 0 : 1; });
        bool any = false;
        device.run([&] { any = std::find(found, found + x.extent_of(0), 1) != found + x.extent_of(0); });
        if (!any) return x;
        each_row([&](extent i, const T* row) {
            std::transform(row, row + width, copy.data() + i * width,
                           [&](const T& value) { return reads_finite(value) ? value : T(0.0f); });
        });
        return copy;
    }

    template <class Compute, class T, class To>
    static void add_not_finite(cpu& device, const attention_visibility& visible, attention_sum over,
                               const view<float, 2>& factors, const const_view<T, 2>& x, const std::int32_t* found,
                               const view<To, 2>& to) {
        const bool of_queries = over == attention_sum::over_keys;
        if (x.size() == 0 || to.size() == 0) return;
        const extent matrices = (of_queries ? x.extent_of(0) : to.extent_of(0)) / visible.keys;
        const extent others = x.extent_of(0) / matrices, rows = to.extent_of(0) / matrices;
        device.parallel_for(to.extent_of(0), [&](extent row) {
            const extent matrix = row / rows, in_matrix = row % rows;
            for (extent other = 0; other < others; ++other) {
                const extent at = matrix * others + other;
                if (found[at] == 0) continue;
                const extent query = of_queries ? row : at, key = of_queries ? other : in_matrix;
                const auto [first, last] = seen_by(visible, query % visible.queries);
                if (key < first || key >= last) continue;
                const auto factor = static_cast<float>(Compute(factors(query, key)));
                for (extent d = 0; d < x.extent_of(1); ++d) {
                    const auto value = static_cast<float>(Compute(detail::in_float(x(at, d))));
                    if (!is_finite(value)) to(row, d) = To(detail::in_float(to(row, d)) + factor * value);
                }
            }
        });
    }

    static void logsumexp(cpu& device, const attention_visibility& visible, const view<float, 2>& scores,
                          const view<float, 2>& to);
    static void finish_logsumexp(cpu& device, const attention_visibility& visible, const view<float, 2>& weights,
                                 const view<float, 2>& to);

  private:
    /// Calls body(row, the first key that its query sees, one past the last)
    template <class Body>
    static void for_rows(cpu& device, const attention_visibility& visible, extent rows, const Body& body) {
        const row_partition partition = partition_rows(rows, visible.keys);
        device.parallel_for(partition.count, [&](extent piece) {
            const extent begin = partition.begin(piece), end = begin + partition.rows_of(piece);
            for (extent i = begin; i < end; ++i) {
                const auto [first, last] = seen_by(visible, i % visible.queries);
                body(i, first, last);
            }
        });
    }
    struct interval {
        extent first, last;
    };
    static interval seen_by(const attention_visibility& visible, extent query);
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/attention/cpu/math.body.hpp>
#endif
