// SPDX-License-Identifier: MIT
/// \file
/// How a GPU partitions a product: into tiles of c, one a block, and k into parts if there are too few tiles to keep it
/// busy (split-k). This is the model by which plan.hpp compares families of kernels.
///
///     const matmul_cut cut = cut_matmul(device.architecture(), m, n, k);      // {matmul_tile::large, 7}
///
/// Partial sums are floats in scratch memory, which a second kernel adds in order. The partition is a function of the
/// shape and the GPU's model alone, and so are the bits of c: parts change them, tiles do not. Where a device is to be
/// batch-invariant, k is one part, and plan.hpp takes no warpgroups, so that a row's bits do not depend on the number of rows.
///
/// The choice minimises the time predicted by a simple model: how many blocks one multiprocessor computes one after the
/// other, how long each takes, and the memory traffic of partial sums. On an H100 the chosen cut took at most 1.1
/// times the time of the best one in 13 products of GPTs (bench/results/gpu_h100_tiles.md); other rows of the table are
/// estimates. The paces of 128x64 tiles and of single stores are of an H200.
#pragma once

#include <algorithm>

#include <halftone/exec/simt/architecture.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// 64x64 and 128x128 elements of c are computed by mma.sync, 128x64, 128x192 and 128x256 by wgmma.
enum class matmul_tile { small, large, narrow, wide, widest };

/// Tiles that are compared.
struct tile_range {
    matmul_tile first, last;
};
inline constexpr tile_range mma_sync_tiles{matmul_tile::small, matmul_tile::large},
    small_tiles{matmul_tile::small, matmul_tile::small}, wgmma_tiles{matmul_tile::narrow, matmul_tile::widest};

struct matmul_cut {
    matmul_tile tile;
    int parts;        ///< of k, at most; fewer if panels do not divide evenly
    double time = 0;  ///< predicted, in the unit of tile_pace
};

/// How 8-bit operands are multiplied: by 8-bit matrix units, or widened to 16 bits.
enum class eight_bit_operands { as_they_are, widened };

/// A row of the table: holds from this architecture on.
struct matmul_table_row {
    int version;
    extent sums_depth;  ///< the k for which a large 16-bit tile takes as long as writing and reading its sums
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

/// The times of tiles on a multiprocessor, in units of the time of a large block for a depth of one when it shares the
/// multiprocessor: for a depth of one when the block is alone and when it is not; for the end of each block, which
/// nothing overlaps; and for the start.
struct tile_pace {
    matmul_tile tile;
    extent rows, columns;
    double alone, sharing, end = 0, start = 0;
};
inline constexpr tile_pace tile_paces[] = {
    {matmul_tile::small, 64, 64, 0.5625, 0.4375},
    {matmul_tile::large, 128, 128, 1.25, 1},
    {matmul_tile::narrow, 128, 64, 0.4, 0.4, 50, 30},
    {matmul_tile::wide, 128, 192, 0.93, 0.93, 130, 250},
    {matmul_tile::widest, 128, 256, 1.19, 1.19, 130, 250},
};
/// The launch overhead of the kernel that adds parts, in the same unit.
inline constexpr double adding_launch_depth = 200;

/// The cut of c (m, n) and of sums over k that takes the least time. `slowness`: the time of these products relative to
/// 16-bit ones. `parts_given`: of k; 0: as many as take the least time.
constexpr matmul_cut cut_matmul(const simt::architecture& gpu, extent m, extent n, extent k,
                                tile_range tiles = mma_sync_tiles, int slowness = 1, int parts_given = 0) {
    const matmul_table_row& row = matmul_row_of(gpu.version);
    const double multiprocessors = gpu.multiprocessors;
    const int most_parts =
        gpu.batch_invariant ? 1 : static_cast<int>(std::clamp<extent>(k / least_part_depth, 1, most_matmul_parts));
    matmul_cut best{tiles.first, 1};
    double least = -1;
    for (const tile_pace& pace : tile_paces) {
        if (pace.tile < tiles.first || pace.tile > tiles.last) continue;
        const extent count = detail::ceil_div(m, pace.rows) * detail::ceil_div(n, pace.columns);
        const double share_of_large = static_cast<double>(pace.rows * pace.columns) / (128 * 128);
        for (int parts = std::max(1, parts_given); parts <= (parts_given > 0 ? parts_given : most_parts); ++parts) {
            const extent blocks = count * parts, rounds = detail::ceil_div(blocks, gpu.multiprocessors);
            const double turns = static_cast<double>(rounds), depth = static_cast<double>(detail::ceil_div(k, parts)),
                         products = (rounds <= 1 ? pace.alone : turns * pace.sharing) * depth,
                         ends = turns * pace.end + pace.start,
                         sums = static_cast<double>(row.sums_depth) * static_cast<double>(blocks) * share_of_large /
                                multiprocessors,
                         all = products + (ends + (parts == 1 ? 0 : sums + adding_launch_depth)) / slowness;
            if (least < 0 || all < least) least = all, best = {pace.tile, parts, all};
        }
    }
    return best;
}

/// The time that warpgroups take more, in the same unit, if results are stored one by one: 400 for those of a large tile,
/// measured on an H200 (odd rows of c in bench/results/gpu_h100_tiles.md).
constexpr double time_of_single_stores(const simt::architecture& gpu, extent m, extent n) {
    return 400 * static_cast<double>(m) * static_cast<double>(n) / (128 * 128) / gpu.multiprocessors;
}

/// Whether operands with this number of unaligned elements are copied into aligned rows first. Loaded through
/// registers, small tiles take some 10 instructions for each matrix instruction, where large aligned tiles take 3. A
/// copy moves each element twice and takes another kernel: too much for few rows or columns, and for products of a few
/// microseconds. What copies gain is in bench/results/gpu_h100_tiles.md (odd rows of operands); the two limits have no figure.
constexpr bool pays_to_align(const simt::architecture& gpu, extent m, extent n, extent k, extent unaligned) {
    const extent products = m * n * k;
    return unaligned <= products / 256 && products >= gpu.multiprocessors * (extent{1} << 23);
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
