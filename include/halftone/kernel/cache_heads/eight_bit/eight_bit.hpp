// SPDX-License-Identifier: MIT
/// \file
/// Keys and values of a key-value cache in eight bits: signed integers, and one float, the scale, for each head and token.
///
///     kernel::eight_bit_heads<cpu>::quantize(device, {qkv_rows, first_column, slots, codes, scales});
///     kernel::eight_bit_heads<cpu>::dequantize(device, {codes, scales, query_offsets, key_offsets, capacity, heads});
///
/// Numeric contract, for the vector x of one head and token, in float:
///
///     scale = amax / 127                    amax: the largest |x|; NaN if an element is not finite; at most 0x1.020406p121,
///                                           so that 127 scales of the largest float are not infinite
///     code  = x / scale, rounded to the nearest integer, ties to even, within -127 to 127; 0 if the scale is 0 or NaN
///     value = scale code, rounded to T
///
/// so that |x - value| is at most half a scale and the roundings of the quotient and of the value. A vector with an element
/// that is not finite is NaN as a whole. Every vector is rounded by itself: it does not depend on other tokens.
///
/// Integers and not float8_e4m3, since the elements of a vector share one scale. Next to amax the distance of two numbers of
/// e4m3 is amax / 14, and it falls below that of the integers, amax / 127, only for elements below amax / 14. For normally
/// distributed vectors of 64 elements the root mean square error of e4m3 is 4.2 times as large. One scale for each head and
/// token needs no calibration, and is final as soon as the token is there; LMDeploy's caches in eight bits have such scales,
/// with an offset in addition.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/number/classify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The operands of storing. Each row has the vectors of all heads, contiguous from column `first_column` on; that of head h
/// in row t goes to codes[h][slots[t]] and scales[h][slots[t]]. No two rows may have the same slot.
template <class T>
struct quantize_heads_arguments {
    const_view<T, 2> rows;  ///< (tokens, width), contiguous
    extent first_column;
    const_view<std::int32_t, 1> slots;  ///< (tokens), each from 0 to the cache's slots - 1
    view<std::int8_t, 3> codes;          ///< (heads, slots, head_size), contiguous
    view<float, 2> scales;               ///< (heads, slots), contiguous
};

/// The operands of reading. Sequence i has the slots [i capacity, (i + 1) capacity), of which those before
/// key_offsets[2 i + 1] are filled. The filled slots of sequences with queries, query_offsets[2 i + 1] > query_offsets[2 i],
/// are written to `heads`; nothing else is.
template <class T>
struct dequantize_heads_arguments {
    const_view<std::int8_t, 3> codes;                        ///< (heads, slots, head_size), contiguous
    const_view<float, 2> scales;                             ///< (heads, slots), contiguous
    const_view<std::int32_t, 1> query_offsets, key_offsets;  ///< (2 sequences + 1)
    extent capacity;                                         ///< slots of a sequence
    view<T, 3> heads;                                        ///< as the codes
};

/// quantize(device, arguments) and dequantize(device, arguments). Both throw shape_error, and the first argument_error for
/// a slot outside the cache if the host can read it; otherwise such a row is not stored.
template <class Device>
struct eight_bit_heads;

/// Throws shape_error if the arguments do not fit together.
template <class T>
void check_eight_bit_heads(const quantize_heads_arguments<T>& a) {
    const extent tokens = a.rows.extent_of(0), heads = a.codes.extent_of(0), head_size = a.codes.extent_of(2);
    expect("eight_bit_heads", "rows", a.rows, {tokens, a.first_column + heads * head_size});
    expect("eight_bit_heads", "slots", a.slots, {tokens});
    expect("eight_bit_heads", "codes", a.codes, a.codes.shape());
    expect("eight_bit_heads", "scales", a.scales, {heads, a.codes.extent_of(1)});
}
template <class T>
void check_eight_bit_heads(const dequantize_heads_arguments<T>& a) {
    const extent heads = a.codes.extent_of(0), slots = a.codes.extent_of(1),
                 sequences = a.capacity < 1 ? 0 : slots / a.capacity;
    expect("eight_bit_heads", "codes", a.codes, {heads, sequences * a.capacity, a.codes.extent_of(2)});
    expect("eight_bit_heads", "scales", a.scales, {heads, slots});
    expect("eight_bit_heads", "query_offsets", a.query_offsets, {2 * sequences + 1});
    expect("eight_bit_heads", "key_offsets", a.key_offsets, {2 * sequences + 1});
    expect("eight_bit_heads", "heads", a.heads, a.codes.shape());
}

/// The largest code.
inline constexpr float most_code = 127.0f;

/// The largest scale: 127 of the next larger float are more than the largest float.
inline constexpr float most_scale = 0x1.020406p121f;

/// The scale of a vector whose largest magnitude is amax; NaN if an element is not finite.
HALFTONE_HD HALFTONE_INLINE float scale_of_heads(float amax) {
    const float scale = amax / most_code, bounded = scale < most_scale ? scale : most_scale;
    return is_finite(amax) ? bounded : halftone::bit_cast<float>(0x7fc00000u);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
