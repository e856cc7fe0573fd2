// SPDX-License-Identifier: MIT
/// \file
/// A row added to another one, and the sum of two rows' products.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/walk.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// y[i * y_stride] += by x[i * x_stride].
template <class T>
void add_scaled_row(extent count, T by, const T* x, extent x_stride, T* y, extent y_stride) {
    if (x_stride != 1 || y_stride != 1) {
        for (extent i = 0; i < count; ++i) y[i * y_stride] += by * x[i * x_stride];
        return;
    }
    const f32 factor = splat(by);
    for_vectors(
        count, [&](extent j, int, auto n)
                   __attribute__((always_inline)) { store(y + j, fma(load(x + j, n), factor, load(y + j, n)), n); });
}
/// The sum of x[i * x_stride] y[i].
template <class T>
T multiply_rows(extent count, const T* x, extent x_stride, const T* y) {
    if (x_stride != 1) {
        T total = 0;
        for (extent i = 0; i < count; ++i) total += x[i * x_stride] * y[i];
        return total;
    }
    f32 total = splat(0.0f);
    for_vectors(
        count, [&](extent j, int, auto n)
                   __attribute__((always_inline)) { total = fma(load(x + j, n), load(y + j, n), total); });
    return sum(total);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
