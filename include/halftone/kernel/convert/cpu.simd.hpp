// SPDX-License-Identifier: MIT
/// \file
/// Conversion of some rows.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// What is stored of a: a, or with `Saturates` a clamped to the largest finite numbers of Y.
template <bool Saturates, class Y>
HALFTONE_INLINE auto to_store(const auto& a) {
    if constexpr (Saturates) {
        return clamp_to<Y>(a);
    } else {
        return a;
    }
}

/// to = factor from by rows; with non-temporal stores if `non_temporal` is true.
template <bool Saturates, class X, class Y>
void convert_rows(extent rows, extent width, const X* from, extent from_stride, Y* to, extent to_stride, float factor,
                  bool non_temporal) {
    const auto copy = [&](extent j, auto n) __attribute__((always_inline)) {
        store_or_stream(to + j, to_store<Saturates, Y>(load(from + j, n)), n, non_temporal);
    };
    const auto scale = [&](extent j, auto n) __attribute__((always_inline)) {
        store_or_stream(to + j, to_store<Saturates, Y>(load(from + j, n) * factor), n, non_temporal);
    };
    for (extent i = 0; i < rows; ++i, from += from_stride, to += to_stride) {
        if (factor == 1) {
            for_vector_blocks(width, copy);
        } else {
            for_vector_blocks(width, scale);
        }
    }
    if (non_temporal) end_non_temporal();
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
