// SPDX-License-Identifier: MIT
/// \file
/// Positions in packed documents on a GPU; packed_positions.hpp has the contract and an example.
#pragma once

#include <halftone/exec/simt/simt.hpp>
#include <halftone/kernel/packed_positions/packed_positions.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The last sequence that begins at or before a time. If several begin at the same offset, all but the last of them are
/// empty. There is at least one sequence.
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE extent sequence_at(Simt simt, const simt::global_span<const std::int32_t>& offsets,
                                               extent time) {
    extent low = 0, high = offsets.count - 1;
    while (high - low > 1) {
        const extent middle = (low + high) / 2;
        if (simt.load(offsets, middle) <= time) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

struct packed_positions_kernel {
    static constexpr int threads = 256;
    static constexpr simt::word shared_bytes = 0;

    simt::global_span<const std::int32_t> offsets;
    simt::global_span<std::int32_t> positions;

    simt::grid_shape grid() const { return simt::blocks_for(positions.count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent t = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (t >= positions.count) return;
        std::int32_t position = -1;
        if (offsets.count > 1) {
            const extent d = sequence_at(simt, offsets, t), begin = simt.load(offsets, d);
            if (begin >= 0 && begin <= t && t < simt.load(offsets, d + 1))
                position = static_cast<std::int32_t>(t - begin);
        }
        simt.store(positions, t, position);
    }
};

}  // namespace on_device

template <simt_device Device>
struct packed_positions<Device> {
    static void run(Device& device, const const_view<std::int32_t, 1>& offsets,
                    const view<std::int32_t, 1>& positions) {
        check_packed_positions(offsets, positions);
        device.launch(on_device::packed_positions_kernel{simt::span_of(offsets), simt::span_of(positions)});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
