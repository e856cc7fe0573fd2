// SPDX-License-Identifier: MIT
/// \file
/// Loads and stores of numbers of one byte, for float8.cpp.
// No include guard: exec/cpu/each_set.hpp includes this body once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class T>
void float8_widen(const T* x, float* y, int n) {
    int i = 0;
    for (; i + f32::lanes <= n; i += f32::lanes) store(y + i, load(x + i));
    if (i < n) store(y + i, load(x + i, n - i), n - i);
}
template <class T>
void float8_narrow(const float* x, T* y, T* stopped, float* rounded, int n) {
    int i = 0;
    for (; i + f32::lanes <= n; i += f32::lanes) {
        store(y + i, load(x + i));
        store(stopped + i, clamp_to<T>(load(x + i)));
        store(rounded + i, round_as<T>(load(x + i)));
    }
    if (i < n) {
        store(y + i, load(x + i, n - i), n - i);
        store(stopped + i, clamp_to<T>(load(x + i, n - i)), n - i);
        store(rounded + i, round_as<T>(load(x + i, n - i)), n - i);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
