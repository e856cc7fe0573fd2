// SPDX-License-Identifier: MIT
/// \file
/// Sums of squares of values that a kernel has just written, on the CPU; memory/square_sum.hpp has the contract.
#pragma once

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/memory/square_sum.hpp>
#include <halftone/number/integer.hpp>

#define HALFTONE_BODY <halftone/kernel/common/squares/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// A matrix that is being written in blocks of whole tiles. The kernel reports each block that it has written; the sums
/// do not depend on the sizes of the blocks.
class written_squares {
  public:
    /// The largest number of additions that a square passes through within a tile.
    static constexpr extent depth = 64;

    struct tile_shape {
        extent rows, columns;
    };
    written_squares(cpu& device, const float* data, extent stride, const shape<2>& of, const tile_shape& tile)
        : data_(data),
          stride_(stride),
          shape_(of),
          tile_(tile),
          across_(detail::ceil_div(of[1], tile.columns)),
          count_(detail::ceil_div(of[0], tile.rows) * across_),
          sums_(device.scratch(), static_cast<std::size_t>(count_) * sizeof(float)),
          body_(device.select(HALFTONE_EACH_SET(squares_of_tiles))) {}

    /// Adds the squares of a block that has been written.
    void take(extent row, extent column, extent rows, extent columns) const {
        body_(data_ + row * stride_ + column, stride_, rows, columns, tile_.rows, tile_.columns,
              sums_.as<float>() + row / tile_.rows * across_ + column / tile_.columns, across_);
    }
    /// The sum over all blocks, once all have been written.
    square_sum total() const;

  private:
    const float* data_;
    extent stride_;
    shape<2> shape_;
    tile_shape tile_;
    extent across_, count_;
    workspace::lease sums_;
    void (*body_)(const float* x, extent stride, extent rows, extent columns, extent tile_rows, extent tile_columns,
                  float* sums, extent sums_stride);
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/common/squares/cpu.body.hpp>
#endif
