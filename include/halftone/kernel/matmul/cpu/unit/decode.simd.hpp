// SPDX-License-Identifier: MIT
/// \file
/// Decoding a part of a row of codes to floats or bfloat16: the numbers of the format's `decode`, rounded once.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstddef>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/number/nf4.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class Format, class T>
void decode_row(const halftone::detail::coded_source& from, extent row, extent first, extent count, void* given) {
    auto* const to = static_cast<T*>(given);
    const auto total = static_cast<std::size_t>(from.rows * from.width);
    float numbers[32];
    for (extent i = 0; i < count; i += 32) {
        const extent n = count - i < 32 ? count - i : 32;
        Format::decode(from.data, total, static_cast<std::size_t>(row * from.width + first + i), static_cast<std::size_t>(n), numbers);
        for (extent k = 0; k < n; ++k) to[i + k] = T(numbers[k]);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
