// SPDX-License-Identifier: MIT
/// \file
/// How a GPU computes a matrix product: a pure function from the shape, the types, the layouts, the alignment and the
/// architecture to a family of kernels, with its tiles. Every family is listed with what speaks against it, or with its
/// cost; the cheapest is taken. This header needs no GPU and no CUDA.
///
///     const matmul_plan plan = plan_matmul({.m = 256, .n = 2304, .k = 768, .gpu = simt::architecture_of(80)});
///     plan.best().name;        // "mma_sync"
///     plan.best().cut.tile;    // matmul_tile::small
///
/// The way of a product, file by file:
///
///     kernel/matmul/matmul.hpp                  shapes are checked, the policy becomes a compute type
///     kernel/matmul/device.hpp                  doubles, an engine (device/by_engine.hpp), or halftone's kernels
///     kernel/matmul/device/plan.hpp             a family is chosen, by the times of tiles.hpp
///     kernel/matmul/device/launch.hpp           its kernels are launched
///     kernel/matmul/device/matrix_unit.hpp      mma.sync
///     kernel/matmul/device/warpgroup.hpp        wgmma
///     kernel/matmul/device/multiply_add.hpp     fma
///     kernel/matmul/device/finish.hpp           the epilogue over finished sums
///
/// Families, in the order in which they are compared (of equal costs the first one is taken):
///
///     mma_sync_8bit        8-bit operands as they are, by 8-bit matrix units
///     mma_sync             operands of the multiplied type, by asynchronous copies; unaligned rows are copied first
///     wgmma                the same, by Hopper's warpgroups
///     wgmma_widened        8-bit operands, copied to 16 bits first, by Hopper's warpgroups
///     mma_sync_registers   any operands, converted in registers as they are loaded
///     fma                  multiply-adds in float, for types that matrix units do not multiply
///
/// A cost is a time in the unit of tiles.hpp: that of 128x128 16-bit elements by mma.sync for a depth of one. The plan decides
/// parts of k, and so bits (tiles.hpp); the family decides how a matrix unit adds.
///
/// `bench_matmul --plan MxNxK --device sm_90a` prints the choice for a shape, and why.
#pragma once

#include <halftone/kernel/common/plan/families.hpp>
#include <halftone/kernel/matmul/device/layout.hpp>
#include <halftone/kernel/matmul/device/tiles.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

enum class matmul_family { mma_sync_8bit, mma_sync, wgmma, wgmma_widened, mma_sync_registers, fma };

/// What is multiplied: bfloat16 or float16, tfloat32, or floats.
enum class matmul_arithmetic { sixteen_bits, tfloat32, floats };
/// What both operands are: of the multiplied type, of 8 bits, or anything else, which is converted.
enum class matmul_elements { as_multiplied, eight_bits, others };

/// What decides how a GPU computes c (m, n), the sums of k products each.
struct matmul_problem {
    struct operand {
        along axis = along::depth;
        row_access access = row_access::chunks;
    };
    struct result {
        int bytes = 2;              ///< of an element
        bool fits_bulk = true;      ///< there is one result, of a type that bulk copies store
        bool has_odd_rows = false;  ///< rows are no multiples of 16 bytes apart
        int offset = 0;             ///< elements from a multiple of 16 bytes to the first one
    };
    struct code {
        bool has_wgmma = false;      ///< compiled for sm_90a, and on such a GPU
        bool has_eight_bit = false;  ///< compiled for an architecture with 8-bit matrix instructions
        simt::compiled_code compiled{};
    };

    extent m, n, k;
    matmul_arithmetic arithmetic = matmul_arithmetic::sixteen_bits;
    matmul_elements elements = matmul_elements::as_multiplied;
    operand a{}, b{};
    result c{};
    extent matrices = 1;  ///< of a batch
    simt::architecture gpu;
    code with{};
};

