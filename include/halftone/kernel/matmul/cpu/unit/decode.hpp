// SPDX-License-Identifier: MIT
/// \file
/// Decoding a part of some rows of codes, for each instruction set (decode.simd.hpp).
#pragma once

#include <cstddef>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/matmul/cpu/unit/decode_blocks.hpp>
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
/// Decodes elements [first, first + count) of some rows, to numbers of a type that the function knows, to_stride of them from
/// row to row.
using decode_part_of_rows = void(const coded_source& from, extent row, extent rows, extent first, extent count,
                                 void* to, extent to_stride);

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#define HALFTONE_BODY <halftone/kernel/matmul/cpu/unit/decode.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
