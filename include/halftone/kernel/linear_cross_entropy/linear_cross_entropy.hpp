// SPDX-License-Identifier: MIT
/// \file
/// The end of a language model: logits = x wᵀ, then the cross-entropy against the targets, without ever holding the
/// logits of all rows and classes, unless somebody keeps them.
///
///     using head = kernel::linear_cross_entropy<cpu>;
///     head::forward<bfloat16, float>(device, x, w, {.targets = …, .losses = …, …});
///     head::backward<bfloat16, float, bfloat16>(device, x, w, rows, gradient, {dx}, {dw});
///
/// The backward pass computes a part of the logits again, turns it in place into their gradients and sends those through
/// two products: one product more than keeping the logits, and for 50,257 classes some hundred times less memory (as
/// Liger-Kernel does it for GPUs). A part is a block of classes on the CPU (cpu.hpp), a chunk of rows on a GPU (device.hpp).
/// Both passes may be given memory for all logits: then nothing is computed again, and the results have the same bits
/// (where that memory is aligned for vectors).
///
/// Numeric contract: logits are sums in float rounded once to Logit, and so are their gradients; losses, their mean and
/// what is kept of the rows as cross_entropy. dx is rounded once.
#pragma once

#include <halftone/exec/simt/simt.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Everything but x and w: as cross_entropy has it. All of (rows) but loss and count, which hold one value.
struct linear_cross_entropy_rows {
    const_view<std::int32_t, 1> targets;
    view<float, 1> losses;
    view<float, 1> maximum;
    view<float, 1> sum;
    view<float, 1> loss;
    view<float, 1> count;
    std::int32_t ignore_index = -100;
};

/// A gradient to be produced, or none.
template <class T>
struct gradient_result {
    view<T, 2> to{};
    write_mode mode = write_mode::overwrite;
    square_sum* squares = nullptr;  ///< of the gradient, for a device that can sum them as it stores
};

/// Bytes of logits that are there at a time, about: a CPU's stay in its cache, a GPU's keep it busy.
template <class Device>
inline constexpr std::size_t logit_bytes = std::size_t{simt_device<Device> ? 128 : 8} << 20;

/// x: (rows, width), w: (classes, width).
///
/// forward<Compute, Logit>(device, x, w, rows, kept = nullptr).
/// backward<Compute, Logit, InputGrad, WeightGrad = InputGrad>(device, x, w, rows, gradient, dx, dw, kept = nullptr): dx
/// and dw out of `gradient`, that of the mean loss (1); `rows` as the forward pass left it. Compute is the type that logits
/// are computed in again, InputGrad and WeightGrad those of the products that give dx and dw.
/// kept_logits(rows, classes): how many Logits `kept` points to, where they are to be kept. The forward pass leaves them
/// there, in an order of the device's own; the backward pass overwrites them.
template <class Device, std::size_t LogitBytes = logit_bytes<Device>>
struct linear_cross_entropy;

/// Some rows of a matrix, and some elements of a vector.
template <class T>
view<T, 2> some_rows(const view<T, 2>& v, extent first, extent count) {
    return {v.data() + first * v.stride_of(0), {count, v.extent_of(1)}, v.strides()};
}
template <class T>
view<T, 1> some_of(const view<T, 1>& v, extent first, extent count) {
    return {v.data() + first, {count}};
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