/// How a family computes a problem, and what that costs.
struct matmul_way {
    matmul_cut cut{};
    int panel_bytes = 0;  ///< of a row of a panel
    result_storing storing{};
    double cost = 0;
};
using planned_matmul = planned<matmul_family, matmul_way>;
using matmul_plan = family_plan<matmul_family, matmul_way, 6>;

namespace planning {

// ---- Costs -------------------------------------------------------------------------------------------------------------

/// Times of products relative to those of 16 bits by mma.sync, on an H100. tfloat32: 4,096 cubed takes 774 us compared with 351
/// (bench/results/gpu_h100_first), 2.2. fma: 2,048 cubed takes 533 us (the same) compared with 41.3
/// (bench/results/gpu_h100_tiles.md), 12.9.
inline constexpr int tfloat32_slowness = 2, fma_slowness = 12;

/// A panel's row is 64 bytes, or 128 in large tiles where a multiprocessor has room for two such blocks: 1.1 to 1.15 times as
/// fast on an H100 (bench/results/gpu_h100_tiles.md). Tiles of wgmma have panels of 128 bytes.
inline constexpr int panel_bytes = 64, deep_panel_bytes = 128;
/// A block of large tiles with deep panels has three slots of 128 rows of a and as many of b.
inline constexpr int deep_block_bytes = 3 * (128 + 128) * deep_panel_bytes;

constexpr int slowness_of(const matmul_problem& p) {
    return p.arithmetic == matmul_arithmetic::tfloat32 ? tfloat32_slowness : 1;
}
constexpr matmul_way way_of(const matmul_cut& cut, int slowness, int bytes_of_panel) {
    return {cut, bytes_of_panel, {}, cut.time * slowness};
}
/// How warpgroups store results: by bulk copies where possible. Rows that do not begin at multiples of 16 bytes need an operand b
/// whose columns are lines, and an a whose rows are.
constexpr result_storing storing_of(const matmul_problem& p) {
    if (!p.c.fits_bulk) return {};
    const bool is_odd = p.m > 1 && p.c.has_odd_rows;
    if (!is_odd && p.c.offset == 0) return {true};
    if (p.b.axis != along::depth) return {};
    if (!is_odd) return {true, 1, p.c.offset};
    const bool has_sets = p.a.axis == along::depth && p.m >= most_row_sets;
    return has_sets ? result_storing{true, most_row_sets, 16 / p.c.bytes - 1} : result_storing{};
}
/// The time that results stored one by one take more, counted where warpgroups could store them in bulk from another offset
/// instead. Elsewhere it is the same for all families.
constexpr double time_of_stores(const matmul_problem& p) {
    const bool is_counted = p.with.has_wgmma && storing_of(p).most_offset > 0;
    return is_counted ? time_of_single_stores(p.gpu, p.m, p.n) : 0;
}

/// mma.sync and wgmma for 16-bit operands.
struct compared_tiles {
    matmul_way mma_sync, wgmma;
};
/// Results that warpgroups store in bulk from another offset (storing_of) have whole tiles in each set of rows, which begin up to 16
/// bytes before its columns: they are stored so if that takes less time than storing them one by one. What single stores of mma.sync
/// take was not measured by itself; they are taken to cost what those of warpgroups do, and no more than tiles of mma.sync over the
/// same sets would. Where the faster tiles cut k into parts, partial sums are stored, in bulk.
constexpr compared_tiles compare_tiles(const matmul_problem& p) {
    const auto cut = [&p](extent m, extent n, tile_range tiles, int parts) {
        return cut_matmul(p.gpu, m, n, p.k, tiles, 1, parts);
    };
    const matmul_cut mma_sync = cut(p.m, p.n, mma_sync_tiles, 0), wgmma = cut(p.m, p.n, wgmma_tiles, 0);
    const result_storing storing = storing_of(p);
    compared_tiles both{{mma_sync, panel_bytes, {}, mma_sync.time}, {wgmma, deep_panel_bytes, storing, wgmma.time}};
    const bool in_parts = (wgmma.time < mma_sync.time ? wgmma : mma_sync).parts > 1;
    if (in_parts || storing.most_offset == 0) return both;

    const extent rows_of_set = detail::ceil_div(p.m, storing.sets),
                 m = storing.sets * detail::round_up(rows_of_set, 128), n = p.n + storing.most_offset;
    const matmul_cut mma_sync_of_sets = cut(m, n, mma_sync_tiles, 1), in_sets = cut(m, n, wgmma_tiles, 1);
    const double stores = time_of_single_stores(p.gpu, p.m, p.n), least = std::min(mma_sync.time, wgmma.time) + stores;
    both.mma_sync.cost = mma_sync_of_sets.time < least ? mma_sync_of_sets.time : mma_sync.time + stores;
    both.wgmma = in_sets.time < wgmma.time + stores ? matmul_way{in_sets, deep_panel_bytes, storing, in_sets.time}
                                                    : matmul_way{wgmma, deep_panel_bytes, {}, wgmma.time + stores};
    return both;
}

// ---- What several families ask -----------------------------------------------------------------------------------------

constexpr extent unaligned_elements(const matmul_problem& p) {
    return (p.a.access == row_access::chunks ? 0 : p.m * p.k) + (p.b.access == row_access::chunks ? 0 : p.n * p.k);
}
/// Whether operands that matrix units could read if their rows were aligned are copied first.
constexpr bool copies_rows(const matmul_problem& p) {
    const extent unaligned = unaligned_elements(p);
    return p.arithmetic != matmul_arithmetic::floats && p.elements == matmul_elements::as_multiplied && unaligned > 0 &&
           pays_to_align(p.gpu, p.m, p.n, p.k, unaligned);
}

/// Against matrix units with operands of this kind.
constexpr const char* against_operands(const matmul_problem& p, matmul_elements wanted) {
    if (p.arithmetic == matmul_arithmetic::floats) return "matrix units multiply bfloat16, float16 and tfloat32 alone";
    if (p.elements == wanted) return nullptr;
    return wanted == matmul_elements::eight_bits ? "some operand has more than 8 bits"
                                                 : "some operand is not stored as it is multiplied";
}
/// Against panels that are loaded by asynchronous copies of 16 bytes.
constexpr const char* against_rows(const matmul_problem& p) {
    if (unaligned_elements(p) == 0 && (p.a.access & p.b.access) == row_access::chunks) return nullptr;
    if (p.matrices > 1) return "some row does not begin at a multiple of 16 bytes, and a batch is not copied";
    return copies_rows(p) ? nullptr : "some row does not begin at a multiple of 16 bytes, and a copy does not pay";
}
constexpr const char* against_warpgroups(const matmul_problem& p) {
    if (p.arithmetic != matmul_arithmetic::sixteen_bits) return "warpgroups multiply 16-bit operands alone";
    if (!p.with.has_wgmma) return "the GPU or the code for it is none of sm_90a";
    if (p.gpu.batch_invariant) return "the context is batch-invariant";
    if (p.matrices > 1) return "a batch is one launch of mma.sync";
    return p.k > 0 ? nullptr : "k is 0";
}

// ---- Families: what speaks against each (nullptr: it applies), and how it computes the problem -------------------------

constexpr const char* against_mma_sync_8bit(const matmul_problem& p) {
    if (const char* const why = against_operands(p, matmul_elements::eight_bits)) return why;
    if ((p.a.access & p.b.access) != row_access::chunks) return "some row does not begin at a multiple of 16 bytes";
    if (matmul_row_of(p.gpu.version).eight_bits != eight_bit_operands::as_they_are)
        return "the GPU has no 8-bit matrix units with sums in float";
    return p.with.has_eight_bit ? nullptr : "the code was compiled for an architecture without 8-bit matrix units";
}
/// With the times of 16 bits: no figure of a GPU with such units.
constexpr matmul_way plan_mma_sync_8bit(const matmul_problem& p) {
    return way_of(cut_matmul(p.gpu, p.m, p.n, p.k), 1, panel_bytes);
}

constexpr const char* against_mma_sync(const matmul_problem& p) {
    if (const char* const why = against_operands(p, matmul_elements::as_multiplied)) return why;
    return against_rows(p);
}
constexpr matmul_way plan_mma_sync(const matmul_problem& p) {
    matmul_way way =
        against_warpgroups(p) == nullptr
            ? compare_tiles(p).mma_sync
            : way_of(cut_matmul(p.gpu, p.m, p.n, p.k, mma_sync_tiles, slowness_of(p)), slowness_of(p), panel_bytes);
    const bool two_fit = 2 * deep_block_bytes <= p.gpu.shared_bytes, is_compiled = p.with.compiled.with_228_kb;
    if (way.cut.tile == matmul_tile::large && is_compiled && (two_fit || !p.with.compiled.without_228_kb))
        way.panel_bytes = deep_panel_bytes;
    return way;
}

constexpr const char* against_wgmma(const matmul_problem& p) {
    if (const char* const why = against_operands(p, matmul_elements::as_multiplied)) return why;
    if (const char* const why = against_warpgroups(p)) return why;
    return against_rows(p);
}
constexpr matmul_way plan_wgmma(const matmul_problem& p) { return compare_tiles(p).wgmma; }

/// The copies' time is not in the cost. Instead warpgroups must be faster than mma.sync with aligned 16-bit operands would be,
/// although only mma_sync_registers is left, which is slower.
constexpr const char* against_wgmma_widened(const matmul_problem& p) {
    if (const char* const why = against_operands(p, matmul_elements::eight_bits)) return why;
    if (const char* const why = against_warpgroups(p)) return why;
    const compared_tiles both = compare_tiles(p);
    return both.wgmma.cost < both.mma_sync.cost ? nullptr : "warpgroups gain too little to pay for the copies";
}

/// With the times of aligned small tiles, which is less than they take: 8.2 instructions for each matrix instruction of bfloat16,
/// compared with 4.6 (bench/results/gpu_code_nvcc13.md). Where mma_sync applies, it costs no more than that, and comes first.
constexpr const char* against_mma_sync_registers(const matmul_problem& p) { return against_operands(p, p.elements); }
constexpr matmul_way plan_mma_sync_registers(const matmul_problem& p) {
    matmul_way way = way_of(cut_matmul(p.gpu, p.m, p.n, p.k, small_tiles, slowness_of(p)), slowness_of(p), panel_bytes);
    way.cost += time_of_stores(p);
    return way;
}

constexpr const char* against_fma(const matmul_problem& p) {
    return p.arithmetic == matmul_arithmetic::floats ? nullptr : "matrix units multiply this type";
}
constexpr matmul_way plan_fma(const matmul_problem& p) {
    constexpr int bytes = 8 * 4;  // of a panel's row: 8 floats
    return way_of(cut_matmul(p.gpu, p.m, p.n, p.k, mma_sync_tiles, fma_slowness), fma_slowness, bytes);
}

inline constexpr family_rule<matmul_family, matmul_way, matmul_problem> matmul_rules[] = {
    {matmul_family::mma_sync_8bit, "mma_sync_8bit", &against_mma_sync_8bit, &plan_mma_sync_8bit},
    {matmul_family::mma_sync, "mma_sync", &against_mma_sync, &plan_mma_sync},
    {matmul_family::wgmma, "wgmma", &against_wgmma, &plan_wgmma},
    {matmul_family::wgmma_widened, "wgmma_widened", &against_wgmma_widened, &plan_wgmma},
    {matmul_family::mma_sync_registers, "mma_sync_registers", &against_mma_sync_registers, &plan_mma_sync_registers},
    {matmul_family::fma, "fma", &against_fma, &plan_fma}};

}  // namespace planning

/// The plan of a product, whose m and n are positive.
constexpr matmul_plan plan_matmul(const matmul_problem& p) { return plan_by(planning::matmul_rules, p); }

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
