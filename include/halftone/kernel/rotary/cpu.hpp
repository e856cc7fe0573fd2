// SPDX-License-Identifier: MIT
/// \file
/// Rotary position embedding on the CPU; rotary.hpp has its contract and an example.
#pragma once

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/rotary/fp64.hpp>
#include <halftone/kernel/rotary/cpu/token.hpp>

#define HALFTONE_BODY <halftone/kernel/rotary/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct rotary<cpu> {
    static void run(cpu& device, const rotary_arguments<double>& a) {
        check_rotary(a);
        device.run([&] { check_positions(a.positions, a.table.extent_of(0)); });
        fp64::turn(device, a);
    }
    template <class T>
    static void run(cpu& device, const rotary_arguments<T>& a) {
        check_rotary(a);
        device.run([&] { check_positions(a.positions, a.table.extent_of(0)); });
        const auto body = device.select(HALFTONE_EACH_SET(turn_token<T>));
        const extent time = a.x.extent_of(1), heads = a.x.extent_of(2), head_size = a.x.extent_of(3);
        const rotary_token token{heads,
                                 a.turned_heads(),
                                 head_size,
                                 a.pairs(),
                                 a.x.stride_of(2),
                                 a.y.stride_of(2),
                                 a.options.layout,
                                 a.options.inverse ? -1.0f : 1.0f,
                                 a.mode,
                                 is_non_temporal(a)};
        if (a.x.size() == 0) return;
        const row_partition partition = partition_rows(a.x.extent_of(0) * time, heads * head_size);
        device.parallel_for(partition.count, [&](extent piece) {
            const extent first = partition.begin(piece), end = first + partition.rows_of(piece);
            for (extent i = first; i < end; ++i) {
                const extent b = i / time, t = i - b * time;
                const extent position = a.positions.data() == nullptr ? t : extent{a.positions(b, t)};
                body(token, &a.x(b, t, 0, 0), a.table.data() + position * a.table.extent_of(1), &a.y(b, t, 0, 0));
            }
            if (token.non_temporal) detail::end_non_temporal();
        });
    }

  private:
    /// Whether the result is large, is not x, and each half of a head is whole cache lines.
    template <class T>
    static bool is_non_temporal(const rotary_arguments<T>& a) {
        const auto is_whole = [](extent elements) { return elements * static_cast<extent>(sizeof(T)) % 64 == 0; };
        for (int axis = 0; axis < 3; ++axis) {
            if (!is_whole(a.y.stride_of(axis))) return false;
        }
        return a.mode == write_mode::overwrite && a.y.data() != a.x.data() && is_whole(a.pairs()) &&
               stores_non_temporal(a.y.data(), 1, a.y.size() * static_cast<extent>(sizeof(T)), 0);
    }
    static void check_positions(const const_view<std::int32_t, 2>& positions, extent count) {
        if (positions.data() == nullptr) return;
        for (extent i = 0; i < positions.size(); ++i) {
            const extent p = positions.data()[i];
            if (p < 0 || p >= count) {
                fail<argument_error>("rotary: the position of token ", i, " is ", p, "; expected 0 to ", count - 1);
            }
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
