// SPDX-License-Identifier: MIT
/// \file
/// A GPU's part of attention's math strategy: what it does between products and softmax; math/math.hpp describes the
/// functions.
#pragma once

#include <cmath>
#include <cstdint>

#include <halftone/exec/simt/reduce.hpp>
#include <halftone/kernel/attention/math/math.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// attention_visibility as kernels read it. Invalid offsets are clamped.
struct attention_seen {
    extent queries, keys;
    attention_mask mask;
    simt::global_span<const std::int32_t> query_offsets, key_offsets;  ///< empty: one sequence

    struct interval {
        extent first, last;
    };

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE interval by(Simt simt, extent query) const {
        extent last_query = queries, first = 0, last = keys;
        if (query_offsets.is_there()) {
            // The last sequence that begins at or before the query; if several begin at one place, all others of these
            // are empty.
            extent low = 0, high = query_offsets.count - 1;
            while (high - low > 1) {
                const extent middle = (low + high) / 2;
                if (simt.load(query_offsets, middle) <= query) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            if (high == 0) return {0, 0};
            last_query = simt.load(query_offsets, low + 1);
            first = within(simt.load(key_offsets, low)), last = within(simt.load(key_offsets, low + 1));
        }
        if (mask == attention_mask::causal) last = last - last_query + query + 1;
        if (last > keys) last = keys;
        return {first, last < first ? first : last};
    }

  private:
    HALFTONE_HD extent within(extent key) const { return key < 0 ? 0 : key > keys ? keys : key; }
};

/// One row a block.
struct attention_mask_kernel {
    static constexpr int threads = 128;
    static constexpr simt::word shared_bytes = 0;

    attention_seen seen;
    float value;
    simt::global_span<float> x;  ///< (matrices, queries, keys)

    simt::grid_shape grid() const { return simt::blocks_along_x(x.count / seen.keys); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = simt.block().x;
        const attention_seen::interval visible = seen.by(simt, i % seen.queries);
        for (extent j = simt.thread(); j < seen.keys; j += threads) {
            if (j < visible.first || j >= visible.last) simt.store(x, i * seen.keys + j, value);
        }
    }
};

/// copy = x with zeros for all elements that are not finite in Compute, and a flag for every `rows` rows that have
/// such; a warp processes `rows` rows.
template <class Compute, class T>
struct attention_finite_kernel {
    static constexpr int rows = 8, threads = 128, block_rows = rows * threads / 32;
    static constexpr simt::word shared_bytes = 0;

    simt::global_span<const T> x;
    extent count, width, stride;
    simt::global_span<T> copy;              ///< (count, width)
    simt::global_span<std::int32_t> found;  ///< one flag for every `rows` rows

    simt::grid_shape grid() const { return simt::blocks_for(count, block_rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent group = static_cast<extent>(simt.block().x) * (threads / 32) + simt.warp();
        if (group * rows >= count) return;
        int not_finite = 0;
        for (extent i = group * rows; i < group * rows + rows && i < count; ++i) {
            for (extent d = simt.lane(); d < width; d += 32) {
                const T value = simt.load(x, i * stride + d);
                const bool is_finite = attention_reads_finite<Compute>(detail::in_float(value));
                not_finite += is_finite ? 0 : 1;
                simt.store(copy, i * width + d, is_finite ? value : T(0.0f));
            }
        }
        const bool found_any = simt.any(not_finite != 0);
        if (simt.lane() == 0) simt.store(found, group, found_any ? 1 : 0);
    }
};

/// Adds the products of elements that attention_finite_kernel replaced by zeros, where they are visible. One row a
/// warp.
template <class Compute, class T, class To>
struct attention_add_not_finite_kernel {
    static constexpr int rows = 4, threads = 32 * rows, at_once = attention_finite_kernel<Compute, T>::rows;
    static constexpr simt::word shared_bytes = 0;

    attention_seen seen;
    bool of_queries;                         ///< whether the rows of `to` are queries; otherwise they are keys
    extent matrices, to_rows, x_rows;        ///< number of matrices, and rows of each in `to` and in x
    simt::global_span<const float> factors;  ///< (matrices, heads, queries, keys)
    simt::global_span<const T> x;            ///< rows of the other side: keys, or queries
    extent width, stride;                    ///< x's width and leading dimension
    simt::global_span<const std::int32_t> found;
    simt::global_span<To> to;  ///< (matrices, rows, width)

