// SPDX-License-Identifier: MIT
/// \file
/// How a GPU cuts a product: tiles of c, one a block, and k into parts where too few tiles would leave it idle.
///
///     const matmul_cut cut = cut_matmul(device.architecture(), m, n, k);      // {matmul_tile::large, 7}
///
/// A part's sums are float and lie in scratch memory until a second kernel adds the parts up in order. The cut is a
/// function of the shape and the GPU's model alone, and so are the bits of c: tiles do not change them, parts do.
///
/// Chosen is what takes least by a small model: how many blocks one multiprocessor does behind each other, how long each
/// takes, and what parts' sums cost on their way through memory. On an H100 its choice took at most 1.1 times the best
/// one's time in 13 products that GPTs have (bench/results/gpu_h100_tiles.md); other rows of the table are estimates.
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
    extent sums_depth;  ///< 16-bit products of such a depth take a large tile as long as its sums to memory and back
    eight_bit_operands eight_bits = eight_bit_operands::widened;
};
inline constexpr matmul_table_row matmul_table[] = {
    {80, 600},                                     // A100
    {86, 600},                                     // consumers' Ampere
    {89, 700, eight_bit_operands::as_they_are},    // Ada
    {90, 730},                                     // H100, H200: measured
    {100, 900},                                    // B200
    {120, 1000, eight_bit_operands::as_they_are},  // consumers' Blackwell
};
inline constexpr int most_matmul_parts = 16;
inline constexpr extent least_part_depth = 256;

constexpr const matmul_table_row& matmul_row_of(int version) {
    const matmul_table_row* found = matmul_table;
    for (const matmul_table_row& row : matmul_table) {
        if (row.version <= version) found = &row;
    }
    return *found;
}

/// How long blocks take for a depth of one, in units of what a large block takes that shares its multiprocessor.
struct tile_pace {
    extent side;
    double alone, among_others;
};
inline constexpr tile_pace large_pace{128, 1.25, 1}, small_pace{64, 0.5625, 0.4375};
/// The same for the kernel that adds parts up: the depth of 16-bit products that its launch takes as long as.
inline constexpr double adding_launch_depth = 200;

/// For c (m, n) and sums over k. `largest`: of the tiles that the operands can take. `slowness`: how many times longer
/// these products take than those of 16 bits do.
constexpr matmul_cut cut_matmul(const simt::architecture& gpu, extent m, extent n, extent k,
                                matmul_tile largest = matmul_tile::large, int slowness = 1) {
    const matmul_table_row& row = matmul_row_of(gpu.version);
    const double multiprocessors = gpu.multiprocessors;
    matmul_cut best{matmul_tile::small, 1};
    double least = -1;
    for (const matmul_tile tile : {matmul_tile::small, matmul_tile::large}) {
        if (tile == matmul_tile::large && largest == matmul_tile::small) continue;
        const tile_pace& pace = tile == matmul_tile::large ? large_pace : small_pace;
        const extent tiles = ((m + pace.side - 1) / pace.side) * ((n + pace.side - 1) / pace.side);
        const double share_of_large = static_cast<double>(pace.side * pace.side) / (128 * 128);
        const int most = static_cast<int>(std::clamp<extent>(k / least_part_depth, 1, most_matmul_parts));
        for (int parts = 1; parts <= most; ++parts) {
            const extent blocks = tiles * parts, rounds = (blocks + gpu.multiprocessors - 1) / gpu.multiprocessors;
            const double depth = static_cast<double>((k + parts - 1) / parts),
                         products = (rounds <= 1 ? pace.alone : static_cast<double>(rounds) * pace.among_others) * depth,
                         sums = static_cast<double>(row.sums_depth) * static_cast<double>(blocks) * share_of_large / multiprocessors,
                         all = parts == 1 ? products : products + (sums + adding_launch_depth) / slowness;
            if (least < 0 || all < least) least = all, best = {tile, parts};
        }
    }
    return best;
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
