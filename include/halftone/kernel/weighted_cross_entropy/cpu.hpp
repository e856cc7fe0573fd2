// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy with label smoothing, class weights and a z-loss on the CPU: the kernel of kernel/cross_entropy,
/// followed, with label smoothing, by another pass over the rows. weighted_cross_entropy.hpp has the arguments and the
/// contract.
#pragma once

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>
#include <halftone/kernel/weighted_cross_entropy/fp64.hpp>
#include <halftone/kernel/weighted_cross_entropy/weighted_cross_entropy.hpp>

#define HALFTONE_BODY <halftone/kernel/weighted_cross_entropy/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct weighted_cross_entropy<cpu> {
    template <class X>
    static void forward_rows(cpu& device, const cross_entropy_forward<X>& a, const cross_entropy_terms<statistic<X>>& terms,
                             const view<statistic<X>, 1>& row_weights) {
        cross_entropy<cpu>::forward_rows(device, a);
        check(terms, a.logits.extent_of(1));
        if constexpr (in_double<X>) {
            fp64::weighted_cross_entropy_rows(device, a, terms, row_weights);
        } else {
            const auto body = device.select(HALFTONE_EACH_SET(weighted_cross_entropy_rows<X>));
            const extent classes = a.logits.extent_of(1), stride = a.logits.stride_of(0);
            const row_partition partition = partition_rows(a.logits.extent_of(0), classes);
            device.parallel_for(partition.count, [&](extent piece) {
                const extent i = partition.begin(piece);
                body(partition.rows_of(piece), classes, a.logits.data() + i * stride, stride, a.targets.data() + i,
                     a.ignore_index, terms, a.losses.data() + i, a.maximum.data() + i, a.sum.data() + i,
                     row_weights.data() == nullptr ? nullptr : row_weights.data() + i);
            });
        }
    }

    template <class X, class D>
    static void backward(cpu& device, const cross_entropy_backward<X, D>& a,
                         const cross_entropy_terms<statistic<X, D>>& terms) {
        check(a);
        check(terms, a.logits.extent_of(1));
        if constexpr (in_double<X, D>) {
            fp64::weighted_cross_entropy_rows(device, a, terms);
        } else {
            const auto body = device.select(HALFTONE_EACH_SET(weighted_cross_entropy_backward_rows<X, D>));
            const extent classes = a.logits.extent_of(1), stride = a.logits.stride_of(0), dstride = a.dlogits.stride_of(0);
            const extent step = a.gradient.extent_of(0) == 1 ? 0 : 1;
            const row_partition partition = partition_rows(a.logits.extent_of(0), classes);
            device.parallel_for(partition.count, [&](extent piece) {
                const extent i = partition.begin(piece);
                body(partition.rows_of(piece), classes, a.logits.data() + i * stride, stride, a.targets.data() + i,
                     a.ignore_index, terms, a.maximum.data() + i, a.sum.data() + i, a.gradient.data() + i * step, step,
                     a.count.data() == nullptr ? 1.0f : a.count(0), a.dlogits.data() + i * dstride, dstride);
            });
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
