// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy with label smoothing, class weights and a z-loss in double, one thread per row;
/// weighted_cross_entropy.hpp has the formulas, common/fp64/each.hpp the contract.
#pragma once

#include <halftone/kernel/cross_entropy/fp64.hpp>
#include <halftone/kernel/weighted_cross_entropy/weighted_cross_entropy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

/// The operands that both passes read.
template <class X>
struct weighted_logits {
    rows_of<const X> logits;
    global_span<const std::int32_t> targets;
    global_span<const double> weight, weight_sum;
    extent classes;
    std::int32_t ignored;
    double label_smoothing, z_loss;

    weighted_logits(const const_view<X, 2>& x, const const_view<std::int32_t, 1>& t, std::int32_t ignore_index,
                    const cross_entropy_terms<double>& terms)
        : logits(x),
          targets(simt::span_of(t)),
          weight(simt::span_of(terms.weight)),
          weight_sum{terms.weight_sum.data(), 1},
          classes(x.extent_of(1)),
          ignored(ignore_index),
          label_smoothing(terms.label_smoothing),
          z_loss(terms.z_loss) {}

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double weight_of(Thread thread, extent j) const {
        return weight.is_there() ? thread.load(weight, j) : 1.0;
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD weighted_row<double> row(Thread thread, double w, double log_sum_exp) const {
        const double all = weight.is_there() ? thread.load(weight_sum, 0) : static_cast<double>(classes);
        return weighted_row<double>::of(label_smoothing, z_loss, w, all, classes, log_sum_exp);
    }
};

template <class X>
struct weighted_cross_entropy_row {
    weighted_logits<X> in;
    global_span<double> losses, row_weights;
    global_span<const double> maximum, sum;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const std::int32_t target = thread.load(in.targets, row);
        const bool counts = target != in.ignored && target >= 0 && target < in.classes;
        const double w = counts ? in.weight_of(thread, target) : 0.0;
        if (row_weights.is_there()) thread.store(row_weights, row, w);
        if (!counts) return;  // the loss is already 0 or NaN
        const double largest = thread.load(maximum, row), log_sum = std::log(thread.load(sum, row));
        const weighted_row<double> c = in.row(thread, w, largest + log_sum);
        double loss = c.of_target * thread.load(losses, row) + c.extra;
        if (in.label_smoothing != 0) {
            double below = 0;
            for (extent j = 0; j < in.classes; ++j)
                below += in.weight_of(thread, j) * ((largest - in.logits.load(thread, row, j)) + log_sum);
            loss += c.of_each * below;
        }
        thread.store(losses, row, loss);
    }
};

template <class X, class D>
struct weighted_cross_entropy_backward_row {
    weighted_logits<X> in;
    global_span<const double> maximum, sum, gradient, count;
    rows_of<D> dlogits;
    extent step;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const std::int32_t target = thread.load(in.targets, row);
        if (target == in.ignored) {
            for (extent j = 0; j < in.classes; ++j) dlogits.store(thread, row, j, 0);
            return;
        }
        double factor = thread.load(gradient, row * step);
        if (count.is_there()) factor = over_count(factor, thread.load(count, 0));
        const bool is_class = target >= 0 && target < in.classes;
        if (!is_class) factor = not_a_number;
        const double largest = thread.load(maximum, row), total = thread.load(sum, row);
        const weighted_row<double> c =
            in.row(thread, is_class ? in.weight_of(thread, target) : 0.0, largest + std::log(total));
        for (extent j = 0; j < in.classes; ++j) {
            const double p = std::exp(in.logits.load(thread, row, j) - largest) / total;
            const double hit = j == target ? p - 1 : p;
            double slope = c.of_target * hit + c.of_sum * p;
            if (in.label_smoothing != 0) slope -= c.of_each * in.weight_of(thread, j);
            dlogits.store(thread, row, j, factor * slope);
        }
    }
};

template <class Device, class X>
void weighted_cross_entropy_rows(Device& device, const cross_entropy_forward<X>& a,
                                 const cross_entropy_terms<double>& terms, const view<double, 1>& row_weights) {
    for_each(device, a.logits.extent_of(0), a.logits.extent_of(1),
             weighted_cross_entropy_row<X>{{a.logits, a.targets, a.ignore_index, terms},
                                           simt::span_of(a.losses),
                                           simt::span_of(row_weights),
                                           {a.maximum.data(), a.maximum.size()},
                                           {a.sum.data(), a.sum.size()}});
}

template <class Device, class X, class D>
void weighted_cross_entropy_rows(Device& device, const cross_entropy_backward<X, D>& a,
                                 const cross_entropy_terms<double>& terms) {
    for_each(device, a.logits.extent_of(0), a.logits.extent_of(1),
             weighted_cross_entropy_backward_row<X, D>{{a.logits, a.targets, a.ignore_index, terms},
                                                       simt::span_of(a.maximum),
                                                       simt::span_of(a.sum),
                                                       simt::span_of(a.gradient),
                                                       {a.count.data(), 1},
                                                       rows_of<D>(a.dlogits),
                                                       a.gradient.extent_of(0) == 1 ? 0 : 1});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
