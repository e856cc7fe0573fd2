// SPDX-License-Identifier: MIT
/// \file
/// A matrix of few bits an element as an operand of ht::matmul: its codes and scales in memory that somebody else owns.
///
///     ht::coded_matrix<ht::nf4> w(coded.data(), n, k);                     // (n, k), as nf4::encode wrote it
///     ht::matmul<ht::amp_bf16>(device, x, ht::transpose(w), y);            // (m, k) times (k, n)
///     ht::matmul<ht::amp_bf16>(device, dy, w, dx);                         // (m, n) times (n, k)
#pragma once

#include <cstddef>

#include <halftone/number/block_format.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A (rows, width) matrix as the format's `encode` writes it, row by row, or the transpose of one. `width` is a multiple of
/// the format's block; so a row has whole blocks.
template <block_format Format>
class coded_matrix {
  public:
    using format = Format;

    coded_matrix() = default;
    /// Throws shape_error if a row has no whole number of blocks.
    coded_matrix(const std::byte* data, extent rows, extent width) : data_(data), rows_(rows), width_(width) {
        check_shape("coded_matrix", stored_shape());
        constexpr auto block = static_cast<extent>(Format::block);
        if (width % block != 0)
            fail<shape_error>("coded_matrix: rows of ", width, " elements; ", Format::name, " needs a multiple of ",
                              block);
    }

    const std::byte* data() const { return data_; }
    bool is_transposed() const { return is_transposed_; }
    /// Rows and elements of a row as they are in memory.
    extent stored_rows() const { return rows_; }
    extent stored_width() const { return width_; }
    halftone::shape<2> stored_shape() const { return {rows_, width_}; }
    /// The shape as an operand: that in memory, or, of a transpose, (width, rows).
    halftone::shape<2> shape() const { return is_transposed_ ? halftone::shape<2>{width_, rows_} : stored_shape(); }
    /// The number of rows or columns as an operand.
    extent extent_of(int axis) const { return shape()[axis]; }
    std::size_t elements() const { return static_cast<std::size_t>(rows_ * width_); }
    std::size_t bytes() const { return Format::bytes(elements()); }

    /// The transpose: the same memory, read the other way.
    coded_matrix transposed() const {
        coded_matrix m = *this;
        m.is_transposed_ = !is_transposed_;
        return m;
    }

  private:
    const std::byte* data_ = nullptr;
    extent rows_ = 0, width_ = 0;
    bool is_transposed_ = false;
};

/// The transpose of a coded matrix: the same memory, read the other way.
template <block_format Format>
coded_matrix<Format> transpose(const coded_matrix<Format>& m) {
    return m.transposed();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
