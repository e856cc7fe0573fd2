// SPDX-License-Identifier: MIT
/// \file
/// The rule (engine/rule.hpp) of cross-entropy with options. The gradient of a row with respect to its logits is (p (r
/// + 2 z v logsumexp) - q) g, where q is the row's smoothed and weighted target, r the sum of q, and v the weight of
/// the target's class.
#pragma once

#include <halftone/autodiff/double_backward/rules.hpp>
#include <halftone/autodiff/op/cross_entropy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class X, int Rank, int LossRank>
struct rule<weighted_cross_entropy_record<X, Rank, LossRank>> {
    using record = weighted_cross_entropy_record<X, Rank, LossRank>;

    template <class Tape>
    static void run(Tape& tape, const record& r, const variable<float, LossRank>& dy) {
        if (!tape.takes(r.dlogits())) return;
        auto& root = tape.inner();
        const extent classes = r.dlogits().shape()[Rank - 1], rows = rows_of(r.dlogits().shape());
        // g divided by the divisor: one value for all rows, or the value of its row in all columns.
        const auto targets = smoothed(tape, r, rows, classes, r.terms.view());
        const auto share = row_totals(root, targets, rows);
        // Ignored rows have gradient 0, whatever their logits are; multiplying by 0 would keep a NaN. The same holds
        // for rows whose class has weight 0 if there is no smoothing.
        const auto counted = compute<float>(
            root, [](auto x, auto of_row) { return halftone::where(of_row == 0.0f, 0.0f, x); }, flat(r.logits), share);
        const auto of_rows = reshaped(counted, shape<2>{rows, classes});
        const auto region = autocast<full_fp32>(root);
        const auto p = flat(softmax(region, of_rows));
        const auto g = [&] {
            if constexpr (LossRank == 0) {
                return dy;
            } else {
                return in_columns(root, flat(dy), classes);
            }
        }();
        if (r.terms.z_loss == 0.0f) {
            const auto f = [](auto q, auto of_row, auto target, auto d) { return (q * of_row - target) * d; };
            return tape.give(r.dlogits(), compute<X>(root, f, p, share, targets, g));
        }
        // v, the weights of the rows' targets: the sums of q without smoothing.
        kernel::cross_entropy_terms<float> plain = r.terms.view();
        plain.label_smoothing = 0;
        const auto weights = row_totals(root, smoothed(tape, r, rows, classes, plain), rows);
        const auto log_p = flat(log_softmax(region, of_rows));
        const auto f = [z = 2 * r.terms.z_loss](auto q, auto of_row, auto target, auto d, auto x, auto l, auto w) {
            return (q * (of_row + z * w * (x - l)) - target) * d;
        };
        tape.give(r.dlogits(), compute<X>(root, f, p, share, targets, g, counted, log_p, weights));
    }

  private:
    /// q divided by the divisor: the kernel's gradient with p = 0 and g = -1. It is a constant.
    template <class Tape>
    static variable<float, 1> smoothed(Tape& tape, const record& r, extent rows, extent classes,
                                       kernel::cross_entropy_terms<float> terms) {
        auto& root = tape.inner();
        const auto marks = filled(root, rows * classes, 0), nowhere = filled(root, rows, 3.0e38f),
                   one = filled(root, rows, 1), minus_one = filled(root, 1, -1);
        const view<float, 2> as_matrix(marks.view().data(), {rows, classes});
        terms.z_loss = 0;
        kernel::cross_entropy_backward<float, float> a{.logits = as_matrix,
                                                       .targets = r.targets.view(),
                                                       .maximum = nowhere.view(),
                                                       .sum = one.view(),
                                                       .gradient = minus_one.view(),
                                                       .dlogits = as_matrix,
                                                       .ignore_index = r.terms.ignore_index};
        if (!r.count.is_empty()) a.count = r.count.view();
        kernel::weighted_cross_entropy<typename Tape::device_type>::backward(root.device(), a, terms);
        return marks;
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
