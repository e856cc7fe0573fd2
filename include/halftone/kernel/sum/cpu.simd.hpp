// SPDX-License-Identifier: MIT
/// \file
/// The sum of an expression over one piece, in float.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <utility>

#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/map/evaluate.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class E, class... X, std::size_t... I>
HALFTONE_INLINE float sum_elements(const E& given, const pack<const X*...>& inputs, extent count,
                                   std::index_sequence<I...>) {
    const E e = given;
    four_vectors sums = broadcast_four(0.0f);
    const auto add = [&](extent j, int k, auto n) __attribute__((always_inline)) {
        const f32 x[] = {load(inputs.template at<I>() + j, n)...};
        // Lanes beyond the end hold zeros, but the function of zeros need not be zero.
        sums.v[k] = sums.v[k] + keep(evaluate(e, x), n, splat(0.0f));
    };
    for_vectors_unrolled(count, add);
    return sum(sums);
}

template <class E, class... X>
float sum_piece(const E& e, const pack<const X*...>& inputs, extent count) {
    return sum_elements(e, inputs, count, std::index_sequence_for<X...>{});
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
