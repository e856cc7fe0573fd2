// SPDX-License-Identifier: MIT
/// \file
/// Tensor maps of a matrix whose rows begin anywhere.
///
///     const auto all = maps_of_rows(device, data, columns, rows, leading, 16, 8);
///     simt.bulk_store(all.of(set), column + all.offset(set), y, from);        // of row number set + 8 y
///
/// TMA takes matrices that begin at multiples of 16 bytes, with rows that are multiples of 16 bytes apart, and copies boxes
/// that begin at multiples of 16 bytes. So a map begins at the multiple of 16 bytes below the first element, and columns
/// count from there. If rows are not multiples of 16 bytes apart, every eighth is: rows set, set + 8, set + 16, … are a
/// matrix of their own with an offset of their own, and eight maps describe all rows. What a map has before the offset are
/// other elements, of the row before for instance.
#pragma once

#include <cstdint>

#include <halftone/kernel/matmul/device/operand.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Rows are divided into 1 or 8 sets.
template <class Map>
struct row_maps {
    Map maps[most_row_sets];
    int first, step, in_chunk;  // the first row's offset, how much more each next row's is, and the elements of 16 bytes

    HALFTONE_HD HALFTONE_INLINE const Map& of(int set) const { return maps[set]; }
    HALFTONE_HD HALFTONE_INLINE int offset(int set) const { return (first + set * step) & (in_chunk - 1); }
};

/// Whether rows this far apart must be divided into sets.
template <class T>
constexpr bool needs_sets(extent leading) {
    return leading * static_cast<extent>(sizeof(T)) % 16 != 0;
}
/// How many elements a pointer is above a multiple of 16 bytes.
template <class T>
int offset_in_chunk(const T* p) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) % 16 / sizeof(T));
}

/// In boxes of box_rows rows of one set. `sets`: 1, if rows are multiples of 16 bytes apart, or 8, if there are as many.
template <class Device, class T>
auto maps_of_rows(Device& device, const T* data, extent columns, extent rows, extent leading, int box_rows, int sets) {
    using map = decltype(device.tile_map(data, columns, rows, leading, box_rows));
    constexpr int in_chunk = 16 / static_cast<int>(sizeof(T));
    row_maps<map> all;
    all.first = offset_in_chunk(data), all.step = static_cast<int>(leading % in_chunk), all.in_chunk = in_chunk;
    for (int set = 0; set < most_row_sets; ++set) {
        const T* const from = data + set * leading;
        const int before = offset_in_chunk(from);
        all.maps[set] = set < sets ? device.tile_map(from - before, columns + before,
                                                     detail::ceil_div(rows - set, sets), sets * leading, box_rows)
                                   : all.maps[0];
    }
    return all;
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
