// SPDX-License-Identifier: MIT
/// \file
/// Reading a gradient with its factors, and storing a result in its type.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <halftone/exec/cpu/stream.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/common/update/records.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/number/round_to.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

struct gradient_reader {
    f32 inv_scale, clip, limit;
};

HALFTONE_INLINE gradient_reader reader_of(const kernel::gradient_factors& f) {
    return {splat(f.inv_scale), splat(f.clip), splat(f.limit)};
}

HALFTONE_INLINE f32 apply(const gradient_reader& r, f32 g) {
    // With this order of operands NaNs propagate.
    return min(r.limit, max(-r.limit, g * r.inv_scale * r.clip));
}

HALFTONE_INLINE int lanes_of(whole) { return f32::lanes; }
HALFTONE_INLINE int lanes_of(int n) { return n; }

using random_words = std::uint32_t __attribute__((vector_size(f32::lanes * 4)));

/// The random numbers of some elements: as many as a granule of the store. The generator gives four at a time, and
/// elements may begin in between: the first element's number is words[lead].
struct random_tile {
    static constexpr extent size = 64;
    alignas(64) std::uint32_t words[size + 2 * f32::lanes];
    extent lead;
};

/// Prefetches the elements of a tile some tiles after the one at p.
template <class T>
HALFTONE_INLINE void prefetch_tile(const T* p) {
    constexpr int prefetch_distance = 4;
    prefetch(p + prefetch_distance * random_tile::size, random_tile::size * sizeof(T));
}

/// random_bits(key.seed, step, key.tensor + stream, i) for `size` elements from `index` on: Philox for as many blocks
/// at a time as a vector has 64-bit lanes.
HALFTONE_INLINE void fill(random_tile& tile, const kernel::rounding_key& key, std::uint32_t stream, std::uint32_t step,
                          extent index) {
    constexpr int lanes = f32::lanes / 2;
    constexpr std::uint64_t low = 0xffffffff;
    const std::uint64_t begin = key.first + static_cast<std::uint64_t>(index), block = begin / 4;
    tile.lead = static_cast<extent>(begin % 4);
    const wide first_factor = wide{} + 0xd2511f53u, second_factor = wide{} + 0xcd9e8d57u;
    wide lane{};
    for (int i = 0; i < lanes; ++i) lane[i] = static_cast<std::uint64_t>(i);
    const int blocks = random_tile::size / 4 + (tile.lead == 0 ? 0 : 1);
    for (int first = 0; first < blocks; first += lanes) {
        const wide counter = lane + (block + static_cast<std::uint64_t>(first));
        wide x0 = counter & low, x1 = counter >> 32;
        wide x2 = wide{} + (key.tensor + stream), x3 = wide{} + step;
        std::uint64_t k0 = key.seed & low, k1 = key.seed >> 32;
        // Only the lower halves of the lanes are meaningful until the end.
        for (int round = 0; round < 10; ++round) {
            const wide a = multiply_low(x0, first_factor), b = multiply_low(x2, second_factor);
            x0 = (b >> 32) ^ x1 ^ k0;
            x1 = b;
            x2 = (a >> 32) ^ x3 ^ k1;
            x3 = a;
            k0 = (k0 + 0x9e3779b9u) & low;
            k1 = (k1 + 0xbb67ae85u) & low;
        }
        const wide front = (x0 & low) | x1 << 32, back = (x2 & low) | x3 << 32;
        for (int i = 0; i < lanes; ++i) {
            const std::uint64_t four[2] = {front[i], back[i]};
            std::memcpy(tile.words + 4 * (first + i), four, sizeof four);
        }
    }
}

/// round_stochastic<bfloat16> in each lane; the result is left as float.
HALFTONE_INLINE f32 round_to_bfloat16(f32 v, const random_words& r) {
    random_words bits;
    std::memcpy(&bits, &v, sizeof bits);
    const random_words magnitude = bits & 0x7fffffffu;
    const random_words rounded = ((magnitude + (r & 0xffffu)) & 0xffff0000u) | (bits & 0x80000000u);
    bits = magnitude < 0x7f800000u ? rounded : bits;
    std::memcpy(&v, &bits, sizeof v);
    return v;
}

/// Stores elements that begin `j` elements into a tile, rounded with the tile's random numbers. A float is stored
/// unchanged.
template <class T, class N>
HALFTONE_INLINE void store_stochastic(T* p, f32 v, N n, const random_tile& tile, extent j) {
    if constexpr (std::is_same_v<T, float>) {
        store(p, v, n);
    } else if constexpr (std::is_same_v<T, bfloat16>) {
        random_words r;
        std::memcpy(&r, tile.words + tile.lead + j, sizeof r);
        store(p, round_to_bfloat16(v, r), n);
    } else {
        float exact[f32::lanes];
        store(exact, v);
        for (int i = 0; i < lanes_of(n); ++i) p[i] = round_stochastic<T>(exact[i], tile.words[tile.lead + j + i]);
    }
}

/// Stores a copy, rounded by Rounding.
template <rounding Rounding, class T, class N>
HALFTONE_INLINE void store_copy(T* p, f32 v, N n) {
    if constexpr (std::is_same_v<T, float> || Rounding == rounding::nearest_even) {
        store(p, v, n);
    } else if constexpr (std::is_same_v<T, bfloat16> && Rounding == rounding::nearest_away) {
        store(p, round_to_bfloat16(v, random_words{} + 0x8000u), n);
    } else {
        float exact[f32::lanes];
        store(exact, v);
        for (int i = 0; i < lanes_of(n); ++i) p[i] = round_to<T, Rounding>(exact[i]);
    }
}

/// Reads a master; joins the halves of a split one.
template <class T, class Copy, class N>
HALFTONE_INLINE f32 load_master(const T* master, const Copy* copy, N n) {
    if constexpr (std::is_same_v<T, bfloat16_remainder>) {
        // Widens the halves to 32 bits, then computes join() in each lane.
        f32 v = load(copy, n);
        const f32 rest = load(reinterpret_cast<const bfloat16*>(master), n);
        random_words high, low;
        std::memcpy(&high, &v, sizeof high);
        std::memcpy(&low, &rest, sizeof low);
        const random_words bits = high + (low >> 16) - ((low >> 31) << 16);
        std::memcpy(&v, &bits, sizeof v);
        return v;
    } else {
        return load(master, n);
    }
}

/// halves_of() in each lane.
template <class N>
HALFTONE_INLINE void store_halves(bfloat16_remainder* rest, bfloat16* nearest, f32 v, N n) {
    using halves = std::uint16_t __attribute__((vector_size(f32::lanes * 2)));
    random_words bits;
    std::memcpy(&bits, &v, sizeof bits);
    const random_words low = (bits & 0x7fffffffu) > 0x7f800000u ? random_words{} : bits;
    const halves stored = __builtin_convertvector(low, halves);
    std::memcpy(static_cast<void*>(rest), &stored, static_cast<std::size_t>(lanes_of(n)) * sizeof stored[0]);
    store_copy<rounding::nearest_away>(nearest, v, n);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
