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

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/map/cpu/job.body.hpp>
#endif
