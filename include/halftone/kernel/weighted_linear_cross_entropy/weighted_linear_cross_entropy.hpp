// SPDX-License-Identifier: MIT
/// \file
/// A linear layer with cross-entropy, label smoothing, class weights and a z-loss, on every device, in chunks of rows
/// whose logits fit into LogitBytes. linear_cross_entropy/linear_cross_entropy.hpp has the arguments and the contract,
/// weighted_cross_entropy/weighted_cross_entropy.hpp the terms. On a CPU it is slower than linear_cross_entropy, which
/// computes blocks of classes that stay in the cache.
#pragma once

#include <halftone/kernel/linear_cross_entropy/device/by_rows.hpp>
#include <halftone/kernel/weighted_cross_entropy/weighted_cross_entropy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// forward<Compute, Logit>(device, x, w, rows, terms, row_weights): computes losses, maximum and sum of all rows;
/// `loss` and `count` of `rows` are not used; row_weights as for weighted_cross_entropy. backward<Compute, Logit,
/// InputGrad, WeightGrad>(device, x, w, rows, terms, gradient, dx, dw): `gradient` is that of the loss (1) or of the
/// losses of the rows (rows); it is divided by `count`, if that has data.
template <class Device, std::size_t LogitBytes = logit_bytes<Device>>
struct weighted_linear_cross_entropy : private linear_cross_entropy_by_rows<Device, LogitBytes> {
    template <class Compute, class Logit, class X, class W>
    static void forward(Device& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                        const linear_cross_entropy_rows& a, const cross_entropy_terms<float>& terms,
                        const view<float, 1>& row_weights) {
        const extent rows = x.extent_of(0), classes = w.extent_of(0);
        cross_entropy<Device>::check_targets(device, classes, a.targets, a.ignore_index);
        const workspace::lease scratch(device.scratch(), base::template chunk_bytes<Logit>(rows, classes));
        base::template for_chunks<Logit>(rows, classes, [&](extent first, extent count) {
            const view<Logit, 2> logits(scratch.as<Logit>(), {count, classes});
            halftone::detail::product<Compute>(device, some_rows(x, first, count), transpose(w), logits,
                                               write_mode::overwrite);
            weighted_cross_entropy<Device>::forward_rows(
                device,
                cross_entropy_forward<Logit>{.logits = logits,
                                             .targets = some_of(a.targets, first, count),
                                             .losses = some_of(a.losses, first, count),
                                             .maximum = some_of(a.maximum, first, count),
                                             .sum = some_of(a.sum, first, count),
                                             .ignore_index = a.ignore_index},
                terms, row_weights.data() == nullptr ? view<float, 1>{} : some_of(row_weights, first, count));
        });
    }

    template <class Compute, class Logit, class InputGrad, class WeightGrad = InputGrad, class X, class W, class G>
    static void backward(Device& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                         const linear_cross_entropy_rows& a, const cross_entropy_terms<float>& terms,
                         const const_view<float, 1>& gradient, const gradient_result<X>& dx, const gradient_result<G>& dw) {
        const extent rows = x.extent_of(0), classes = w.extent_of(0);
        const workspace::lease scratch(device.scratch(), base::template chunk_bytes<Logit>(rows, classes));
        base::template for_chunks<Logit>(rows, classes, [&](extent first, extent count) {
            const view<Logit, 2> logits(scratch.as<Logit>(), {count, classes});
            const auto x_rows = some_rows(x, first, count);
            halftone::detail::product<Compute>(device, x_rows, transpose(w), logits, write_mode::overwrite);
            weighted_cross_entropy<Device>::backward(
                device,
                cross_entropy_backward<Logit, Logit>{
                    .logits = logits,
                    .targets = some_of(a.targets, first, count),
                    .maximum = some_of(a.maximum, first, count),
                    .sum = some_of(a.sum, first, count),
                    .gradient = gradient.extent_of(0) == 1 ? gradient : some_of(gradient, first, count),
                    .count = a.count,
                    .dlogits = logits,
                    .ignore_index = a.ignore_index},
                terms);
            if (dx.to.data() != nullptr)
                halftone::detail::product<InputGrad>(device, logits, w, some_rows(dx.to, first, count), dx.mode);
            if (dw.to.data() != nullptr)
                halftone::detail::product<WeightGrad>(device, transpose(logits), x_rows, dw.to,
                                                      first == 0 ? dw.mode : write_mode::add);
        });
        if (rows == 0 && dw.to.data() != nullptr && dw.mode == write_mode::overwrite)
            device.fill(dw.to.data(), dw.to.size(), G(0.0f));
    }

  private:
    using base = linear_cross_entropy_by_rows<Device, LogitBytes>;
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
