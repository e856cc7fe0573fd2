// SPDX-License-Identifier: MIT
/// \file
/// How attention is partitioned on the CPU, and the SIMD bodies that process the parts, for each instruction set
/// (cpu.simd.hpp).
///
/// Numeric contract: the partition depends on shapes alone.
#pragma once

#include <algorithm>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/attention/cpu/pairs.hpp>
#include <halftone/kernel/attention/cpu/scores.hpp>
#include <halftone/kernel/matmul/cpu/unit/choose.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/number/integer.hpp>

#define HALFTONE_BODY <halftone/kernel/attention/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

#if HALFTONE_AVX512_BF16
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512_bf16 {
using namespace avx512;
using avx512::store;  // the function; there is also a class `store`
}  // namespace avx512_bf16
}  // namespace HALFTONE_ABI
}  // namespace halftone
// The order matters: the body is included inside of the region.
// clang-format off
#include <halftone/exec/cpu/set/avx512_bf16.hpp>
#include <halftone/kernel/attention/cpu.simd.hpp>
#include <halftone/exec/cpu/set/end.hpp>
// clang-format on
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A product unit and the SIMD bodies that match it.
template <class T>
struct attention_engine {
    detail::product_unit unit;
    detail::product_packing<T> packing;
    decltype(&portable::attention_any_not_finite<float>) any_not_finite;
    decltype(&portable::attention_softmax<float>) softmax;
    decltype(&portable::attention_score_gradients<float>) score_gradients;
    decltype(&portable::attention_finish<T>) finish;
    decltype(&portable::attention_query_terms<T>) query_terms;
    decltype(&portable::attention_store<T>) store;
    decltype(&portable::attention_store_transposed<T>) store_transposed;
};

template <class Compute, class T>
attention_engine<T> attention_engine_for(const cpu& device) {
    attention_engine<T> engine{detail::unit_for<Compute>(device),
                               detail::packing_for<Compute, T>(device),
                               device.select(HALFTONE_EACH_SET(attention_any_not_finite<Compute>)),
                               device.select(HALFTONE_EACH_SET(attention_softmax<Compute>)),
                               device.select(HALFTONE_EACH_SET(attention_score_gradients<Compute>)),
                               device.select(HALFTONE_EACH_SET(attention_finish<T>)),
                               device.select(HALFTONE_EACH_SET(attention_query_terms<T>)),
                               device.select(HALFTONE_EACH_SET(attention_store<T>)),
                               device.select(HALFTONE_EACH_SET(attention_store_transposed<T>))};
#if HALFTONE_AVX512_BF16
    if (uses_pairs<Compute>(device.instruction_set())) {
        engine.any_not_finite = &avx512_bf16::attention_any_not_finite<bfloat16, avx512_bf16::pair_operands>;
        engine.softmax = &avx512_bf16::attention_softmax<bfloat16, avx512_bf16::pair_operands>;
        engine.score_gradients = &avx512_bf16::attention_score_gradients<bfloat16, avx512_bf16::pair_operands>;
    }
#endif
    return engine;
}

/// Prefetches rows of `width` elements, `stride` apart.
template <class T>
void prefetch_rows(const T* from, extent stride, extent rows, extent width) {
    constexpr auto bytes = static_cast<extent>(sizeof(T));
    detail::strided_lines lines(from, rows, width * bytes, stride * bytes);
    lines.prefetch(lines.count());
}

/// Assigns parts of a task's scratch memory, as offsets.
struct scratch_layout {
    std::size_t bytes = 0;

    std::size_t take(std::size_t count) {
        const std::size_t at = bytes;
        bytes += round_up(count, block_alignment);
        return at;
    }
    std::size_t take_floats(extent count) { return take(static_cast<std::size_t>(count) * sizeof(float)); }
};

/// The sizes that both passes share.
struct attention_layout {
    attention_extents extents;
    detail::product_unit unit;
    extent offset;           ///< query i sees the keys up to i + offset; without a mask, a number beyond all keys
    extent head_panels;      ///< panels of one head_size
    std::size_t head_bytes;  ///< size of a panel whose k is head_size
    scratch_layout scratch{};

    attention_layout(const attention_extents& e, const detail::product_unit& u, attention_mask mask)
        : extents(e),
          unit(u),
          offset(mask == attention_mask::causal ? e.keys - e.queries : e.keys),
          head_panels(ceil_div(e.head_size, u.columns)),
          head_bytes(u.panel_bytes(e.head_size)) {}

    /// Rows as products and bodies write them: rounded up to whole units and to an even number.
    extent padded_rows(extent rows) const { return round_up(round_up(rows, unit.rows), 2); }
    extent padded_width() const { return head_panels * unit.columns; }
    std::size_t take_panels(extent count, std::size_t each) {
        return scratch.take(static_cast<std::size_t>(count) * each);
    }
    std::size_t take_block(extent rows) { return scratch.take(unit.block_bytes(padded_rows(rows))); }
    /// The offset of row i in a block.
    std::size_t row_bytes(extent i) const { return static_cast<std::size_t>(i * detail::panel_stride * unit.element); }
    /// The size of the first `rows` of a panel's k, rounded up to the unit's k_multiple.
    std::size_t panel_rows_bytes(extent rows) const {
        return static_cast<std::size_t>(rows * unit.columns * unit.element);
    }

    /// Into how many parts a head's `blocks` are divided: one, unless there are too few heads to keep threads busy; a
    /// part has at least `least` blocks. Depends on shapes alone, since partial sums of different parts are added
    /// separately.
    static extent parts_of(extent heads, extent blocks, extent least) {
        constexpr extent enough_tasks = 8;
        return std::min(ceil_div(enough_tasks, heads), ceil_div(blocks, least));
    }
};

/// The extents of a sequence that is as long as the longest of the packed sequences.
attention_extents longest_sequence(const attention_extents& e, const packed_sequences& sequences);

/// The place of one packed sequence: its queries without visible keys first, then the remaining problem.
struct sequence_place {
    extent first_fully_masked, first_query, first_key;
    attention_extents extents;

    sequence_place(const packed_sequences& sequences, extent s, attention_mask mask, const attention_extents& e);

    extent fully_masked() const { return first_query - first_fully_masked; }
    template <class T>
    view<T, 4> queries_of(const view<T, 4>& v) const {
        return times_of(v, first_query, extents.queries);
    }
    template <class T>
    view<T, 4> keys_of(const view<T, 4>& v) const {
        return times_of(v, first_key, extents.keys);
    }
    /// The part of (1, heads, queries, 2) numbers that belongs to the sequence.
    template <class T>
    view<T, 4> sums_of(const view<T, 4>& logsumexp) const {
        return {logsumexp.data() + 2 * first_query, {1, extents.heads, extents.queries, 2}, logsumexp.strides()};
    }
    /// Results of queries without visible keys.
    template <class T>
    void clear_fully_masked(const view<T, 4>& v) const {
        for (extent i = first_fully_masked; i < first_query; ++i) {
            for (extent head = 0; head < extents.heads; ++head) {
                std::fill_n(v.data() + i * v.stride_of(1) + head * v.stride_of(2), extents.head_size, T(0.0f));
            }
        }
    }
};

/// The vector of one head at one time.
template <class T>
T* vector_at(const view<T, 4>& v, extent batch, extent time, extent head) {
    return v.data() + batch * v.stride_of(0) + time * v.stride_of(1) + head * v.stride_of(2);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/attention/cpu/tiles.body.hpp>
#endif
