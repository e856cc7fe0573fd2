// SPDX-License-Identifier: MIT
/// \file
/// Dropout of some elements, a tile of random numbers at a time.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>
#include <cstring>

#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/dropout/dropout.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// `first` is a multiple of a tile's size. The caller has read the draw's random_record.
template <class X, class Y>
void dropout_elements(const X* x, const Y* base, Y* y, extent first, extent count, kernel::random_record record,
                      kernel::dropout_draw draw) {
    const kernel::rounding_key key{record.seed, draw.tensor, 0};
    const random_words last_dropped = random_words{} + static_cast<std::uint32_t>(draw.kept_from - 1);
    const bool drops = draw.kept_from != 0;
    random_tile tile;
    for (extent begin = first; begin < first + count; begin += random_tile::size) {
        const extent here = first + count - begin < random_tile::size ? first + count - begin : random_tile::size;
        if (drops) fill(tile, key, 0, record.pass, begin);
        const auto step = [&](extent j, int, auto n) __attribute__((always_inline)) {
            f32 v = load(x + begin + j, n) * draw.scale;
            if (drops) {
                random_words r, bits;
                std::memcpy(&r, tile.words + j, sizeof r);
                std::memcpy(&bits, &v, sizeof bits);
                bits = r > last_dropped ? bits : random_words{};
                std::memcpy(&v, &bits, sizeof v);
            }
            if (base != nullptr) v = load(base + begin + j, n) + v;
            store(y + begin + j, v, n);
        };
        for_vectors(here, step);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
