// SPDX-License-Identifier: MIT
/// \file
/// Functions of scores on tiles: compute scores from products, and gradients of products from those of weights.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/attention/cpu/mod.hpp>
#include <halftone/kernel/map/evaluate.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// first, first + 1, ...
HALFTONE_INLINE f32 attention_positions(extent first) {
    return load(halftone::detail::attention_lanes) + splat(static_cast<float>(first));
}

/// `Expressions` is an attention_mod_expressions.
template <class Expressions>
bool attention_modify(const void* expressions, const halftone::detail::attention_mod_tile& t) {
    const auto& e = static_cast<const Expressions*>(expressions)->score;
    const f32 hidden = splat(halftone::bit_cast<float>(0xff800000u)),
              least = splat(halftone::detail::attention_masked_score), scale = splat(t.scale);
    const auto batch = static_cast<float>(t.at.batch), head = static_cast<float>(t.at.head);
    mask found = less(splat(0.0f), splat(0.0f));
    for (extent i = 0; i < t.at.queries; ++i) {
        float* const scores = t.scores + i * t.stride;
        const auto query = static_cast<float>(t.at.first_query + i);
        const float known[] = {0, batch, head, query, 0};
        const auto of_row = halftone::detail::bound_lookups<0b01110>::of(e, known);
        for (extent j = 0; j < t.at.keys; j += f32::lanes) {
            const f32 x[] = {load(scores + j) * scale, splat(batch), splat(head), splat(query),
                             attention_positions(t.at.first_key + j)};
            const f32 y = evaluate(of_row, x);
            const mask is_hidden = less(y, least);
            store(scores + j, select(is_hidden, hidden, y));
            found = either(found, is_hidden);
        }
    }
    return any(found);
}

template <class Expressions>
bool attention_modify_gradients(const void* expressions, const halftone::detail::attention_mod_gradient_tile& t) {
    const auto& both_of = *static_cast<const Expressions*>(expressions);
    constexpr int columns = 2 * f32::lanes;
    const f32 hidden = splat(halftone::bit_cast<float>(0xff800000u)), zero = splat(0.0f),
              least = splat(halftone::detail::attention_masked_score), scale = splat(t.scale);
    const auto batch = static_cast<float>(t.at.batch), head = static_cast<float>(t.at.head);
    mask found = less(zero, zero);
    for (extent key = 0; key < t.at.keys; ++key) {
        float *const scores = t.scores + key * columns, *const dp = t.weight_gradients + key * columns;
        const auto position = static_cast<float>(t.at.first_key + key);
        const float known[] = {0, batch, head, 0, position};
        const auto of_row = halftone::detail::bound_lookups<0b10110>::of(both_of.score, known);
        const auto slope = halftone::detail::bound_lookups<0b10110>::of(both_of.by_score, known);
        for (int l = 0; l < columns; l += f32::lanes) {
            const f32 x[] = {load(scores + l) * scale, splat(batch), splat(head),
                             attention_positions(t.at.first_query + l), splat(position)};
            const f32 y = evaluate(of_row, x), by_score = evaluate(slope, x);
            const mask is_hidden = less(y, least);
            const f32 logarithm =
                fma(y - load(t.maxima + l), splat(halftone::detail::log2_of_e), -load(t.logs + l));
            store(scores + l, select(is_hidden, hidden, logarithm));
            store(dp + l, select(is_hidden, zero, (load(dp + l) - load(t.dots + l)) * by_score));
            found = either(found, is_hidden);
        }
    }
    return any(found);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
