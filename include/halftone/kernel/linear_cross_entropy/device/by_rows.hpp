// SPDX-License-Identifier: MIT
/// \file
/// A linear layer with cross-entropy by chunks of rows whose logits fit into LogitBytes, composed of a device's
/// products and its cross-entropy; used on GPUs. linear_cross_entropy.hpp has the arguments, the contract and an
/// example.
#pragma once

#include <algorithm>

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/linear_cross_entropy/linear_cross_entropy.hpp>
#include <halftone/kernel/matmul/matmul.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class Device, std::size_t LogitBytes>
struct linear_cross_entropy_by_rows {
    /// The number of rows in a chunk: a function of the shape alone.
    template <class Logit>
    static extent chunk_rows(extent rows, extent classes) {
        const auto fitting = static_cast<extent>(LogitBytes / sizeof(Logit)) / std::max<extent>(classes, 1);
        return std::max<extent>(1, std::min(rows, std::max<extent>(fitting, 64)));
    }

    static constexpr extent kept_logits(extent rows, extent classes) { return rows * classes; }

    template <class Compute, class Logit, class X, class W>
    static void forward(Device& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                        const linear_cross_entropy_rows& a, Logit* kept = nullptr) {
        const extent rows = x.extent_of(0), classes = w.extent_of(0);
        cross_entropy<Device>::check_targets(device, classes, a.targets, a.ignore_index);
        const workspace::lease scratch(device.scratch(), kept == nullptr ? chunk_bytes<Logit>(rows, classes) : 0);
        for_chunks<Logit>(rows, classes, [&](extent first, extent count) {
            const view<Logit, 2> logits(kept == nullptr ? scratch.as<Logit>() : kept + first * classes,
                                        {count, classes});
            halftone::detail::product<Compute>(device, some_rows(x, first, count), transpose(w), logits,
                                               write_mode::overwrite);
            cross_entropy<Device>::forward_rows(
                device, cross_entropy_forward<Logit>{.logits = logits,
                                                     .targets = some_of(a.targets, first, count),
                                                     .losses = some_of(a.losses, first, count),
                                                     .maximum = some_of(a.maximum, first, count),
                                                     .sum = some_of(a.sum, first, count),
                                                     .ignore_index = a.ignore_index});
        });
        cross_entropy<Device>::mean(device, a.losses, a.targets, a.loss, a.count, a.ignore_index);
    }

    template <class Compute, class Logit, class InputGrad, class WeightGrad = InputGrad, class X, class W, class G>
    static void backward(Device& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                         const linear_cross_entropy_rows& a, const const_view<float, 1>& gradient,
                         const gradient_result<X>& dx, const gradient_result<G>& dw, Logit* kept = nullptr) {
        const extent rows = x.extent_of(0), classes = w.extent_of(0);
        const workspace::lease scratch(device.scratch(), kept == nullptr ? chunk_bytes<Logit>(rows, classes) : 0);
        for_chunks<Logit>(rows, classes, [&](extent first, extent count) {
            const view<Logit, 2> logits(kept == nullptr ? scratch.as<Logit>() : kept + first * classes,
                                        {count, classes});
            const auto x_rows = some_rows(x, first, count);
            if (kept == nullptr)
                halftone::detail::product<Compute>(device, x_rows, transpose(w), logits, write_mode::overwrite);
            cross_entropy<Device>::backward(
                device, cross_entropy_backward<Logit, Logit>{.logits = logits,
                                                             .targets = some_of(a.targets, first, count),
                                                             .maximum = some_of(a.maximum, first, count),
                                                             .sum = some_of(a.sum, first, count),
                                                             .gradient = gradient,
                                                             .count = a.count,
                                                             .dlogits = logits,
                                                             .ignore_index = a.ignore_index});
            if (dx.to.data() != nullptr)
                halftone::detail::product<InputGrad>(device, logits, w, some_rows(dx.to, first, count), dx.mode);
            if (dw.to.data() != nullptr)
                halftone::detail::product<WeightGrad>(device, transpose(logits), x_rows, dw.to,
                                                      first == 0 ? dw.mode : write_mode::add);
        });
        if (rows == 0 && dw.to.data() != nullptr) {
            const view<Logit, 2> none(scratch.as<Logit>(), {0, classes});
            halftone::detail::product<WeightGrad>(device, transpose(none), x, dw.to, dw.mode);
        }
    }

  protected:
    template <class Logit>
    static std::size_t chunk_bytes(extent rows, extent classes) {
        return static_cast<std::size_t>(chunk_rows<Logit>(rows, classes) * classes) * sizeof(Logit);
    }
    template <class Logit, class Body>
    static void for_chunks(extent rows, extent classes, const Body& body) {
        const extent each = chunk_rows<Logit>(rows, classes);
        for (extent first = 0; first < rows; first += each) body(first, std::min(each, rows - first));
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
