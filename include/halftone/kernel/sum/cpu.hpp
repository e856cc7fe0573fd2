// SPDX-License-Identifier: MIT
/// \file
/// Sums over all elements on the CPU; sum.hpp has their contract and an example.
#pragma once

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/map/fp64.hpp>
#include <halftone/kernel/sum/sum.hpp>

#define HALFTONE_BODY <halftone/kernel/sum/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct sum<cpu> {
    template <expression E, class... X, class Y>
    static void run(cpu& device, const E& e, const pack<view<const X, 1>...>& inputs, double factor,
                    const view<Y, 0>& out) {
        if constexpr (in_double<X..., Y>) {
            fp64::sum(device, e, inputs, factor, out);
        } else {
            run_each(device, e, inputs, factor, out, std::index_sequence_for<X...>{});
        }
    }

  private:
    template <class E, class... X, class Y, std::size_t... I>
    static void run_each(cpu& device, const E& e, const pack<view<const X, 1>...>& inputs, double factor,
                         const view<Y, 0>& out, std::index_sequence<I...>) {
        const shape<1> all = inputs.first.shape();
        (expect("sum", "an input", inputs.template at<I>(), all), ...);
        const auto body = device.select(HALFTONE_EACH_SET(sum_piece<E, X...>));
        const row_partition partition = partition_rows(all.size(), 1, sum_piece);
        const workspace::lease lease(device.scratch(), static_cast<std::size_t>(partition.count) * sizeof(double));
        auto* const sums = lease.as<double>();
        device.parallel_for(partition.count, [&](extent piece) {
            const pack<const X*...> first = make_pack((inputs.template at<I>().data() + partition.begin(piece))...);
            sums[piece] = static_cast<double>(body(e, first, partition.rows_of(piece)));
        });
        device.run([&] {
            // A pairwise sum, in place.
            for (extent step = 1; step < partition.count; step *= 2) {
                for (extent i = 0; i + step < partition.count; i += 2 * step) sums[i] += sums[i + step];
            }
            *out.data() = static_cast<Y>(factor * (partition.count == 0 ? 0.0 : sums[0]));
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
