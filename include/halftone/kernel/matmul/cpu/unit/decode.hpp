// SPDX-License-Identifier: MIT
/// \file
/// Decoding a part of a row of codes, for each instruction set (decode.simd.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/nf4.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A coded matrix without its format, rows of whole blocks one behind another.
struct coded_source {
    const std::byte* data = nullptr;
    extent rows = 0, width = 0;
};
/// Decodes elements [first, first + count) of a row, to numbers of a type that the function knows.
using decode_part_of_row = void(const coded_source& from, extent row, extent first, extent count, void* to);

/// The sixteen values of nf4 times the scale of block number b of a tensor of `total` elements.
inline void scaled_nf4_values(const std::byte* data, std::size_t total, std::size_t b, float (&values)[16]) {
    const float scale = nf4::scale_of(data, total, b);
    for (int code = 0; code < 16; ++code) values[code] = nf4_values[code] * scale;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#define HALFTONE_BODY <halftone/kernel/matmul/cpu/unit/decode.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
