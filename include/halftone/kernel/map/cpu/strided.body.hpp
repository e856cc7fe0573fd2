// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in strided.hpp that are no templates.
#pragma once

#include <halftone/kernel/map/cpu/strided.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

HALFTONE_OUT_OF_LINE extent strided_map_axes::size() const {
    extent n = 1;
    for (int axis = 0; axis < count; ++axis) n *= extents.of[axis];
    return n;
}

HALFTONE_OUT_OF_LINE void gather_elements(const strided_map_axes& axes, const strided_map_operand& o, extent first, extent n,
                            std::byte* buffer) {
    switch (o.bytes) {
        case 1:
            return strided_map_copy<std::uint8_t>::gather(axes, o, first, n, buffer);
        case 2:
            return strided_map_copy<std::uint16_t>::gather(axes, o, first, n, buffer);
        default:
            return strided_map_copy<std::uint32_t>::gather(axes, o, first, n, buffer);
    }
}

HALFTONE_OUT_OF_LINE void scatter_elements(const strided_map_axes& axes, const strided_map_operand& o, extent first, extent n,
                             const std::byte* buffer) {
    switch (o.bytes) {
        case 1:
            return strided_map_copy<std::uint8_t>::scatter(axes, o, first, n, buffer);
        case 2:
            return strided_map_copy<std::uint16_t>::scatter(axes, o, first, n, buffer);
        default:
            return strided_map_copy<std::uint32_t>::scatter(axes, o, first, n, buffer);
    }
}

HALFTONE_OUT_OF_LINE strided_map_piece::strided_map_piece(const map_body& body, const strided_map_axes& axes,
                                            const strided_map_operand* operands, int count, map_stream* streams,
                                            strided_map_buffer* buffers)
    : body_(body), axes_(axes), operands_(operands), count_(count), streams_(streams), buffers_(buffers) {
    for (int i = 0; i < count_; ++i) {
        const strided_map_operand& o = operands_[i];
        streams_[i] = {buffers_[i].bytes, 0, 0, write_mode::overwrite};
        if (o.data == nullptr || !o.is_scalar || i < body_.outputs) continue;
        for (extent at = 0; at < static_cast<extent>(block_alignment); at += o.bytes)
            std::memcpy(buffers_[i].bytes + at, o.data, static_cast<std::size_t>(o.bytes));
    }
}

HALFTONE_OUT_OF_LINE void strided_map_piece::run(extent first, extent n) const {
    constexpr extent lot = extent{4} * map_lanes;
    const extent columns = round_up(n, lot);
    for (int i = 0; i < count_; ++i) {
        if (is_moved(i)) begin(i, first, n, columns == n);
    }
    body_.block(body_.expressions, streams_, streams_ + body_.outputs, 1, columns);
    for (int i = 0; i < body_.outputs; ++i) {
        if (is_moved(i) && streams_[i].data == buffer_of(i))
            scatter_elements(axes_, operands_[i], first, n, buffer_of(i));
    }
}

HALFTONE_OUT_OF_LINE std::byte* strided_map_piece::buffer_of(int i) const {
    int first = i < body_.outputs ? 0 : i;
    while (operands_[first].data != operands_[i].data) ++first;
    return buffers_[first].bytes;
}

HALFTONE_OUT_OF_LINE void strided_map_piece::begin(int i, extent first, extent n, bool whole) const {
    const strided_map_operand& o = operands_[i];
    if (o.is_flat && whole) {
        streams_[i] = {o.data + first * o.bytes, 0, o.bytes, o.mode};
        return;
    }
    std::byte* const buffer = buffer_of(i);
    streams_[i] = {buffer, 0, o.bytes, o.mode};
    if (i >= body_.outputs || o.mode == write_mode::add) gather_elements(axes_, o, first, n, buffer);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