    simt::grid_shape grid() const { return simt::blocks_for(matrices * to_rows, rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = static_cast<extent>(simt.block().x) * rows + simt.warp();
        if (row >= matrices * to_rows) return;
        const extent first = row / to_rows * x_rows, end = first + x_rows;
        for (extent group = first / at_once; group * at_once < end; group += 32) {
            bool here = false;
            if ((group + simt.lane()) * at_once < end) here = simt.load(found, group + simt.lane()) != 0;
            if (!simt.any(here)) continue;
            const extent begin = group * at_once < first ? first : group * at_once;
            for (extent i = begin; i < (group + 32) * at_once && i < end; ++i) add(simt, row, i, i - first);
        }
    }

  private:
    /// Row `other` of x; `in_matrix` is its row in its matrix.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void add(Simt simt, extent row, extent other, extent in_matrix) const {
        const extent query = of_queries ? row : other, key = of_queries ? in_matrix : row % to_rows;
        const attention_seen::interval visible = seen.by(simt, query % seen.queries);
        if (key < visible.first || key >= visible.last) return;
        const auto factor = static_cast<float>(Compute(simt.load(factors, query * seen.keys + key)));
        for (extent d = simt.lane(); d < width; d += 32) {
            const auto value = static_cast<float>(Compute(detail::in_float(simt.load(x, other * stride + d))));
            if (is_finite(value)) continue;
            const auto before = detail::in_float(simt.load(to, row * width + d));
            simt.store(to, row * width + d, To(before + factor * value));
        }
    }
};

/// Writes, over visible keys, max(x) to the first number in `to`, or -log(max(x)) to the second. One row a warp.
struct attention_logsumexp_kernel {
    static constexpr int rows = 4, threads = 32 * rows;
    static constexpr simt::word shared_bytes = 0;

    attention_seen seen;
    simt::global_span<const float> x;  ///< (queries, keys)
    bool of_weights;                   ///< whether x has weights; otherwise scores
    simt::global_span<float> to;       ///< (queries, 2)

    simt::grid_shape grid() const { return simt::blocks_for(seen.queries, rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * rows + simt.warp();
        if (i >= seen.queries) return;
        const attention_seen::interval visible = seen.by(simt, i);
        float largest = detail::attention_masked_score;
        for (extent j = visible.first + simt.lane(); j < visible.last; j += 32) {
            const float here = simt.load(x, i * seen.keys + j);
            if (here > largest) largest = here;
        }
        largest = simt::warp_max(simt, largest);
        if (simt.lane() != 0) return;
        const bool sees = visible.first != visible.last;
        if (of_weights) {
            simt.store(to, 2 * i + 1, sees ? -std::log(largest) : 0.0f);
        } else {
            simt.store(to, 2 * i, sees ? largest : detail::attention_masked_score);
        }
    }
};

}  // namespace on_device

template <simt_device Device>
struct attention_rows<Device> {
    static constexpr extent flag_rows = on_device::attention_finite_kernel<float, float>::rows;

    /// The offsets are the device's: its kernels clamp them.
    static void check(Device&, const packed_sequences&, const detail::attention_extents& e) {
        constexpr extent most = (extent{1} << 31) - 1;
        if (e.queries > most) fail<shape_error>("attention: ", e.queries, " queries; expected at most ", most);
    }

    static void mask_scores(Device& device, const attention_visibility& visible, float value, const view<float, 2>& x) {
        if (x.size() == 0) return;
        device.launch(on_device::attention_mask_kernel{seen_by(visible), value, simt::span_of(x)});
    }
    template <class Compute, class T>
    static const_view<T, 2> finite(Device& device, const const_view<T, 2>& x, const view<T, 2>& copy,
                                   std::int32_t* found) {
        if (x.size() > 0) {
            device.launch(on_device::attention_finite_kernel<Compute, T>{simt::bounding_span_of(x),
                                                                         x.extent_of(0),
                                                                         x.extent_of(1),
                                                                         x.stride_of(0),
                                                                         simt::span_of(copy),
                                                                         {found, x.extent_of(0)}});
        }
        return copy;
    }
    template <class Compute, class T, class To>
    static void add_not_finite(Device& device, const attention_visibility& visible, attention_sum over,
                               const view<float, 2>& factors, const const_view<T, 2>& x, const std::int32_t* found,
                               const view<To, 2>& to) {
        if (x.size() == 0 || to.size() == 0) return;
        const bool of_queries = over == attention_sum::over_keys;
        const extent matrices = (of_queries ? x.extent_of(0) : to.extent_of(0)) / visible.keys;
        device.launch(on_device::attention_add_not_finite_kernel<Compute, T, To>{seen_by(visible),
                                                                                 of_queries,
                                                                                 matrices,
                                                                                 to.extent_of(0) / matrices,
                                                                                 x.extent_of(0) / matrices,
                                                                                 {factors.data(), factors.size()},
                                                                                 simt::bounding_span_of(x),
                                                                                 x.extent_of(1),
                                                                                 x.stride_of(0),
                                                                                 {found, x.extent_of(0)},
                                                                                 simt::span_of(to)});
    }
    static void logsumexp(Device& device, const attention_visibility& visible, const view<float, 2>& scores,
                          const view<float, 2>& to) {
        launch(device, visible, scores, false, to);
    }
    static void finish_logsumexp(Device& device, const attention_visibility& visible, const view<float, 2>& weights,
                                 const view<float, 2>& to) {
        launch(device, visible, weights, true, to);
    }

  private:
    static on_device::attention_seen seen_by(const attention_visibility& v) {
        if (!v.sequences.are_there()) return {v.queries, v.keys, v.mask, {}, {}};
        return {v.queries, v.keys, v.mask, simt::span_of(v.sequences.query_offsets),
                simt::span_of(v.sequences.key_offsets)};
    }
    static void launch(Device& device, const attention_visibility& visible, const view<float, 2>& x, bool of_weights,
                       const view<float, 2>& to) {
        device.launch(on_device::attention_logsumexp_kernel{
            seen_by(visible), {x.data(), x.size()}, of_weights, {to.data(), to.size()}});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
