// SPDX-License-Identifier: MIT
/// \file
/// How a GPU cuts a product: tiles of c, one a block, and k into parts where too few tiles would leave it idle.
///
///     const matmul_cut cut = cut_matmul(device.architecture(), m, n, k);      // {matmul_tile::large, 7}
///
/// A part's sums are float and lie in scratch memory until a second kernel adds the parts up in order. The cut is a
/// function of the shape and the GPU's model alone, and so are the bits of c: tiles do not change them, parts do.
///
/// The table's figures are estimates, from registers, shared memory and peaks, for bench/cuda/matmul.cu to better.
#pragma once

#include <algorithm>

#include <halftone/exec/simt/architecture.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

/// Of 128x128 and of 64x64 elements of c.
enum class matmul_tile { large, small };

struct matmul_cut {
    matmul_tile tile;
    int parts;  ///< of k, at most; some fewer where panels do not divide evenly
};

/// How operands of eight bits are multiplied: by matrix units as they are, or after they have been given 16 bits.
enum class eight_bit_operands { as_they_are, widened };

/// From one architecture on.
struct matmul_table_row {
    int version;
    int large_blocks, small_blocks;  ///< of such tiles, that a multiprocessor works on at a time
    extent least_depth;              ///< of a part: its products take longer than its sums' way through memory
    eight_bit_operands eight_bits = eight_bit_operands::widened;
};
inline constexpr matmul_table_row matmul_table[] = {
    {80, 2, 4, 512},   // A100
    {86, 2, 4, 1024},  // consumers' Ampere: a third of the bandwidth for much the same products
    {89, 2, 4, 1024, eight_bit_operands::as_they_are},   // Ada
    {90, 2, 4, 1024},                                    // H100, H200
    {100, 2, 4, 1024},                                   // B200
    {120, 2, 4, 1024, eight_bit_operands::as_they_are},  // consumers' Blackwell
};
inline constexpr int most_matmul_parts = 16;

constexpr const matmul_table_row& matmul_row_of(int version) {
    const matmul_table_row* found = matmul_table;
    for (const matmul_table_row& row : matmul_table) {
        if (row.version <= version) found = &row;
    }
    return *found;
}

/// For c (m, n) and sums over k. `largest`: of the tiles that the operands can take.
constexpr matmul_cut cut_matmul(const simt::architecture& gpu, extent m, extent n, extent k,
                                matmul_tile largest = matmul_tile::large) {
    const matmul_table_row& row = matmul_row_of(gpu.version);
    const auto tiles = [m, n](extent side) { return ((m + side - 1) / side) * ((n + side - 1) / side); };
    const auto parts = [&](extent count, int blocks) {
        const extent room = gpu.multiprocessors * blocks / count;
        return static_cast<int>(std::clamp<extent>(std::min(room, k / row.least_depth), 1, most_matmul_parts));
    };
    const auto keeps_busy = [&](extent blocks) { return 4 * blocks >= 3 * gpu.multiprocessors; };
    if (largest == matmul_tile::large && m > 64 && n > 64) {
        const int of_large = keeps_busy(tiles(128)) ? 1 : parts(tiles(128), row.large_blocks);
        if (keeps_busy(tiles(128) * of_large)) return {matmul_tile::large, of_large};
    }
    return {matmul_tile::small, parts(tiles(64), row.small_blocks)};
}

/// Whether operands of which so many elements lie unaligned are to be copied into aligned rows first. Through
/// registers, small tiles take some 10 instructions for each of the matrix units' where large aligned ones take 3; a
/// copy moves each element twice, and is a kernel more: too much for few rows or columns, and for products of a few
/// microseconds.
constexpr bool pays_to_align(const simt::architecture& gpu, extent m, extent n, extent k, extent unaligned) {
    const extent products = m * n * k;
    return unaligned <= products / 256 && products >= gpu.multiprocessors * (extent{1} << 23);
}

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
