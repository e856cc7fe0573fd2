// SPDX-License-Identifier: MIT
/// \file
/// Operands and epilogues of a product on the CPU without their types, so that a program holds its loops once.
#pragma once

#include <cstddef>

#include <halftone/kernel/matmul/cpu/ahead.hpp>
#include <halftone/kernel/matmul/cpu/product.hpp>
#include <halftone/memory/square_sum.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// An operand without its element type, and what packs a piece of it. Strides are in elements.
struct blocked_operand {
    const std::byte* data;
    extent element;  ///< bytes
    extent rows, columns, row_stride, column_stride;
    decltype(detail::product_packing<float>::pack_a) pack_a;
    decltype(detail::product_packing<float>::pack_b) pack_b;
    decltype(detail::product_packing<float>::multiply_small_m) multiply_small_m;
    decltype(detail::product_packing<float>::pack_a_k_major) pack_a_k_major;
    bool keeps_rows;  ///< as product_packing says

    template <class T>
    blocked_operand(const view<T, 2>& v, const detail::product_packing<std::remove_const_t<T>>& packing)
        : data(reinterpret_cast<const std::byte*>(v.data())),
          element(sizeof(T)),
          rows(v.extent_of(0)),
          columns(v.extent_of(1)),
          row_stride(v.stride_of(0)),
          column_stride(v.stride_of(1)),
          pack_a(packing.pack_a),
          pack_b(packing.pack_b),
          multiply_small_m(packing.multiply_small_m),
          pack_a_k_major(packing.pack_a_k_major),
          keeps_rows(packing.keeps_rows) {}

    const std::byte* at(extent row, extent column) const {
        return data + (row * row_stride + column * column_stride) * element;
    }
};

/// Where sums are stored as they are, or nowhere.
template <class T>
struct plain_result {
    T* data = nullptr;
    extent stride = 0;

    T* at(extent row, extent column) const { return data + row * stride + column; }
};

/// An epilogue without its type, what sends a block of sums through it, and what that reads and writes.
struct blocked_epilogue {
    const void* epilogue;
    void (*finish)(const void* epilogue, const float* sums, extent sums_stride, extent row, extent column, extent rows,
                   extent columns, bool non_temporal);
    /// Whether whole pairs of vectors of a result of that shape may go past the caches, which do not hold it.
    bool (*stores_non_temporal)(const void* epilogue, extent rows, extent columns);
    void (*expect)(const void* epilogue, const result_block& block, extent prefetches, detail::lookahead& to);
    /// Whether what it reads for a result of that shape does not fit the caches; and that alone is asked for.
    bool (*reads_memory)(const void* epilogue, extent rows, extent columns);
    decltype(expect) expect_operands;
    plain_result<float> plain;  ///< where that is all that the epilogue does
    plain_result<bfloat16> plain_rounded;
    plain_result<const float> floats;  ///< the result, where it is one of floats
    square_sum* squares;               ///< of them, where somebody asks
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
