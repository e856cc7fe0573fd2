// SPDX-License-Identifier: MIT
/// \file
/// Dropout on the CPU; dropout.hpp has its contract and an example.
#pragma once

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/dropout/dropout.hpp>
#include <halftone/kernel/dropout/fp64.hpp>

#define HALFTONE_BODY <halftone/kernel/dropout/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct dropout<cpu> {
    template <class X, class Y>
        requires in_double<X, Y>
    static void run(cpu& device, const view<const X, 1>& x, const view<const Y, 1>& base, const view<Y, 1>& y,
                    const dropout_draw& draw) {
        fp64::drop(device, x, base, y, draw);
    }
    template <class X, class Y>
    static void run(cpu& device, const view<const X, 1>& x, const view<const Y, 1>& base, const view<Y, 1>& y,
                    const dropout_draw& draw) {
        check_dropout(x, base, y);
        const auto body = device.select(HALFTONE_EACH_SET(dropout_elements<X, Y>));
        const row_partition partition = partition_rows(x.size(), 1);
        static_assert(piece_elements % 64 == 0, "pieces are whole tiles of random numbers");
        device.parallel_for(partition.count, [&](extent piece) {  // which a plan does not call: it has no record
            const random_record record = draw.kept_from == 0 ? random_record{} : *draw.record;
            body(x.data(), base.data(), y.data(), partition.begin(piece), partition.rows_of(piece), record, draw);
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
