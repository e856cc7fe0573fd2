// SPDX-License-Identifier: MIT
/// \file
/// Rotary position embedding in double, one thread per pair; rotary.hpp has the formulas, common/fp64/each.hpp the
/// contract.
#pragma once

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/rotary/rotary.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

/// Rotates the pairs of each head, then copies its unpaired elements.
struct turn_pair {
    global_span<const double> x;
    global_span<double> y;
    global_span<const float> table;
    global_span<const std::int32_t> positions;
    shape<4> x_strides, y_strides;
    extent time, heads, turned, pairs, table_rows, slots;
    bool halves;
    double sign;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const extent slot = i % slots, h = i / slots % heads, token = i / slots / heads, b = token / time, t = token % time;
        const extent from = b * x_strides[0] + t * x_strides[1] + h * x_strides[2];
        const extent to = b * y_strides[0] + t * y_strides[1] + h * y_strides[2];
        if (slot >= pairs) return put(thread, to + pairs + slot, thread.load(x, from + pairs + slot));
        const extent first = halves ? slot : 2 * slot, second = halves ? slot + pairs : 2 * slot + 1;
        const double p = thread.load(x, from + first), q = thread.load(x, from + second);
        if (h >= turned) return put(thread, to + first, p), put(thread, to + second, q);
        const extent position = positions.is_there() ? extent{thread.load(positions, token)} : t;
        double cosine = not_a_number, sine = not_a_number;
        if (position >= 0 && position < table_rows) {
            cosine = static_cast<double>(thread.load(table, position * 2 * pairs + slot));
            sine = static_cast<double>(thread.load(table, position * 2 * pairs + pairs + slot)) * sign;
        }
        put(thread, to + first, p * cosine - q * sine);
        put(thread, to + second, q * cosine + p * sine);
    }

  private:
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void put(Thread thread, extent at, double value) const {
        thread.store(y, at, mode == write_mode::add ? thread.load(y, at) + value : value);
    }
};

template <class Device>
void turn(Device& device, const rotary_arguments<double>& a) {
    const extent slots = a.x.extent_of(3) - a.pairs();
    for_each(device, a.x.extent_of(0) * a.x.extent_of(1) * a.x.extent_of(2) * slots, 4,
             turn_pair{simt::bounding_span_of(a.x), simt::bounding_span_of(a.y), simt::span_of(a.table),
                       simt::span_of(a.positions), a.x.strides(), a.y.strides(), a.x.extent_of(1), a.x.extent_of(2),
                       a.turned_heads(), a.pairs(), a.table.extent_of(0), slots,
                       a.options.layout == rotary_layout::half_split, a.options.inverse ? -1.0 : 1.0, a.mode});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
