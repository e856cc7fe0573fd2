// SPDX-License-Identifier: MIT
/// \file
/// Looking up rows of an embedding, and the sums of rows that are its gradient.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>
#include <type_traits>

#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class T, class Y>
void embedding_rows(extent first, extent rows, extent width, const std::int32_t* tokens, const T* table,
                    const T* positions, extent period, const std::int32_t* position_of, Y* out) {
    for (extent r = first; r < first + rows; ++r) {
        const T* from = table + tokens[r] * width;
        const extent at = position_of != nullptr ? position_of[r] : positions != nullptr ? r % period : 0;
        const T* position = positions == nullptr ? nullptr : positions + at * width;
        Y* to = out + r * width;
        const auto copy = [&](extent j, int, auto n) __attribute__((always_inline)) {
            f32 v = load(from + j, n);
            if (position != nullptr) v = v + load(position + j, n);
            store(to + j, v, n);
        };
        for_vectors(width, copy);
    }
}

/// to[j] = (or +=) the sum over i in [0, count) of dy[row(i)][j], for j in [0, width): eight vectors of sums at a time
/// stay in registers while the rows are read. row(i) is rows[i] if there are rows, otherwise i * step.
template <class Y, class G>
HALFTONE_INLINE void sum_rows(extent count, const std::int32_t* rows, extent step, const Y* dy, extent stride,
                              extent width, G* to, write_mode mode) {
    extent j = 0;
    for (; j + 8 * f32::lanes <= width; j += 8 * f32::lanes) {
        f32 sums[8];
#pragma GCC unroll 8
        for (int v = 0; v < 8; ++v) sums[v] = splat(0.0f);
        for (extent i = 0; i < count; ++i) {
            const Y* from = dy + (rows != nullptr ? rows[i] : i * step) * stride + j;
#pragma GCC unroll 8
            for (int v = 0; v < 8; ++v) sums[v] = sums[v] + load(from + v * f32::lanes);
        }
#pragma GCC unroll 8
        for (int v = 0; v < 8; ++v) {
            G* const place = to + j + v * f32::lanes;
            store(place, mode == write_mode::add ? load(place) + sums[v] : sums[v]);
        }
    }
    const auto add_rest = [&](extent k, int, auto n) __attribute__((always_inline)) {
        f32 total = splat(0.0f);
        for (extent i = 0; i < count; ++i) {
            total = total + load(dy + (rows != nullptr ? rows[i] : i * step) * stride + j + k, n);
        }
        G* const place = to + j + k;
        store(place, mode == write_mode::add ? load(place, n) + total : total, n);
    };
    for_vectors(width - j, add_rest);
}

/// `order` lists all `rows` rows by token, equal tokens by row. Processes the tokens whose first place in it is in
/// [begin, end), and columns [0, width) of rows with leading dimension `stride`; `change`, if not null, gets the change
/// of the sum of squares of the values that it writes.
template <class Y, class G>
void embedding_backward_tokens(extent begin, extent end, extent rows, const std::int32_t* tokens,
                               const std::int32_t* order, const Y* dy, extent stride, extent width, G* dtable,
                               write_mode mode, double* change) {
    const auto squares = [&](extent token) {
        double sum = 0;
        if constexpr (std::is_same_v<G, float>) {
            if (change != nullptr) sum = static_cast<double>(squares_of_rows(dtable + token * stride, 0, 1, width));
        }
        return sum;
    };
    double more = 0;
    extent i = begin;
    while (i > 0 && i < end && tokens[order[i]] == tokens[order[i - 1]]) ++i;
    while (i < end) {
        const std::int32_t token = tokens[order[i]];
        extent next = i + 1;
        while (next < rows && tokens[order[next]] == token) ++next;
        if (mode == write_mode::add) more -= squares(token);
        sum_rows(next - i, order + i, 0, dy, stride, width, dtable + token * stride, mode);
        more += squares(token);
        i = next;
    }
    if (change != nullptr) *change = more;
}

/// Positions [begin, end): dpositions[p] = (or +=) the sum of the rows p, p + period, p + 2 period, ...
template <class Y, class G>
void embedding_backward_positions(extent begin, extent end, extent period, extent rows, const Y* dy, extent width,
                                  G* dpositions, write_mode mode) {
    const std::int32_t* const none = nullptr;
    for (extent p = begin; p < end; ++p) {
        const extent count = p < rows ? detail::ceil_div(rows - p, period) : 0;
        sum_rows(count, none, period, dy + p * width, width, width, dpositions + p * width, mode);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
