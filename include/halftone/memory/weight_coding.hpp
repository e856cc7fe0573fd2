// SPDX-License-Identifier: MIT
/// \file
/// A block format at run time: what a store needs to keep the copy of a weight as codes and scales, whichever format it is.
///
///     const detail::weight_coding& nf4 = detail::weight_coding_of<ht::nf4>;      // nf4.bytes(64) == 34 and scales
#pragma once

#include <cstddef>

#include <halftone/config.hpp>
#include <halftone/number/block_format.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The functions of a block_format (number/block_format.hpp).
struct weight_coding {
    const char* name;
    std::size_t block;  ///< elements that share a scale; rows have a multiple of it
    float largest;      ///< the largest magnitude that it holds
    std::size_t (*bytes)(std::size_t count);
    void (*encode)(const float* values, std::size_t count, std::byte* to);
    void (*decode)(const std::byte* from, std::size_t total, std::size_t first, std::size_t count, float* to);
};

template <block_format Format>
inline constexpr weight_coding weight_coding_of{Format::name,   Format::block,   Format::largest,
                                                &Format::bytes, &Format::encode, &Format::decode};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
