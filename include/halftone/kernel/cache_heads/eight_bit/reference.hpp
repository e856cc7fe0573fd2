// SPDX-License-Identifier: MIT
/// \file
/// The definition of keys and values in eight bits; eight_bit.hpp has the formulas.
///
///     reference::quantize_heads(kernel::quantize_heads_arguments<float>{rows, first_column, slots, codes, scales});
///     reference::dequantize_heads(kernel::dequantize_heads_arguments<float>{codes, scales, queries, keys, capacity, heads});
#pragma once

#include <algorithm>
#include <cmath>

#include <halftone/kernel/cache_heads/eight_bit/eight_bit.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Rounds each head's vector of each row to eight bits, at the row's slot.
template <class T>
void quantize_heads(const kernel::quantize_heads_arguments<T>& a) {
    const extent heads = a.codes.extent_of(0), head_size = a.codes.extent_of(2);
    for (extent t = 0; t < a.rows.extent_of(0); ++t) {
        for (extent h = 0; h < heads; ++h) {
            const auto x = [&](extent d) { return static_cast<float>(a.rows(t, a.first_column + h * head_size + d)); };
            float amax = 0;
            for (extent d = 0; d < head_size; ++d) {
                if (!is_finite(x(d))) amax = static_cast<float>(INFINITY);
                amax = std::max(amax, std::fabs(x(d)));
            }
            const float scale = kernel::scale_of_heads(amax);
            a.scales(h, a.slots(t)) = scale;
            for (extent d = 0; d < head_size; ++d) {
                const float code = scale > 0 ? std::nearbyint(x(d) / scale) : 0.0f;
                a.codes(h, a.slots(t), d) =
                    static_cast<std::int8_t>(std::clamp(code, -kernel::most_code, kernel::most_code));
            }
        }
    }
}

/// The values of the filled slots of sequences with queries.
template <class T>
void dequantize_heads(const kernel::dequantize_heads_arguments<T>& a) {
    for (extent i = 0; i + 1 < a.key_offsets.size(); i += 2) {
        if (a.query_offsets(i + 1) == a.query_offsets(i)) continue;
        for (extent h = 0; h < a.codes.extent_of(0); ++h) {
            for (extent slot = i / 2 * a.capacity; slot < a.key_offsets(i + 1); ++slot) {
                for (extent d = 0; d < a.codes.extent_of(2); ++d)
                    a.heads(h, slot, d) = T(static_cast<float>(a.codes(h, slot, d)) * a.scales(h, slot));
            }
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
