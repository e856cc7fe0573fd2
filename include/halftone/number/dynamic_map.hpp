// SPDX-License-Identifier: MIT
/// \file
/// The dynamic map: the 256 values of a byte of 8-bit optimizer state, and of a scale of nf4 (nf4.hpp), defined by the
/// "dynamic tree quantization" of Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", by the algorithm of bitsandbytes'
/// create_dynamic_map in double. bitsandbytes 0.50.2 computes in float: 72 values of its signed map and 100 of the other
/// are not the same, by one unit in the last place, or, of three values, by two.
///
///     const kernel::dynamic_maps maps = kernel::make_dynamic_maps();      // to be copied to the device's memory
///
/// The map has 0, 1, and magnitudes in seven decades from 1e-7 to 1. The decade that ends at 10^(i - 6) is divided into
/// 2^i equal parts, in the unsigned map into twice as many; each part is represented by its midpoint. The signed map
/// also has the negative of each magnitude except 1. In ascending order the values have the codes 0 to 255. So small
/// values have a large range and large ones a high precision: in the last decade a part is 0.7% (unsigned) or 1.4%
/// (signed) of 1.
#pragma once

#include <cstdint>

#include <halftone/number/bits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// A map, and the table by which a value finds its code; both consist of 32-bit words, as kernels read them.
///
/// The magnitudes in ascending order have the ranks 0, 1, 2, ... Floats from 2^-23 to 1 are divided into cells by their
/// upper 16 bits; a cell is so small that it has at most one boundary between ranks. For a float with the lower 16 bits
/// `low`,
struct dynamic_map {
    static constexpr int codes = 256, decades = 7;
    static constexpr std::uint32_t least = 0x34000000u;  ///< the bits of 2^-23: all smaller floats have the same code
    static constexpr int cell_count = ((0x3f800000u - least) >> 16) + 1;

    std::uint32_t values[codes];     ///< the bits of the codes' values, which are floats
    std::uint32_t cells[cell_count];
    std::uint32_t zero;  ///< the code of 0: 127 in the signed map, which is the number of negative values, else 0

    HALFTONE_HD bool has_sign() const { return zero != 0; }
    float value(int code) const { return bit_cast<float>(values[code]); }
};

/// The maps with and without a sign, in the layout that they have in a device's memory.
struct dynamic_maps {
    dynamic_map with_sign, without_sign;
};

/// The code of a value from the rank of its magnitude. In the signed map a negative value has the code of a negative
/// value, even if 0 is nearer: a moment keeps its sign.
HALFTONE_HD inline std::uint32_t dynamic_code(std::uint32_t rank, bool is_negative, std::uint32_t zero) {
    if (!is_negative) return zero + rank;
    const std::uint32_t least_one = rank < 1 ? 1 : rank;
    return zero - (least_one < zero ? least_one : zero);
}

/// Computes the values with bitsandbytes' algorithm, in double; each is rounded to float once. Returns the number of
/// magnitudes.
constexpr int make_magnitudes(float (&magnitudes)[dynamic_map::codes], bool has_sign) {
    constexpr double ends[dynamic_map::decades] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    int count = 0;
    magnitudes[count++] = 0;
    for (int i = 0; i < dynamic_map::decades; ++i) {
        const int parts = has_sign ? 1 << i : 2 << i;
        for (int j = 0; j < parts; ++j)
            magnitudes[count++] = static_cast<float>(ends[i] * (0.1 + 0.9 * (j + 0.5) / parts));
    }
    magnitudes[count++] = 1;
    return count;
}

/// The smallest float that is nearer to `above` than to `below`.
inline std::uint32_t first_nearer(float below, float above) {
    const double middle = (static_cast<double>(below) + static_cast<double>(above)) / 2;  // exact
    const float rounded = static_cast<float>(middle);
    return bit_cast<std::uint32_t>(rounded) + (static_cast<double>(rounded) > middle ? 0 : 1);
}

inline dynamic_map make_dynamic_map(bool has_sign) {
    float magnitudes[dynamic_map::codes];
    const int ranks = make_magnitudes(magnitudes, has_sign);
    dynamic_map map{};
    map.zero = has_sign ? static_cast<std::uint32_t>(ranks - 2) : 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const std::uint32_t bits = bit_cast<std::uint32_t>(magnitudes[rank]);
        map.values[map.zero + static_cast<std::uint32_t>(rank)] = bits;
        if (has_sign && rank > 0 && rank < ranks - 1)
            map.values[map.zero - static_cast<std::uint32_t>(rank)] = bits | 0x80000000u;
    }
    std::uint32_t rank = 0;
    for (std::uint32_t cell = 0; cell < dynamic_map::cell_count; ++cell) {
        const std::uint32_t begin = dynamic_map::least + (cell << 16);
        const auto boundary = [&] {  // the first float of the next rank
            return static_cast<int>(rank) + 1 < ranks ? first_nearer(magnitudes[rank], magnitudes[rank + 1]) : 0xffffffffu;
        };
        while (boundary() <= begin) ++rank;
        const std::uint32_t place = boundary() - begin;
        map.cells[cell] = (rank << 16) + 0x10000u - (place < 0x10000u ? place : 0x10000u);
    }
    return map;
}
inline dynamic_maps make_dynamic_maps() { return {make_dynamic_map(true), make_dynamic_map(false)}; }

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
