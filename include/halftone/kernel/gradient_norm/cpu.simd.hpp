// SPDX-License-Identifier: MIT
/// \file
/// One chunk of the read pass.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/gradient_norm/gradient_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class G>
void gradient_squares(extent count, const G* g, const kernel::gradient_factors& factors,
                      detail::chunk_squares& found) {
    constexpr extent prefetch_distance = 1024;
    const gradient_reader reader = reader_of(factors);
    four_vectors squares = broadcast_four(0.0f), largest = broadcast_four(0.0f);
    mask odd = less(splat(1.0f), splat(0.0f));
    for_vectors_unrolled(count, [&](extent j, int k, auto n) __attribute__((always_inline)) {
        prefetch(g + j + prefetch_distance, f32::lanes * sizeof(G));
        const f32 x = load(g + j, n);
        odd = either(odd, not_finite(x));
        const f32 v = apply(reader, x);
        largest.v[k] = max(abs(v), largest.v[k]);
        squares.v[k] = fma(v, v, squares.v[k]);
    });
    found = {sum(squares), maximum(largest), any(odd) ? 1 : 0};
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
