// SPDX-License-Identifier: MIT
/// \file
/// The product units that there are, and the choice among them: by instruction set and compute type.
///
///     set           float, float16          bfloat16
///     portable      fma, 4 x 8 sums         the same, on floats
///     avx2          fma, 6 x 16 sums        the same, on floats
///     avx512        fma, 12 x 32 sums       the same, on floats
///     avx512_bf16   fma, 12 x 32 sums       VDPBF16PS, 12 x 32 sums
///     amx           fma, 12 x 32 sums       TDPBF16PS, 32 x 32 sums; float16 and split floats in matmul, too (split.hpp)
#pragma once

#include <type_traits>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/matmul/cpu/unit.hpp>
#include <halftone/kernel/matmul/cpu/unit/bf16.hpp>
#include <halftone/kernel/matmul/cpu/unit/bf16_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/bf16_small_m.hpp>
#include <halftone/kernel/matmul/cpu/unit/fma.hpp>
#include <halftone/kernel/matmul/cpu/unit/fma_k_major.hpp>
#include <halftone/kernel/matmul/cpu/unit/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/tile.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// True where the set multiplies this type by units of its own rather than converted to float.
template <class Compute>
bool uses_pairs(isa set) {
    return std::is_same_v<Compute, bfloat16> && set >= isa::avx512_bf16;
}

#if HALFTONE_AMX
/// Tiles of AMX, four of 16 x 16 sums.
inline product_unit amx_bf16_unit() {
    return {.rows = 32,
            .columns = 32,
            .k_step = avx512_bf16::bf16_k_step,
            .element = 2,
            .multiply = &amx::tile_multiply,
            .tiles = product_unit::tile_functions{.multiply = &amx::tile_multiply_pieces,
                                                  .store = &avx512_bf16::store_rows,
                                                  .store_rounded = &avx512_bf16::store_rows},
            .worker = product_unit::worker_functions{.begin = &amx::enter_tiles, .end = &amx::leave_tiles}};
}
#endif
#if HALFTONE_AVX512_BF16
/// VDPBF16PS: vectors of 16 sums, each of which takes a pair of k at once.
inline product_unit avx512_bf16_unit() {
    using namespace avx512_bf16;
    return {.rows = 12,
            .columns = bf16_columns,
            .k_step = bf16_k_step,
            .element = 2,
            .multiply = &pair_multiply,
            .k_multiple = 2,
            // Sums come and go half as often as with panel_depth, and panels so deep still come from L2 in time.
            .deepest_piece = 2 * panel_depth,
            .vectors = product_unit::vector_functions{.multiply = &pair_multiply_rows,
                                                      .multiply_half_panel = &pair_multiply_half,
                                                      .multiply_last = &pair_multiply_last<float>,
                                                      .multiply_last_rounded = &pair_multiply_last<bfloat16>}};
}
#endif

/// Multiply-adds of floats.
inline product_unit fma_unit(const cpu& device) {
    const bool is_avx512 = device.instruction_set() >= isa::avx512, is_avx2 = device.instruction_set() == isa::avx2;
    return {.rows = is_avx512 ? avx512::fma_rows
                    : is_avx2 ? avx2::fma_rows
                              : portable::fma_rows,
            .columns = is_avx512 ? avx512::fma_columns
                       : is_avx2 ? avx2::fma_columns
                                 : portable::fma_columns,
            .k_step = 1,
            .element = 4,
            .multiply = device.select(HALFTONE_EACH_SET(fma_multiply)),
            .vectors = product_unit::vector_functions{
                .multiply = device.select(HALFTONE_EACH_SET(fma_multiply_rows)),
                .multiply_half_panel = device.select(HALFTONE_EACH_SET(fma_multiply_half)),
                .multiply_last = device.select(HALFTONE_EACH_SET(fma_multiply_last)),
                .multiply_last_rounded = no_function}};
}

/// The unit of products of what is rounded to Compute.
template <class Compute>
product_unit unit_for(const cpu& device) {
#if HALFTONE_AMX
    if (uses_pairs<Compute>(device.instruction_set()) && device.instruction_set() == isa::amx) return amx_bf16_unit();
#endif
#if HALFTONE_AVX512_BF16
    if (uses_pairs<Compute>(device.instruction_set())) return avx512_bf16_unit();
#endif
    return fma_unit(device);
}

/// How that unit packs a first operand of T, and nothing that the second one alone needs: what nobody calls is not compiled.
template <class Compute, class T>
a_packing<T> packing_of_a(const cpu& device) {
#if HALFTONE_AVX512_BF16
    const isa set = device.instruction_set();
    if (uses_pairs<Compute>(set)) {
        return {.pack = &avx512_bf16::pack_a_bf16<T>,
                .has_unit_type = std::is_same_v<T, bfloat16>,
                .pack_k_major = set == isa::amx ? no_function : &avx512_bf16::pack_a_pairs<T>};
    }
#endif
#if HALFTONE_AVX512
    pack_k_major_of_a* const k_major =
        device.instruction_set() >= isa::avx512 ? &avx512::pack_a_k_major<Compute, T> : no_function;
#else
    pack_k_major_of_a* const k_major = no_function;
#endif
    return {.pack = device.select(HALFTONE_EACH_SET(pack_a<Compute, T>)),
            .has_unit_type = std::is_same_v<Compute, float> && std::is_same_v<T, float>,
            .pack_k_major = k_major};
}

/// How the unit for Compute packs a second operand of T.
template <class Compute, class T>
b_packing<T> packing_of_b(const cpu& device) {
#if HALFTONE_AVX512_BF16
    const isa set = device.instruction_set();
    if (uses_pairs<Compute>(set)) {
        return {.pack = &avx512_bf16::pack_b_bf16<T>,
                .has_unit_type = std::is_same_v<T, bfloat16>,
                .multiply_unpacked = set == isa::amx ? no_function : &avx512_bf16::pair_multiply_small_m<T>};
    }
#endif
    return {.pack = device.select(HALFTONE_EACH_SET(pack_b<Compute, T>)),
            .has_unit_type = std::is_same_v<Compute, float> && std::is_same_v<T, float>,
            .multiply_unpacked = device.select(HALFTONE_EACH_SET(fma_multiply_small_m<Compute, T>))};
}

/// How the unit for Compute packs both operands, of T.
template <class Compute, class T>
product_packing<T> packing_for(const cpu& device) {
    return {.a = packing_of_a<Compute, T>(device), .b = packing_of_b<Compute, T>(device)};
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
