// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy on the CPU; cross_entropy.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/cross_entropy/fp64.hpp>

#define HALFTONE_BODY <halftone/kernel/cross_entropy/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct cross_entropy<cpu> {
    /// Throws argument_error for the first target that is neither a class nor ignore_index.
    static void check_targets(cpu& device, extent classes, const const_view<std::int32_t, 1>& targets,
                              std::int32_t ignore_index = -100) {
        device.run([&] {
            for (extent i = 0; i < targets.extent_of(0); ++i) {
                const std::int32_t target = targets(i);
                if ((target < 0 || target >= classes) && target != ignore_index) {
                    fail<argument_error>("cross_entropy: the target of row ", i, " is ", target, "; expected 0 to ",
                                         classes - 1, ", or ", ignore_index, " to ignore the row");
                }
            }
        });
    }

    /// Computes losses, maximum and sum of every row. Does not write `loss` and `count`, and does not check targets.
    template <class X>
    static void forward_rows(cpu& device, const cross_entropy_forward<X>& a) {
        check(a);
        const auto body = device.select(HALFTONE_EACH_SET(cross_entropy_rows<X>));
        const extent classes = a.logits.extent_of(1), stride = a.logits.stride_of(0);
        const row_partition partition = partition_rows(a.logits.extent_of(0), classes, longer_piece(a.logits.size()));
        device.parallel_for(partition.count, [&](extent piece) {
            const extent i = partition.begin(piece);
            body(partition.rows_of(piece), classes, a.logits.data() + i * stride, stride, a.targets.data() + i,
                 a.ignore_index, a.losses.data() + i, a.maximum.data() + i, a.sum.data() + i);
        });
    }

    static void mean(cpu& device, const const_view<double, 1>& losses, const const_view<std::int32_t, 1>& targets,
                     const view<double, 1>& loss, const view<double, 1>& count, std::int32_t ignore_index = -100) {
        fp64::mean_loss(device, losses, targets, loss, count, ignore_index);
    }
    /// The mean loss of the rows that count, and their number; either may be without data.
    static void mean(cpu& device, const const_view<float, 1>& losses, const const_view<std::int32_t, 1>& targets,
                     const view<float, 1>& loss, const view<float, 1>& count, std::int32_t ignore_index = -100) {
        device.run([&] {
            extent counted = 0;
            for (extent i = 0; i < targets.extent_of(0); ++i) counted += targets(i) != ignore_index ? 1 : 0;
            if (count.data() != nullptr) count(0) = static_cast<float>(counted);
            if (loss.data() != nullptr)
                loss(0) = static_cast<float>(sum(losses.data(), losses.extent_of(0)) / static_cast<double>(counted));
        });
    }

    template <class X>
        requires in_double<X>
    static void forward_rows(cpu& device, const cross_entropy_forward<X>& a) {
        fp64::cross_entropy_rows(device, a);
    }
    template <class X, class D>
        requires in_double<X, D>
    static void backward(cpu& device, const cross_entropy_backward<X, D>& a) {
        fp64::cross_entropy_rows(device, a);
    }

    template <class X>
    static void forward(cpu& device, const cross_entropy_forward<X>& a) {
        check(a);
        check_targets(device, a.logits.extent_of(1), a.targets, a.ignore_index);
        forward_rows(device, a);
        if (a.loss.data() != nullptr || a.count.data() != nullptr)
            mean(device, a.losses, a.targets, a.loss, a.count, a.ignore_index);
    }

    template <class X, class D>
    static void backward(cpu& device, const cross_entropy_backward<X, D>& a) {
        check(a);
        const auto body = device.select(HALFTONE_EACH_SET(cross_entropy_backward_rows<X, D>));
        const extent classes = a.logits.extent_of(1), stride = a.logits.stride_of(0), dstride = a.dlogits.stride_of(0);
        const extent step = a.gradient.extent_of(0) == 1 ? 0 : 1;
        const bool non_temporal = stores_non_temporal(a.dlogits, a.logits.data());
        const row_partition partition = partition_rows(a.logits.extent_of(0), classes, longer_piece(a.logits.size()));
        device.parallel_for(partition.count, [&](extent piece) {
            const extent i = partition.begin(piece);
            body(partition.rows_of(piece), classes, a.logits.data() + i * stride, stride, a.targets.data() + i,
                 a.ignore_index, a.maximum.data() + i, a.sum.data() + i, a.gradient.data() + i * step, step,
                 a.count.data() == nullptr ? 1.0f : a.count(0),
                 a.dlogits.data() + i * dstride, dstride, non_temporal);
        });
    }

  private:
    /// A pairwise sum down to runs of 64 terms, so that the error hardly grows with their number.
    static double sum(const float* terms, extent count) {
        if (count > 64) {
            const extent half = count / 2;
            return sum(terms, half) + sum(terms + half, count - half);
        }
        double total = 0;
        for (extent i = 0; i < count; ++i) total += static_cast<double>(terms[i]);
        return total;
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
