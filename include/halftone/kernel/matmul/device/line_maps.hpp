// SPDX-License-Identifier: MIT
/// \file
/// Tensor maps of a matrix whose lines (rows or columns, whichever are contiguous) begin anywhere.
///
///     const auto all = maps_of_lines(device, data, length, lines, leading, 128, 8);
///     simt.bulk_copy(to, all.of(set), x + all.offset(set), y, full);      // from (x, y) of set number `set` on
///
/// TMA takes matrices that begin at multiples of 16 bytes, with lines that are multiples of 16 bytes apart; the boxes
/// that it copies may begin at any element. So a map begins at the multiple of 16 bytes below the first element, and x
/// counts from there. If lines are not multiples of 16 bytes apart, every eighth is: lines set, set + 8, set + 16, …
/// are a matrix of their own, and eight maps describe all lines. No copy reads or writes before a line's first element:
/// x is never less than the offset.
#pragma once

#include <cstdint>

#include <halftone/kernel/matmul/device/operand.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

inline constexpr int most_line_sets = 8;

/// Into how many sets lines are divided: 1 or 8.
template <class Map>
struct line_maps {
    Map maps[most_line_sets];
    int first, step, in_chunk;  // the first line's offset, how much more each next line's is, and the elements of 16 bytes

    HALFTONE_HD HALFTONE_INLINE const Map& of(int set) const { return maps[set]; }
    HALFTONE_HD HALFTONE_INLINE int offset(int set) const { return (first + set * step) & (in_chunk - 1); }
};

/// Whether lines this far apart must be divided into sets.
template <class T>
constexpr bool needs_sets(extent leading) {
    return leading * static_cast<extent>(sizeof(T)) % 16 != 0;
}

/// `length` elements in each of `lines` lines, in boxes of box_lines lines of one set. `sets`: 1, if lines are multiples
/// of 16 bytes apart, or 8, if there are as many lines.
template <class Device, class T>
auto maps_of_lines(Device& device, const T* data, extent length, extent lines, extent leading, int box_lines, int sets) {
    using map = decltype(device.tile_map(data, length, lines, leading, box_lines));
    constexpr int in_chunk = 16 / static_cast<int>(sizeof(T));
    const auto offset_of = [](const T* p) {
        return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) % 16 / sizeof(T));
    };
    line_maps<map> all;
    all.first = offset_of(data), all.step = static_cast<int>(leading % in_chunk), all.in_chunk = in_chunk;
    for (int set = 0; set < most_line_sets; ++set) {
        const T* const from = data + set * leading;
        const int before = offset_of(from);
        all.maps[set] = set < sets ? device.tile_map(from - before, length + before, (lines - set + sets - 1) / sets,
                                                     sets * leading, box_lines)
                                   : all.maps[0];
    }
    return all;
}

/// The maps of an operand, with `outer` elements of the outer axis a tile.
template <class Device, class T>
auto panel_maps(Device& device, const product_operand<T>& o, int outer, int sets) {
    constexpr extent in_chunk = 16 / static_cast<extent>(sizeof(T));
    const extent length = o.length(), line_stride = (length + in_chunk - 1) / in_chunk * in_chunk;
    return maps_of_lines(device, o.elements.data, length, o.lines(), o.leading > 0 ? o.leading : line_stride,
                         o.axis == along::depth ? outer : 64, sets);
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
