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
#include <halftone/policy/operations.hpp>

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

namespace detail {

/// The types of a head's products under P, eight bits left out since nothing here is scaled.
template <class P>
struct head_types {
    using roles = resolve<P>;
    using operation = op::linear_cross_entropy;
    using compute = unscaled_compute<roles>;
    using logit = typename roles::output;
    using input_grad = scaled_role<roles, input_grad_type<roles, operation>, false>;
    using weight_grad = scaled_role<roles, weight_grad_type<roles, operation>, false>;
    static_assert(sizeof(logit) > 1,
                  "halftone: linear_cross_entropy: logits in eight bits (role `output`) have no loss worth "
                  "the name: ht::with_output<P, ht::bfloat16>");
};

template <class X, class W>
void check_head(const const_view<X, 2>& x, const const_view<W, 2>& w, const kernel::linear_cross_entropy_rows& rows) {
    const extent count = x.extent_of(0);
    kernel::expect("linear_cross_entropy", "x", x, x.shape());
    kernel::expect("linear_cross_entropy", "w", w, {w.extent_of(0), x.extent_of(1)});
    kernel::expect("linear_cross_entropy", "targets", rows.targets, {count});
    kernel::expect("linear_cross_entropy", "losses", rows.losses, {count});
    kernel::expect("linear_cross_entropy", "maximum", rows.maximum, {count});
    kernel::expect("linear_cross_entropy", "sum", rows.sum, {count});
}

}  // namespace detail

/// The cross-entropy of logits = x wᵀ, of which only a part is in memory at a time. x: (rows, width), w: (classes, width),
/// contiguous; `rows` holds the targets and takes losses and what the gradients need, as cross_entropy has them. Products are
/// in the policy's `compute`, logits are rounded to its `output`, all else is in float. Throws as cross_entropy does.
template <class P, class Device, class X, class W>
    requires(detail::kernel_device<Device> && detail::viewables<X, W>)
void linear_cross_entropy(Device& device, const X& x, const W& w, const kernel::linear_cross_entropy_rows& rows) {
    using types = detail::head_types<P>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<W>>());
    static_assert(detail::check_ranks<2, X, W>());
    const const_view<detail::element_in<X>, 2> a = as_view(x);
    const const_view<detail::element_in<W>, 2> b = as_view(w);
    detail::check_head(a, b, rows);
    kernel::linear_cross_entropy<Device>::template forward<typename types::compute, typename types::logit>(device, a, b,
                                                                                                           rows);
}
/// Says what is missing, where a compiler would say that no function matches.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void linear_cross_entropy(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: linear_cross_entropy is called without a policy: "
                  "ht::linear_cross_entropy<ht::amp_bf16>(device, x, w, rows)");
}

/// The gradients of the mean loss by x and w, times gradient[0]: dx (rows, width) is overwritten, dw (classes, width) too, or
/// added to by `mode`; one of them perhaps without data where it is not wanted. `rows` as the forward pass left it; logits
/// are computed again, and the products for dx and dw are in the policy's `input_grad` and `weight_grad`. Throws as
/// cross_entropy does.
template <class P, class Device, class X, class W, class Dx, class Dw>
    requires(detail::kernel_device<Device> && detail::viewables<X, W, Dx, Dw>)
void linear_cross_entropy_gradients(Device& device, const X& x, const W& w,
                                    const kernel::linear_cross_entropy_rows& rows, const const_view<float, 1>& gradient,
                                    const Dx& dx, const Dw& dw, write_mode mode = write_mode::overwrite) {
    using types = detail::head_types<P>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<W>>());
    static_assert(detail::check_ranks<2, X, W, Dx, Dw>());
    const const_view<detail::element_in<X>, 2> a = as_view(x);
    const const_view<detail::element_in<W>, 2> b = as_view(w);
    detail::check_head(a, b, rows);
    kernel::expect("linear_cross_entropy", "gradient", gradient, {1});
    kernel::expect_optional("linear_cross_entropy", "dx", as_view(dx), a.shape());
    kernel::expect_optional("linear_cross_entropy", "dw", as_view(dw), b.shape());
    kernel::linear_cross_entropy<Device>::template backward<typename types::compute, typename types::logit,
                                                            typename types::input_grad, typename types::weight_grad>(
        device, a, b, rows, gradient, kernel::gradient_result<detail::element_in<X>>{as_view(dx)},
        kernel::gradient_result<detail::element_in<Dw>>{as_view(dw), mode});
}
/// Says what is missing, where a compiler would say that no function matches.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void linear_cross_entropy_gradients(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: linear_cross_entropy_gradients is called without a policy: "
                  "ht::linear_cross_entropy_gradients<ht::amp_bf16>(device, x, w, rows, gradient, dx, dw)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
