// SPDX-License-Identifier: MIT
/// \file
/// Conversion of some rows; `stop` is applied to each vector before it is rounded (clamping, or nothing).
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

struct converts_on {
    template <class Y>
    static HALFTONE_INLINE auto stop(const auto& a, const Y*) {
        return a;
    }
};
struct converts_saturated {
    template <class Y>
    static HALFTONE_INLINE auto stop(const auto& a, const Y*) {
        return clamp_to<Y>(a);
    }
};

/// to = factor from by rows; with non-temporal stores if `non_temporal` is true.
template <class End, class X, class Y>
void convert_rows(extent rows, extent width, const X* from, extent from_stride, Y* to, extent to_stride, float factor,
                  bool non_temporal) {
    const auto copy = [&](extent j, auto n) __attribute__((always_inline)) {
        store_or_stream(to + j, End::stop(load(from + j, n), to), n, non_temporal);
    };
    const auto scale = [&](extent j, auto n) __attribute__((always_inline)) {
        store_or_stream(to + j, End::stop(load(from + j, n) * factor, to), n, non_temporal);
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
