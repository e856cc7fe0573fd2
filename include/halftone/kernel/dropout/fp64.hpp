// SPDX-License-Identifier: MIT
/// \file
/// Dropout in double, one thread an element: dropout.hpp has the rules, common/fp64/each.hpp the contract. The scale is
/// 1 / (1 - p), where p is the actual probability, a multiple of 2^-32.
#pragma once

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/dropout/dropout.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

template <class X, class Y>
struct dropout_element {
    global_span<const X> x;
    global_span<const Y> base;
    global_span<Y> y;
    global_span<const random_record> record;
    dropout_draw draw;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        double value = 0;
        if (!is_dropped(thread, i)) value = static_cast<double>(thread.load(x, i)) * scale();
        if (base.is_there()) value = static_cast<double>(thread.load(base, i)) + value;
        thread.store(y, i, static_cast<Y>(value));
    }

  private:
    HALFTONE_HD double scale() const {
        const double kept = 1 - static_cast<double>(draw.kept_from) * 0x1p-32;
        return kept > 0 ? 1 / kept : 0;
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD bool is_dropped(Thread thread, extent i) const {
        if (draw.kept_from == 0) return false;
        const random_record now = thread.load(record, 0);
        return random_bits(now.seed, now.pass, draw.tensor, static_cast<std::uint64_t>(i)) < draw.kept_from;
    }
};

template <class Device, class X, class Y>
void drop(Device& device, const view<const X, 1>& x, const view<const Y, 1>& base, const view<Y, 1>& y,
          const dropout_draw& draw) {
    check_dropout(x, base, y);
    for_each(device, x.size(), 4,
             dropout_element<X, Y>{simt::span_of(x), simt::span_of(base), simt::span_of(y), {draw.record, 1}, draw});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
