// SPDX-License-Identifier: MIT
/// \file
/// The check of an index.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Whether all indices are 0 to choices - 1. Collects the signs of c and of choices - 1 - c: without a branch, so that
/// compilers vectorise the loop.
inline bool are_inside(const std::int32_t* index, extent count, extent choices) {
    const auto last = static_cast<std::uint32_t>(choices - 1);
    std::uint32_t signs = 0;
    for (extent i = 0; i < count; ++i) {
        const auto c = static_cast<std::uint32_t>(index[i]);
        signs |= c | (last - c);
    }
    return signs >> 31 == 0;
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
