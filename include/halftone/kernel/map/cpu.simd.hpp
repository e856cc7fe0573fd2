// SPDX-License-Identifier: MIT
/// \file
/// A block of rows of a map, in whole vector blocks: each vector block of the inputs is loaded once, all expressions
/// are evaluated on it, and every result is stored or added once.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstddef>
#include <type_traits>
#include <utility>

#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/map/cpu/job.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// The number of vectors in a vector block.
inline constexpr int map_vectors = 4;
using map_vector_block = vector_block<map_vectors>;
/// The number of columns is a multiple of this.
inline constexpr int map_columns = map_vectors * f32::lanes;

// A scalar has a step of 0; copies of it fill a cache line.
template <class T>
HALFTONE_INLINE map_vector_block map_load(kernel::map_read<T>, const std::byte* p, extent step, whole_vectors<map_vectors>) {
    return each_part<map_vectors>(
        [&](int i) __attribute__((always_inline)) { return load(reinterpret_cast<const T*>(p + i * step)); });
}
template <class T>
HALFTONE_INLINE map_vector_block map_load(kernel::map_read<T>, const std::byte* p, extent step,
                                          reordered_vectors<map_vectors>) {
    map_vector_block r;
#pragma GCC unroll 4
    for (int i = 0; i < map_vectors; i += 2) load_reordered(reinterpret_cast<const T*>(p + i * step), r.v[i], r.v[i + 1]);
    return r;
}
template <class Order>
HALFTONE_INLINE map_vector_block map_load(kernel::map_unread, const std::byte*, extent, Order) {
    return broadcast(splat(0.0f), static_cast<const map_vector_block*>(nullptr));
}

/// Prefetch distance in bytes: hardware prefetchers do not cross page boundaries.
inline constexpr int map_ahead = 1024;
template <class T>
HALFTONE_INLINE void map_prefetch_ahead(kernel::map_read<T>, const std::byte* p, extent step) {
    if (step != 0) prefetch_vectors(reinterpret_cast<const T*>(p + map_ahead), whole_vectors<map_vectors>{});
}
HALFTONE_INLINE void map_prefetch_ahead(kernel::map_unread, const std::byte*, extent) {}

template <class T, class Order>
HALFTONE_INLINE void map_store(kernel::map_write<T>, const kernel::map_stream& to, std::byte* p, const map_vector_block& v,
                               Order order) {
    store_or_stream(reinterpret_cast<T*>(p), v, order, to.non_temporal_stores);
}
template <class T, class Order>
HALFTONE_INLINE void map_store(kernel::map_add<T>, const kernel::map_stream& to, std::byte* p, const map_vector_block& v,
                               Order order) {
    T* const q = reinterpret_cast<T*>(p);
    map_vector_block result = v;
    if (to.mode == write_mode::add) result = load(q, order) + v;
    store_or_stream(q, result, order, to.non_temporal_stores);
}
// One vector after the other, since a sum has one accumulator for each lane.
template <class Order>
HALFTONE_INLINE void map_store(kernel::map_sum, const kernel::map_stream& to, std::byte* p, const map_vector_block& v, Order) {
    static_assert(std::is_same_v<Order, whole_vectors<map_vectors>>, "halftone: a sum's last vectors may be incomplete");
    auto* const q = reinterpret_cast<float*>(p);
    if (to.mode == write_mode::overwrite) return store_or_stream(q, v, false);
    f32 sum = load(q);
#pragma GCC unroll 4
    for (int i = 0; i < map_vectors; ++i) sum = sum + v.v[i];
    store(q, sum);
}
template <class Order>
HALFTONE_INLINE void map_store(kernel::map_unwritten, const kernel::map_stream&, std::byte*, const map_vector_block&, Order) {}

template <class... E, class... Output, class... Input, std::size_t... K, std::size_t... I>
HALFTONE_INLINE void map_rows(const pack<E...>& given, pack<Output...>, pack<Input...>,
                              const kernel::map_stream* outputs, const kernel::map_stream* inputs, extent rows,
                              extent columns, std::index_sequence<K...>, std::index_sequence<I...>) {
    using kernel::map_is_of;
    constexpr bool alike = (map_is_of<bfloat16, Output> && ...) && (map_is_of<bfloat16, Input> && ...);
    constexpr std::conditional_t<alike, reordered_vectors<map_vectors>, whole_vectors<map_vectors>> order{};
    // Local copies, which stores cannot alias.
    const pack<E...> expressions = given;
    const kernel::map_stream to_streams[] = {outputs[K]...};
    const extent to_steps[] = {outputs[K].step * f32::lanes...};
    [[maybe_unused]] const extent from_steps[] = {0, inputs[I].step * f32::lanes...};
    for (extent row = 0; row < rows; ++row) {
        std::byte* to[] = {outputs[K].data + row * outputs[K].row_step...};
        [[maybe_unused]] const std::byte* from[] = {nullptr, inputs[I].data + row * inputs[I].row_step...};
        for (extent column = 0; column < columns; column += map_columns) {
            (map_prefetch_ahead(Input{}, from[I + 1], from_steps[I + 1]), ...);
            map_vector_block x[sizeof...(I) + 1];
            ((x[I] = map_load(Input{}, from[I + 1], from_steps[I + 1], order)), ...);
            const map_vector_block y[] = {broadcast(evaluate(expressions.template at<K>(), x), x)...};
            (map_store(Output{}, to_streams[K], to[K], y[K], order), ...);
            ((to[K] += map_vectors * to_steps[K]), ...);
            ((from[I + 1] += map_vectors * from_steps[I + 1]), ...);
        }
    }
    if ((to_streams[K].non_temporal_stores || ...)) end_non_temporal();
}

/// `expressions` is an Expressions.
template <class Expressions, class Outputs, class Inputs>
void map_block(const void* expressions, const kernel::map_stream* outputs, const kernel::map_stream* inputs,
               extent rows, extent columns) {
    map_rows(*static_cast<const Expressions*>(expressions), Outputs{}, Inputs{}, outputs, inputs, rows, columns,
             std::make_index_sequence<Outputs::count>{}, std::make_index_sequence<Inputs::count>{});
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
