// SPDX-License-Identifier: MIT
/// \file
/// The end of a language model: logits = x wᵀ, then the cross-entropy against the targets, without ever holding the
/// logits of all rows.
///
/// Rows are taken in chunks whose logits fit into chunk_bytes of workspace. The backward pass computes the logits of a
/// chunk again, turns them in place into their gradients and sends those through two products; that is one product more
/// than keeping them, and for 50,257 classes some hundred times less memory (as Liger-Kernel does it for GPUs).
///
///     kernel::linear_cross_entropy<cpu>::forward<bfloat16, float>(device, x, w, {.targets = …, .losses = …, …});
///
/// Numeric contract: logits are sums in float rounded once to Logit; losses, their mean and logsumexp as cross_entropy.
#pragma once

#include <algorithm>

#include <halftone/exec/simt/simt.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

/// Everything but x and w: as cross_entropy has it. All of (rows) but loss and count, which hold one value.
struct linear_cross_entropy_rows {
    const_view<std::int32_t, 1> targets;
    view<float, 1> losses;
    view<float, 1> logsumexp;
    view<float, 1> loss;
    view<float, 1> count;
    std::int32_t ignore_index = -100;
};

/// A gradient to be produced, or none.
template <class T>
struct gradient_result {
    view<T, 2> to{};
    write_mode mode = write_mode::overwrite;
};

/// A CPU's chunk stays in its cache; a GPU's has rows enough to keep it busy.
template <class Device>
inline constexpr std::size_t logit_chunk_bytes = std::size_t{simt_device<Device> ? 128 : 8} << 20;

template <class Device, std::size_t ChunkBytes = logit_chunk_bytes<Device>>
struct linear_cross_entropy {
    static constexpr std::size_t chunk_bytes = ChunkBytes;

    /// Rows in a chunk: a function of the shape alone.
    template <class Logit>
    static extent chunk_rows(extent rows, extent classes) {
        const auto fitting = static_cast<extent>(chunk_bytes / sizeof(Logit)) / std::max<extent>(classes, 1);
        return std::max<extent>(1, std::min(rows, std::max<extent>(fitting, 64)));
    }

    /// x: (rows, width), w: (classes, width).
    template <class Compute, class Logit, class X, class W>
    static void forward(Device& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                        const linear_cross_entropy_rows& a) {
        const extent rows = x.extent_of(0), classes = w.extent_of(0);
        cross_entropy<Device>::check_targets(device, classes, a.targets, a.ignore_index);
        const workspace::lease scratch(device.scratch(), logit_bytes<Logit>(rows, classes));
        for_chunks<Logit>(rows, classes, [&](extent first, extent count) {
            const view<Logit, 2> logits(scratch.as<Logit>(), {count, classes});
            halftone::detail::product<Compute>(device, rows_of(x, first, count), transpose(w), logits,
                                               write_mode::overwrite);
            cross_entropy<Device>::forward_rows(
                device, cross_entropy_forward<Logit>{.logits = logits,
                                                     .targets = part(a.targets, first, count),
                                                     .losses = part(a.losses, first, count),
                                                     .logsumexp = part(a.logsumexp, first, count),
                                                     .ignore_index = a.ignore_index});
        });
        cross_entropy<Device>::mean(device, a.losses, a.targets, a.loss, a.count, a.ignore_index);
    }

    /// dx and dw out of `gradient`, that of the mean loss (1); `a` as the forward pass left it. Compute is the type
    /// that logits are computed in again, InputGrad and WeightGrad those of the products that give dx and dw.
    template <class Compute, class Logit, class InputGrad, class WeightGrad = InputGrad, class X, class W, class G>
    static void backward(Device& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                         const linear_cross_entropy_rows& a, const const_view<float, 1>& gradient,
                         const gradient_result<X>& dx, const gradient_result<G>& dw) {
        const extent rows = x.extent_of(0), classes = w.extent_of(0);
        const workspace::lease scratch(device.scratch(), logit_bytes<Logit>(rows, classes));
        for_chunks<Logit>(rows, classes, [&](extent first, extent count) {
            const view<Logit, 2> logits(scratch.as<Logit>(), {count, classes});
            const auto x_rows = rows_of(x, first, count);
            halftone::detail::product<Compute>(device, x_rows, transpose(w), logits, write_mode::overwrite);
            cross_entropy<Device>::backward(
                device, cross_entropy_backward<Logit, Logit>{.logits = logits,
                                                             .targets = part(a.targets, first, count),
                                                             .logsumexp = part(a.logsumexp, first, count),
                                                             .gradient = gradient,
                                                             .count = a.count,
                                                             .dlogits = logits,
                                                             .ignore_index = a.ignore_index});
            if (dx.to.data() != nullptr)
                halftone::detail::product<InputGrad>(device, logits, w, rows_of(dx.to, first, count), dx.mode);
            if (dw.to.data() != nullptr)
                halftone::detail::product<WeightGrad>(device, transpose(logits), x_rows, dw.to,
                                                      first == 0 ? dw.mode : write_mode::add);
        });
        if (rows == 0 && dw.to.data() != nullptr) {
            const view<Logit, 2> none(scratch.as<Logit>(), {0, classes});
            halftone::detail::product<WeightGrad>(device, transpose(none), x, dw.to, dw.mode);
        }
    }

  private:
    /// Of a chunk.
    template <class Logit>
    static std::size_t logit_bytes(extent rows, extent classes) {
        return static_cast<std::size_t>(chunk_rows<Logit>(rows, classes) * classes) * sizeof(Logit);
    }
    template <class T>
    static view<T, 2> rows_of(const view<T, 2>& v, extent first, extent count) {
        return {v.data() + first * v.stride_of(0), {count, v.extent_of(1)}, v.strides()};
    }
    template <class T>
    static view<T, 1> part(const view<T, 1>& v, extent first, extent count) {
        return {v.data() + first, {count}};
    }
    template <class Logit, class Body>
    static void for_chunks(extent rows, extent classes, const Body& body) {
        const extent each = chunk_rows<Logit>(rows, classes);
        for (extent first = 0; first < rows; first += each) body(first, std::min(each, rows - first));
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
