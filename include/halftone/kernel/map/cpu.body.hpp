// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in cpu.hpp that are no templates.
#pragma once

#include <halftone/kernel/map/cpu.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

HALFTONE_OUT_OF_LINE map_piece::map_piece(const cpu& device, const map_job& job, const map_body& body, extent piece,
                            const map_room& room)
    : body_(body), room_(room), operands_(job.count), rows_(job.rows_of(piece)) {
    const isa set = device.instruction_set();
    lanes_ = set >= isa::avx512 ? avx512::f32::lanes : set == isa::avx2 ? avx2::f32::lanes : portable::f32::lanes;
    block_ = set >= isa::avx512 ? avx512::map_columns : set == isa::avx2 ? avx2::map_columns : portable::map_columns;
    left_ = job.columns_of(piece) % block_;
    whole_ = job.columns_of(piece) - left_;
    for (int i = 0; i < operands_; ++i) room_.streams[i] = job.stream(job.plans[i], piece, room_.buffers[i].bytes);
}

HALFTONE_OUT_OF_LINE void map_piece::run() const {
    if (left_ == 0) return send(room_.streams, rows_, whole_);
    const extent together = begin_tails();
    for (extent row = 0; row < rows_; row += together) {
        const extent rows = std::min(together, rows_ - row);
        if (whole_ > 0) send(room_.streams, rows, whole_);
        fill_tails(rows);
        send(room_.tails, rows, block_);
        empty_tails(rows);
        for (int i = 0; i < operands_; ++i) room_.streams[i].data += rows * room_.streams[i].row_step;
    }
}

HALFTONE_OUT_OF_LINE std::byte* map_piece::buffer_of(int i) const {
    int first = is_output(i) ? 0 : i;
    while (room_.streams[first].data != room_.streams[i].data) ++first;
    return room_.buffers[first].bytes;
}

HALFTONE_OUT_OF_LINE extent map_piece::begin_tails() const {
    extent together = std::min(map_buffer::rows, rows_);
    for (int i = 0; i < operands_; ++i) {
        if (is_sum(room_.streams[i])) together = 1;
    }
    for (int i = 0; i < operands_; ++i) {
        const map_stream& s = room_.streams[i];
        std::byte* const buffer = buffer_of(i);
        if (is_sum(s)) {
            room_.tails[i] = {buffer, 0, sizeof(float), write_mode::overwrite};
        } else if (has_tail(s)) {
            const extent row_bytes = block_ * s.step;
            room_.tails[i] = {buffer, s.row_step == 0 ? 0 : row_bytes, s.step, s.mode};
            std::memset(buffer, 0, static_cast<std::size_t>(together * row_bytes));
        } else {
            room_.tails[i] = s;
        }
    }
    return together;
}

HALFTONE_OUT_OF_LINE void map_piece::fill_tails(extent rows) const {
    const auto copy = [](const std::byte* operand, std::byte* buffer, std::size_t n) {
        std::memcpy(buffer, operand, n);
    };
    for (int i = 0; i < operands_; ++i) {
        const map_stream& s = room_.streams[i];
        if (has_tail(s) && (!is_output(i) || s.mode == write_mode::add)) for_tails(i, rows, copy);
    }
}

HALFTONE_OUT_OF_LINE void map_piece::empty_tails(extent rows) const {
    const auto copy = [](std::byte* operand, const std::byte* buffer, std::size_t n) {
        std::memcpy(operand, buffer, n);
    };
    for (int i = 0; i < body_.outputs; ++i) {
        const map_stream& s = room_.streams[i];
        if (has_tail(s)) for_tails(i, rows, copy);
        if (!is_sum(s)) continue;
        auto* const sums = reinterpret_cast<float*>(s.data);
        const auto* const values = reinterpret_cast<const float*>(room_.tails[i].data);
        for (extent j = 0; j < left_; j += lanes_) {
            for (extent lane = 0; lane < std::min(lanes_, left_ - j); ++lane) sums[lane] += values[j + lane];
        }
    }
}

HALFTONE_OUT_OF_LINE void run_map(cpu& device, map_job& job, const map_body& body, int gradients,
                    void (*pieces)(cpu&, map_job&, const map_body&)) {
    const workspace::lease lease(device.scratch(), job.cut_for_sums(gradients));
    job.place_sums(gradients, lease.as<float>());
    pieces(device, job, body);
    for (int i = 0; i < gradients; ++i) {
        if (job.plans[i].is_summed()) job.plans[i].finish(device, job, job.plans[i]);
    }
}

HALFTONE_OUT_OF_LINE bool map<cpu>::is_strided(const map_job& job, int gradients) {
    bool strided = false;
    for (int i = 0; i < job.count; ++i) strided = strided || job.plans[i].operand.access == map_access::strided;
    for (int i = 0; i < gradients && strided; ++i) {
        if (job.plans[i].is_summed() && job.plans[i].operand.access != map_access::strided)
            refuse_sums_beside_strides();
    }
    return strided;
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
