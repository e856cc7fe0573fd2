// SPDX-License-Identifier: MIT
/// \file
/// The numbers of all product units, so that plans for any processor are tested on every one; product.cpp compares them with
/// the units themselves.
#pragma once

#include <halftone/kernel/matmul/cpu/unit.hpp>

namespace support {

/// A unit without functions, which states which optional functions it has.
struct unit_numbers {
    const char* name;
    halftone::detail::product_unit unit;
    bool packs_k_major, multiplies_unpacked;
};

inline halftone::detail::product_unit vector_unit_of(int rows, int columns, int element) {
    const bool is_float = element == 4;
    return {.rows = rows,
            .columns = columns,
            .k_step = is_float ? 1 : 32,
            .element = element,
            .multiply = halftone::detail::no_function,
            .k_multiple = is_float ? 1 : 2,
            .deepest_piece = is_float ? 256 : 512};
}
inline halftone::detail::product_unit tile_unit_of(int element) {
    using namespace halftone::detail;
    return {.rows = 32,
            .columns = 32,
            .k_step = 32,
            .element = element,
            .multiply = no_function,
            .tiles = product_unit::tile_functions{.multiply = no_function}};
}

enum which_unit { portable_fma, avx2_fma, avx512_fma, avx512_pairs, amx_bf16, amx_two_pieces, amx_three_pieces };
inline const unit_numbers all_units[] = {{"portable fma", vector_unit_of(4, 8, 4), false, true},
                                         {"avx2 fma", vector_unit_of(6, 16, 4), false, true},
                                         {"avx512 fma", vector_unit_of(12, 32, 4), true, true},
                                         {"avx512_bf16 pairs", vector_unit_of(12, 32, 2), true, true},
                                         {"amx bf16", tile_unit_of(2), false, false},
                                         {"amx, two pieces", tile_unit_of(4), false, false},
                                         {"amx, three pieces", tile_unit_of(6), false, false}};

}  // namespace support
