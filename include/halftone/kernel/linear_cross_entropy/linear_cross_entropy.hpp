// SPDX-License-Identifier: MIT
/// \file
/// The head of a language model: logits = x wᵀ, then the cross-entropy with the targets, without ever storing the
/// logits of all rows and classes, unless the caller keeps them.
///
///     using head = kernel::linear_cross_entropy<cpu>;
///     head::forward<bfloat16, float>(device, x, w, {.targets = …, .losses = …, …});
///     head::backward<bfloat16, float, bfloat16>(device, x, w, rows, gradient, {dx}, {dw});
///
/// The backward pass computes a part of the logits again, turns it in place into their gradients, and multiplies those
/// in two products: one product more than with stored logits, and for 50,257 classes about a hundred times less memory
/// (as Liger-Kernel does it on GPUs). A part is a block of classes on the CPU (cpu.hpp), and a chunk of rows on a GPU
/// (device.hpp). The caller may pass memory for all logits to both passes: then nothing is computed again, and results
/// have the same bits (if the memory is aligned for vectors).
///
/// Where w is frozen, a CPU computes nothing again either: forward_frozen sums the weights of all classes but the target's, each
/// times its exponential, beside the sum of these, block by block, as flash attention does with values; backward_frozen has
/// the gradient of x from that, without a product. So a step of such a head has two products in place of three.
///
/// Numeric contract: logits are sums in float rounded once to Logit, and so are their gradients; losses, their mean and
/// the rows' statistics are as in cross_entropy. dx is rounded once.
#pragma once

#include <halftone/exec/simt/simt.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/policy/operations.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// All arguments except x and w, as in cross_entropy. All have extent (rows), except loss and count, (1).
struct linear_cross_entropy_rows {
    const_view<std::int32_t, 1> targets;
    view<float, 1> losses;
    view<float, 1> maximum;
    view<float, 1> sum;
    view<float, 1> loss;
    view<float, 1> count;
    std::int32_t ignore_index = -100;
};

/// A gradient to be computed; without data if it is not wanted.
template <class T>
struct gradient_result {
    view<T, 2> to{};
    write_mode mode = write_mode::overwrite;
    square_sum* squares = nullptr;  ///< of the gradient, written by devices that can sum them as they store
};

/// About how many bytes of logits exist at a time: on a CPU they stay in the cache, on a GPU they keep it busy.
template <class Device>
inline constexpr std::size_t logit_bytes = std::size_t{simt_device<Device> ? 128 : 8} << 20;

/// x: (rows, width), w: (classes, width).
///
/// forward<Compute, Logit>(device, x, w, rows, kept = nullptr). backward<Compute, Logit, InputGrad, WeightGrad =
/// InputGrad>(device, x, w, rows, gradient, dx, dw, kept = nullptr): dx and dw from `gradient`, (1), that of the mean
/// loss; `rows` as the forward pass left it. Compute is the operand type in which logits are recomputed; InputGrad and
/// WeightGrad are those of the products that compute dx and dw. kept_logits(rows, classes): the number of Logits for
/// which `kept` has room, if they are to be kept. The forward pass stores them there, in a layout of the device's own;
/// the backward pass overwrites them.
///
/// On a CPU besides: forward_frozen<Compute, Logit, InputGrad>(device, x, w, rows, weight_sums), weight_sums (rows, width): for each row
/// the sum of exp(logit - maximum) w over all classes but its target, whose operands of type Logit are read as InputGrad;
/// backward_frozen(device, w, rows, gradient, weight_sums, dx).
template <class Device, std::size_t LogitBytes = logit_bytes<Device>>
struct linear_cross_entropy;

/// Some consecutive rows of a matrix, and elements of a vector.
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

/// The types of a head's products under P; 8-bit roles are replaced, since nothing is scaled here.
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

/// The cross-entropy of logits = x wᵀ, of which only a part is in memory at a time. x: (rows, width), w: (classes,
/// width), contiguous; `rows` holds the targets and receives losses and what the gradients need, as in cross_entropy.
/// Products are in the policy's `compute`, logits are rounded to its `output`, everything else is float. Throws as
/// cross_entropy does.
template <class P, class Device, class X, class W>
    requires(detail::kernel_device<Device> && detail::viewables<X, W>)
void linear_cross_entropy(Device& device, const X& x, const W& w, const kernel::linear_cross_entropy_rows& rows) {
    using types = detail::head_types<P>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<W>>());
    static_assert(detail::check_ranks<2, X, W>());
    const const_view<detail::element_in<X>, 2> a = as_view(x);
    const const_view<detail::element_in<W>, 2> b = as_view(w);
    detail::check_head(a, b, rows);
    detail::expect_statistics_apart(device, "linear_cross_entropy", "x", x, rows.losses, rows.maximum, rows.sum);
    detail::expect_statistics_apart(device, "linear_cross_entropy", "w", w, rows.losses, rows.maximum, rows.sum);
    kernel::linear_cross_entropy<Device>::template forward<typename types::compute, typename types::logit>(device, a, b,
                                                                                                           rows);
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void linear_cross_entropy(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: linear_cross_entropy is called without a policy: "
                  "ht::linear_cross_entropy<ht::amp_bf16>(device, x, w, rows)");
}

/// The gradients of the mean loss with respect to x and w, times gradient[0]. dx (rows, width) is overwritten; dw
/// (classes, width) is overwritten or added to by `mode`; either may be without data if it is not wanted. `rows` as the
/// forward pass left it; logits are recomputed, and the products for dx and dw are in the policy's `input_grad` and
/// `weight_grad`. Throws as cross_entropy does.
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
    const char* const name = "linear_cross_entropy backward";
    detail::expect_apart(device, name, "x", x, "dx", dx), detail::expect_apart(device, name, "w", w, "dx", dx);
    detail::expect_apart(device, name, "x", x, "dw", dw), detail::expect_apart(device, name, "w", w, "dw", dw);
    detail::expect_read_apart(device, name, rows.maximum, rows.sum, gradient, rows.count, "dx", dx);
    detail::expect_read_apart(device, name, rows.maximum, rows.sum, gradient, rows.count, "dw", dw);
    detail::expect_apart(device, name, "dx", dx, "dw", dw);
    kernel::linear_cross_entropy<Device>::template backward<typename types::compute, typename types::logit,
                                                            typename types::input_grad, typename types::weight_grad>(
        device, a, b, rows, gradient, kernel::gradient_result<detail::element_in<X>>{as_view(dx)},
        kernel::gradient_result<detail::element_in<Dw>>{as_view(dw), mode});
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void linear_cross_entropy_gradients(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: linear_cross_entropy_gradients is called without a policy: "
                  "ht::linear_cross_entropy_gradients<ht::amp_bf16>(device, x, w, rows, gradient, dx, dw)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
