// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy in double, one thread a row: what reference.hpp defines; cross_entropy.hpp has the rules,
/// common/fp64/each.hpp the contract.
#pragma once

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/cross_entropy/reference.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

template <class X>
struct cross_entropy_row {
    rows_of<X> logits;
    global_span<const std::int32_t> targets;
    global_span<double> losses, maximum, sum;
    extent classes;
    std::int32_t ignored;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const std::int32_t target = thread.load(targets, row);
        const auto logit = [&](extent j) { return logits.load(thread, row, j); };
        const reference::exponential_sum all = reference::sum_of_exponentials(classes, logit, 1.0);
        double loss = not_a_number;
        if (target == ignored) {
            loss = 0;  // also if it is the number of a class
        } else if (target >= 0 && target < classes) {
            loss = reference::cross_entropy_of(all, logit(target));
        }
        thread.store(losses, row, loss);
        thread.store(maximum, row, all.subtracted);
        thread.store(sum, row, all.sum);
    }
};

template <class X, class D>
struct cross_entropy_backward_row {
    rows_of<X> logits;
    global_span<const std::int32_t> targets;
    global_span<const double> gradient, count;
    rows_of<D> dlogits;
    extent classes, step;
    std::int32_t ignored;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const std::int32_t target = thread.load(targets, row);
        if (target == ignored) {
            for (extent j = 0; j < classes; ++j) dlogits.store(thread, row, j, 0);
            return;
        }
        const auto logit = [&](extent j) { return logits.load(thread, row, j); };
        const reference::exponential_sum all = reference::sum_of_exponentials(classes, logit, 1.0);
        double factor = thread.load(gradient, row * step);
        if (count.is_there()) factor /= thread.load(count, 0);
        if (target < 0 || target >= classes) factor = not_a_number;
        for (extent j = 0; j < classes; ++j)
            dlogits.store(thread, row, j, factor * reference::cross_entropy_slope(all, logit(j), j == target));
    }
};

/// Whether rows count, as terms of a sum.
struct counted_term {
    global_span<const std::int32_t> targets;
    std::int32_t ignored;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double operator()(Thread thread, extent row, extent) const {
        return thread.load(targets, row) == ignored ? 0 : 1;
    }
};
/// Computes the mean from the sums.
struct divided {
    global_span<double> value;
    global_span<const double> divisor;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent) const {
        thread.store(value, 0, thread.load(value, 0) / thread.load(divisor, 0));
    }
};

template <class Device, class X>
void cross_entropy_rows(Device& device, const cross_entropy_forward<X>& a) {
    check(a);
    const extent classes = a.logits.extent_of(1);
    for_each(device, a.logits.extent_of(0), classes,
             cross_entropy_row<const X>{rows_of<const X>(a.logits), simt::span_of(a.targets), simt::span_of(a.losses),
                                        simt::span_of(a.maximum), simt::span_of(a.sum), classes, a.ignore_index});
}

template <class Device>
void mean_loss(Device& device, const const_view<double, 1>& losses, const const_view<std::int32_t, 1>& targets,
               const view<double, 1>& loss, const view<double, 1>& count, std::int32_t ignored) {
    const workspace::lease lease(device.scratch(), sizeof(double));
    double* const counted = count.data() == nullptr ? lease.as<double>() : count.data();
    sum_rows(device, targets.extent_of(0), 1, 1, counted_term{simt::span_of(targets), ignored}, 1.0, counted,
             write_mode::overwrite);
    if (loss.data() == nullptr) return;
    sum_rows(device, losses.extent_of(0), 1, 1,
             element_term<const double>{rows_of<const double>({losses.data(), {losses.extent_of(0), 1}})}, 1.0,
             loss.data(), write_mode::overwrite);
    for_each(device, 1, 1, divided{{loss.data(), 1}, {counted, 1}});
}

template <class Device, class X, class D>
void cross_entropy_rows(Device& device, const cross_entropy_backward<X, D>& a) {
    check(a);
    const extent classes = a.logits.extent_of(1);
    using work = cross_entropy_backward_row<const X, D>;
    for_each(device, a.logits.extent_of(0), classes,
             work{rows_of<const X>(a.logits),
                  simt::span_of(a.targets),
                  simt::span_of(a.gradient),
                  {a.count.data(), 1},
                  rows_of<D>(a.dlogits),
                  classes,
                  a.gradient.extent_of(0) == 1 ? 0 : 1,
                  a.ignore_index});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
