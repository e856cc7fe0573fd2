// SPDX-License-Identifier: MIT
/// \file
/// How a GPU cuts a product: tiles of c, one a block, and k into parts where too few tiles would leave it idle.
///
///     const matmul_plan cut = plan_matmul(device.architecture(), m, n, k);      // {matmul_tile::large, 7}
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

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Of 64x64 and of 128x128 elements of c by the instructions of a warp, of 128x192 and of 128x256 by those of a warpgroup.
enum class matmul_tile { small, large, wide, widest };

struct matmul_plan {
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

/// How long a multiprocessor takes for tiles, in units of what a large block takes for a depth of one that shares its
/// multiprocessor: for a depth of one, of a block that has the multiprocessor to itself, and of each where there are more,
/// for the end of each that nothing hides, and for the start of all.
struct tile_pace {
    matmul_tile tile;
    extent rows, columns;
    double alone, among_others, end = 0, start = 0;
};
inline constexpr tile_pace tile_paces[] = {
    {matmul_tile::small, 64, 64, 0.5625, 0.4375},
    {matmul_tile::large, 128, 128, 1.25, 1},
    {matmul_tile::wide, 128, 192, 0.93, 0.93, 130, 250},
    {matmul_tile::widest, 128, 256, 1.19, 1.19, 130, 250},
};
/// The same for the kernel that adds parts up.
inline constexpr double adding_launch_depth = 200;

/// For c (m, n) and sums over k. `largest`: of the tiles that the operands can take. `slowness`: how many times longer
/// these products take than those of 16 bits do.
constexpr matmul_plan plan_matmul(const simt::architecture& gpu, extent m, extent n, extent k,
                                matmul_tile largest = matmul_tile::large, int slowness = 1) {
    const matmul_table_row& row = matmul_row_of(gpu.version);
    const double multiprocessors = gpu.multiprocessors;
    const int most_parts = static_cast<int>(std::clamp<extent>(k / least_part_depth, 1, most_matmul_parts));
    matmul_plan best{matmul_tile::small, 1};
    double least = -1;
    for (const tile_pace& pace : tile_paces) {
        if (pace.tile > largest) continue;
        const extent tiles = ((m + pace.rows - 1) / pace.rows) * ((n + pace.columns - 1) / pace.columns);
        const double share_of_large = static_cast<double>(pace.rows * pace.columns) / (128 * 128);
        for (int parts = 1; parts <= most_parts; ++parts) {
            const extent blocks = tiles * parts, rounds = (blocks + gpu.multiprocessors - 1) / gpu.multiprocessors;
            const double turns = static_cast<double>(rounds), depth = static_cast<double>((k + parts - 1) / parts),
                         products = (rounds <= 1 ? pace.alone : turns * pace.among_others) * depth,
                         ends = turns * pace.end + pace.start,
                         sums = static_cast<double>(row.sums_depth) * static_cast<double>(blocks) * share_of_large /
                                multiprocessors,
                         all = products + (ends + (parts == 1 ? 0 : sums + adding_launch_depth)) / slowness;
            if (least < 0 || all < least) least = all, best = {pace.tile, parts};
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

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
