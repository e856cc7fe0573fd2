// SPDX-License-Identifier: MIT
/// \file
/// A type-erased description of a map on the CPU: its operands, their partition into pieces, the place of gradients'
/// partial sums, and each piece's part of them. cpu.hpp runs it.
#pragma once

#include <algorithm>
#include <type_traits>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/map/map.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// An operand of a block: the distances, in bytes, between rows and between elements (0 for a scalar, and for a sum of
/// all elements).
struct map_stream {
    std::byte* data;
    extent row_step, step;
    write_mode mode;
    bool non_temporal_stores = false;  ///< whether to use them; `data` and the rows are then aligned to cache lines
};

// What the body does with an operand. The element type is its template argument.
template <class T>
struct map_read {};
struct map_unread {};
template <class T>
struct map_write {};
template <class T>
struct map_add {};  ///< overwrites or adds, according to its mode
struct map_sum {};  ///< a sum of all elements, one float a lane; by its mode they may be stored instead
struct map_unwritten {};

/// Whether an operand has elements, and these are of type T.
template <class T, class Operand>
inline constexpr bool map_is_of = std::is_same_v<Operand, map_unread> || std::is_same_v<Operand, map_unwritten>;
template <class T>
inline constexpr bool map_is_of<T, map_read<T>> = true;
template <class T>
inline constexpr bool map_is_of<T, map_write<T>> = true;
template <class T>
inline constexpr bool map_is_of<T, map_add<T>> = true;

/// The largest number of lanes of a vector: the number of copies of a scalar, and of partial sums of its gradient.
inline constexpr int map_lanes = 16;

struct map_job;

/// An operand; for a gradient that is summed also its partial sums: `partial_stride(columns)` floats, or `map_lanes`
/// floats, for each piece of rows.
struct map_plan {
    map_operand operand;
    write_mode mode = write_mode::overwrite;
    /// Adds the partial sums and stores the result in the operand.
    void (*finish)(cpu& device, const map_job& job, const map_plan& plan) = nullptr;
    float* partials = nullptr;
    bool non_temporal_stores = false;

    bool is_summed() const {
        return operand.data != nullptr && (operand.access == map_access::column || operand.access == map_access::scalar);
    }
};

/// A map partitioned into pieces: the plans of outputs, then those of inputs.
struct map_job {
    map_shape shape;
    map_plan* plans;
    int count;
    row_partition rows{}, columns{};

    /// Partitions by the shape. Rows without gaps between them are treated as one row, unless an operand depends on the
    /// column.
    void partition(bool sums);
    /// Chooses which of the first `outputs` plans use non-temporal stores: large ones that are not also inputs.
    void choose_streams(int outputs);
    extent pieces() const { return rows.count * columns.count; }
    extent rows_of(extent piece) const { return rows.rows_of(piece / columns.count); }
    extent columns_of(extent piece) const { return columns.rows_of(piece % columns.count); }

    /// The operand at the beginning of a piece; `nowhere` is a buffer for unwanted results.
    map_stream stream(const map_plan& plan, extent piece, std::byte* nowhere) const;
    float* partials_of(const map_plan& plan, extent piece) const;

    /// Partitions a job whose first plans are gradients, and returns the size of their partial sums in bytes.
    std::size_t cut_for_sums(int gradients);
    void place_sums(int gradients, float* next);
    extent partial_floats(const map_plan& plan) const;
};

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline void map_job::partition(bool sums) {
    bool flat = true;
    for (int i = 0; i < count; ++i) {
        const map_operand& o = plans[i].operand;
        if (o.data == nullptr) continue;
        if (o.access == map_access::column) flat = false;
        if (o.access == map_access::each && shape.rows > 1 && o.row_stride != shape.columns) flat = false;
    }
    if (flat) shape = {shape.rows * shape.columns == 0 ? 0 : 1, shape.rows * shape.columns};
    const extent longest = sums ? 2 * piece_elements : 2 * longer_piece(shape.columns);
    columns = partition_rows(shape.columns, 1, shape.columns <= longest ? longest : piece_elements);
    rows = sums ? partition_rows_for_sums(shape.rows, columns.each)
                : partition_rows(shape.rows, std::min(columns.each, shape.columns));
}

inline void map_job::choose_streams(int outputs) {
    for (int i = 0; i < outputs; ++i) {
        const map_operand& o = plans[i].operand;
        bool read = plans[i].mode == write_mode::add || plans[i].partials != nullptr;
        for (int j = outputs; j < count; ++j) read = read || plans[j].operand.data == o.data;
        plans[i].non_temporal_stores =
            !read && o.access == map_access::each && o.data != nullptr &&
            stores_non_temporal(o.data, shape.rows, shape.columns * o.element_bytes, o.row_stride * o.element_bytes);
    }
}

inline map_stream map_job::stream(const map_plan& plan, extent piece, std::byte* nowhere) const {
    const extent row = rows.begin(piece / columns.count), column = columns.begin(piece % columns.count);
    const auto& [data, bytes, row_stride, access, strides] = plan.operand;
    if (plan.partials != nullptr) {
        constexpr auto word = static_cast<extent>(sizeof(float));
        float* const sums = partials_of(plan, piece);
        const bool by_column = access == map_access::column;
        std::memset(sums, 0, static_cast<std::size_t>((by_column ? columns_of(piece) : map_lanes) * word));
        return {reinterpret_cast<std::byte*>(sums), 0, by_column ? word : 0, write_mode::add};
    }
    if (data == nullptr) return {nowhere, 0, 0, write_mode::overwrite};
    switch (access) {
        case map_access::each:
            return {data + (row * row_stride + column) * bytes, row_stride * bytes, bytes, plan.mode,
                    plan.non_temporal_stores};
        case map_access::column:
            return {data + column * bytes, 0, bytes, plan.mode};
        default:  // a scalar; strided.hpp runs jobs with strides
            return {data, 0, 0, plan.mode};
    }
}

inline float* map_job::partials_of(const map_plan& plan, extent piece) const {
    if (plan.operand.access == map_access::scalar) return plan.partials + piece * map_lanes;
    return plan.partials + piece / columns.count * partial_stride(shape.columns) + columns.begin(piece % columns.count);
}

inline std::size_t map_job::cut_for_sums(int gradients) {
    bool sums = false;
    for (int i = 0; i < gradients; ++i) sums = sums || plans[i].is_summed();
    partition(sums);
    extent floats = 0;
    for (int i = 0; i < gradients; ++i) floats += partial_floats(plans[i]);
    return static_cast<std::size_t>(floats) * sizeof(float);
}

inline void map_job::place_sums(int gradients, float* next) {
    for (int i = 0; i < gradients; ++i) {
        if (plans[i].is_summed()) plans[i].partials = next;
        next += partial_floats(plans[i]);
    }
}

inline extent map_job::partial_floats(const map_plan& plan) const {
    if (!plan.is_summed()) return 0;
    return plan.operand.access == map_access::column ? rows.count * partial_stride(shape.columns)
                                                     : pieces() * map_lanes;
}

#endif

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
