// SPDX-License-Identifier: MIT
/// \file
/// Linear layers whose products read 8-bit operands, each tensor with a scale (policy/scaling.hpp): ht::linear and
/// ht::mlp under ht::fp8_hybrid.
///
/// Numeric contract: operands as kernel::quantize computes them. 8-bit values are multiplied exactly, with float sums
/// (kernel::matmul): in bfloat16 arithmetic, or in float if bfloat16 does not hold their type. The epilogue multiplies the sums
/// by both inverse scales. x is stored for the backward pass in eight bits. Weights are quantised from their copies at each use,
/// in the backward pass with the forward pass's scale. Gradients of biases are sums of the incoming gradient before it is
/// quantised.
#pragma once

#include <halftone/autodiff/op/linear_epilogue.hpp>
#include <halftone/kernel/column_sum/column_sum.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/quantize/quantize.hpp>
#include <halftone/policy/promotion.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Whether products of these roles read scaled operands.
template <class Roles>
inline constexpr bool is_scaled_product = false;
template <class Roles>
    requires requires { typename Roles::compute; }
inline constexpr bool is_scaled_product<Roles> = eight_bit<typename Roles::compute>;

/// The type in which products multiply operands of A, and 8-bit ones of B, exactly: A, or for 8 bits bfloat16, which holds the
/// library's types; float if that does not hold both.
template <class A>
using exact_compute_of = std::conditional_t<eight_bit<A>, bfloat16, A>;
template <class A, class B = A>
using exact_compute =
    std::conditional_t<(eight_bit<A> && !contains<bfloat16, A>) || (eight_bit<B> && !contains<exact_compute_of<A>, B>),
                       float, exact_compute_of<A>>;

/// A matrix as a product reads it: 8-bit with a pointer to its inverse scale, or unscaled with nullptr.
template <class T>
struct product_matrix {
    view<T, 2> values;
    const float* inverse;
};
template <class T>
product_matrix<T> transpose(const product_matrix<T>& m) {
    return {halftone::transpose(m.values), m.inverse};
}

/// c = epilogue(ab), with the scales of a and b removed.
template <class Compute, class Device, class A, class B, class C, class Epilogue>
void scaled_product(Device& device, const product_matrix<A>& a, const product_matrix<B>& b, const view<C, 2>& c,
                    const Epilogue& e, square_sum* squares = nullptr) {
    check_matmul(a.values, b.values, c);
    run_product<Compute>(device, a.values, b.values, epilogue_of(of_scaled{e, a.inverse, b.inverse}, c), squares);
}
template <class Compute, class Device, class A, class B, class C>
void scaled_product(Device& device, const product_matrix<A>& a, const product_matrix<B>& b, const view<C, 2>& c,
                    write_mode mode, square_sum* squares = nullptr) {
    if (mode == write_mode::overwrite) {
        scaled_product<Compute>(device, a, b, c, plain{}, squares);
    } else {
        scaled_product<Compute>(device, a, b, c, add_product{}, squares);
    }
}

/// A tensor in eight bits and its scale, in the tape's memory.
template <class Q, int Rank>
struct quantized {
    variable<Q, Rank> values;
    variable<tensor_scale, 0> scale;

    product_matrix<const Q> rows() const { return {as_const(as_rows(values)), &scale.view().data()->inverse}; }
};

/// x quantised to eight bits by Roles' scaling; with delayed scaling by the layer's record, which receives its amax if
/// a backward pass will follow.
template <class Q, class Roles, class Root, class X, int Rank, class Weight>
quantized<Q, Rank> quantize(Root& root, const view<X, Rank>& x, const Weight& weight, scaled_tensor tensor,
                            bool records) {
    using device = typename Root::device_type;
    constexpr scaling_rule rule = Roles::scaling::rule;
    quantized<Q, Rank> q{root.template make<Q>(x.shape(), false), root.template make<tensor_scale>(shape<0>{}, false)};
    tensor_scale* const scale = q.scale.view().data();
    if constexpr (rule.history == 0) {
        static_cast<void>(weight), static_cast<void>(tensor), static_cast<void>(records);
        kernel::quantize<device>::current(root.device(), x, q.values.view(), scale, rule);
    } else {
        kernel::quantize<device>::delayed(root.device(), x, q.values.view(), scale,
                                          weight.owner().amaxes().record(weight.entry(), tensor),
                                          records ? kernel::gathering::on : kernel::gathering::off);
    }
    read_scaled(root, x, q.values.view(), scale, weight, tensor, rule);
    return q;
}
/// A weight in eight bits.
template <class Roles, class Root, class Weight>
quantized<typename Roles::compute, 2> quantize_weight(Root& root, const Weight& weight, bool records) {
    return quantize<typename Roles::compute, Roles>(root, values_for<typename Roles::compute>(weight), weight,
                                                    scaled_tensor::weight, records);
}
/// The weight quantised again, with the same scale.
template <class Roles, class Tape, class Weight>
quantized<typename Roles::compute, 2> quantize_again(Tape& tape, const Weight& weight,
                                                     const variable<tensor_scale, 0>& scale) {
    using Q = typename Roles::compute;
    quantized<Q, 2> q{tape.template make<Q>(weight.shape(), false), scale};
    kernel::quantize<typename Tape::device_type>::again(tape.device(), values_for<Q>(weight), q.values.view(),
                                                        scale.view().data());
    return q;
}

/// The incoming gradient as the two backward products read it: in eight bits, or, if the roles have a wider type,
/// unquantised.
template <class Roles, class Y, int Rank>
struct incoming_gradient {
    view<Y, Rank> dy;
    quantized<typename Roles::grad, Rank> q;

    template <class Read>
    auto as() const {
        if constexpr (eight_bit<Read>) {
            return q.rows();
        } else {
            return product_matrix<Y>{as_rows(dy), nullptr};
        }
    }
};
template <class Roles, class Tape, class Y, int Rank, class Weight>
incoming_gradient<Roles, Y, Rank> read_gradient_of(Tape& tape, const view<Y, Rank>& dy, const Weight& weight) {
    incoming_gradient<Roles, Y, Rank> g{dy, {}};
    if constexpr (eight_bit<typename Roles::input_grad> || eight_bit<typename Roles::weight_grad>) {
        g.q = quantize<typename Roles::grad, Roles>(tape, as_const(dy), weight, scaled_tensor::gradient, true);
    }
    return g;
}

/// c = epilogue(g w): the gradient of the other factor of a product with a weight, which is read as the forward pass
/// read it.
template <class Roles, class Tape, class Y, int Rank, class Weight, class C, class End>
void scaled_input_gradient(Tape& tape, const incoming_gradient<Roles, Y, Rank>& g, const Weight& weight,
                           const variable<tensor_scale, 0>& scale, const view<C, 2>& c, const End& end) {
    const auto w = quantize_again<Roles>(tape, weight, scale);
    scaled_product<exact_compute<typename Roles::input_grad, typename Roles::compute>>(
        tape.device(), g.template as<typename Roles::input_grad>(), w.rows(), c, end);
}
/// The gradient of a weight, from the x that the forward pass read.
template <class Roles, class Tape, class Y, int Rank, class Q, class Weight>
void scaled_weight_gradient(Tape& tape, const incoming_gradient<Roles, Y, Rank>& g, const quantized<Q, Rank>& x,
                            const Weight& weight) {
    if (const auto to = tape.gradient_target(weight)) {
        scaled_product<exact_compute<typename Roles::weight_grad, Q>>(
            tape.device(), transpose(g.template as<typename Roles::weight_grad>()), x.rows(),
            view(to.data, weight.shape()), to.mode, to.squares);
    }
}
template <class Tape, class Y, class Bias>
void bias_gradient(Tape& tape, const view<Y, 2>& dy, const Bias& bias) {
    if constexpr (!is_absent<Bias>) {
        if (const auto to = tape.gradient_target(bias)) {
            kernel::column_sum<typename Tape::device_type>::run(tape.device(), as_const(dy),
                                                                view(to.data, bias.shape()), to.mode);
        }
    }
}

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct scaled_linear_record {
    using operation = op::linear;
    quantized<typename Roles::compute, Rank> x;  // empty if the weight is frozen
    variable<tensor_scale, 0> weight_scale;
    gradient_of<X, Rank> dx;
    gradient_of<Y, Rank> dy;
    gradient_of<Y, Rank> dresidual;
    Weight weight;
    Bias bias;
    bool has_residual;

    template <class Tape>
    void propagate(Tape& tape) {
        if (tape.takes_gradient(dx) || !weight.is_frozen()) {
            const auto g = read_gradient_of<Roles>(tape, dy.view(), weight);
            if (const auto to = tape.gradient_target(dx))
                scaled_input_gradient(tape, g, weight, weight_scale, as_rows(view(to.data, dx.shape())), to.mode);
            scaled_weight_gradient(tape, g, x, weight);
        }
        bias_gradient(tape, as_rows(dy), bias);
        if (has_residual) pass_gradient(tape, dy, dresidual);
    }
};

template <class Context>
constexpr void check_once() {
    static_assert(!records_double_backward<Context>,
                  "halftone: linear: products of eight-bit operands are not differentiable twice, since their rounding "
                  "is not; give the layers that a gradient penalty goes through another policy, ht::amp_bf16 for one, "
                  "or record on ht::tape tape{device}");
}

}  // namespace detail

/// linear under roles with an 8-bit `compute`; linear.hpp describes its arguments.
template <class Roles, class Context, class X, int Rank, class Weight, class Bias, class Residual = absent>
    requires detail::called_with_roles<Roles, Residual> && detail::is_scaled_product<Roles>
auto linear(Context&& context, const variable<X, Rank>& x, const Weight& weight, const Bias& bias,
            const Residual& residual = {}) {
    static_assert(detail::check_roles_given<Roles>());
    using namespace detail;
    check_once<Context>();
    using Q = typename Roles::compute;
    using compute = exact_compute<Q>;
    using Y = sum_type<Residual, typename Roles::output>;
    constexpr bool records = std::remove_cvref_t<Context>::records;
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::linear::name);
    const shape<Rank> y_shape = with_last(x.shape(), weight.shape()[0]);
    const bool wanted = wants_gradient(x, weight, bias, residual);
    auto y = root.template make<Y>(y_shape, wanted);
    quantized<Q, Rank> q = quantize<Q, Roles>(root, as_const(x.view()), weight, scaled_tensor::input, records);
    quantized<Q, 2> w = quantize_weight<Roles>(root, weight, records);
    const auto rows = q.rows();
    const auto transposed = transpose(w.rows());
    const auto to = as_rows(y);
    scaled_product<compute>(root.device(), rows, transposed, to, linear_epilogue<Q>(bias, residual));
    if constexpr (records) {
        if (wanted) {
            if (weight.is_frozen()) q = {};
            scaled_linear_record<Roles, X, Y, Rank, Weight, Bias> r{
                std::move(q), w.scale, gradient_of(x), gradient_of(y), {}, weight, bias, !is_absent<Residual>};
            if constexpr (!is_absent<Residual>) r.dresidual = gradient_of(residual);
            root.record(std::move(r));
        }
    }
    return y;
}

namespace detail {

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct scaled_mlp_record {
    using operation = op::mlp;
    using Q = typename Roles::compute;
    quantized<Q, Rank>
        x;  // x and hidden are empty if their weight is frozen, pre if x takes no gradient
    variable<typename Roles::output, Rank> pre;
    quantized<Q, Rank> hidden;
    variable<tensor_scale, 0> up_scale, down_scale;
    gradient_of<X, Rank> dx;
    gradient_of<Y, Rank> dy;
    gradient_of<Y, Rank> dresidual;
    Weight up, down;
    Bias up_bias, down_bias;

    template <class Tape>
    void propagate(Tape& tape) {
        if (!pre.is_empty() || !down.is_frozen()) {
            const auto g = read_gradient_of<Roles>(tape, dy.view(), down);
            scaled_weight_gradient(tape, g, hidden, down);
            hidden = {};
            // dpre overwrites pre: every element is read once, right before it is written.
            if (!pre.is_empty())
                scaled_input_gradient(tape, g, down, down_scale, as_rows(pre), gelu_gradient{as_rows(pre)});
        }
        bias_gradient(tape, as_rows(dy), down_bias);
        if (!pre.is_empty()) {
            if (tape.takes_gradient(dx) || !up.is_frozen()) {
                const auto g = read_gradient_of<Roles>(tape, pre.view(), up);
                if (const auto to = tape.gradient_target(dx))
                    scaled_input_gradient(tape, g, up, up_scale, as_rows(view(to.data, dx.shape())), to.mode);
                scaled_weight_gradient(tape, g, x, up);
            }
            bias_gradient(tape, as_rows(pre), up_bias);
        }
        pass_gradient(tape, dy, dresidual);
    }
};

}  // namespace detail

/// mlp under such roles. The hidden activations are also stored in eight bits.
template <class Roles, class Context, class X, class Y, int Rank, class Weight, class Bias>
    requires detail::is_scaled_product<Roles>
auto mlp(Context&& context, const variable<X, Rank>& x, const Weight& up, const Bias& up_bias, const Weight& down,
         const Bias& down_bias, const variable<Y, Rank>& residual) {
    using namespace detail;
    check_once<Context>();
    using Q = typename Roles::compute;
    using compute = exact_compute<Q>;
    using H = typename Roles::output;
    constexpr bool records = std::remove_cvref_t<Context>::records;
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::mlp::name);
    const bool reaches_pre = wants_gradient(x, up, up_bias);
    const bool wanted = reaches_pre || wants_gradient(down, down_bias, residual);
    const shape<Rank> hidden_shape = with_last(x.shape(), up.shape()[0]);
    auto hidden = root.template make<H>(hidden_shape, false);
    auto y = root.template make<Y>(with_last(x.shape(), down.shape()[0]), wanted);
    quantized<Q, Rank> q = quantize<Q, Roles>(root, as_const(x.view()), up, scaled_tensor::input, records);
    variable<tensor_scale, 0> up_scale;
    variable<H, Rank> pre;
    if constexpr (records) {
        if (reaches_pre) pre = root.template make<H>(hidden_shape, false);
    }
    {
        const quantized<Q, 2> w = quantize_weight<Roles>(root, up, records);
        up_scale = w.scale;
        if (pre.is_empty()) {
            scaled_product<compute>(root.device(), q.rows(), transpose(w.rows()), as_rows(hidden),
                                    bias_gelu{up_bias.values()});
        } else {
            scaled_product<compute>(root.device(), q.rows(), transpose(w.rows()), as_rows(hidden),
                                    bias_gelu_keep{up_bias.values(), as_rows(pre)});
        }
    }
    if (!records || up.is_frozen()) q = {};
    quantized<Q, Rank> h = quantize<Q, Roles>(root, as_const(hidden.view()), down, scaled_tensor::input, records);
    hidden = {};
    quantized<Q, 2> w = quantize_weight<Roles>(root, down, records);
    scaled_product<compute>(root.device(), h.rows(), transpose(w.rows()), as_rows(y),
                            bias_residual{down_bias.values(), as_rows(residual)});
    if constexpr (records) {
        if (wanted) {
            if (down.is_frozen()) h = {};
            root.record(scaled_mlp_record<Roles, X, Y, Rank, Weight, Bias>{
                std::move(q), pre, std::move(h), up_scale, w.scale, gradient_of(x), gradient_of(y),
                gradient_of(residual), up, down, up_bias, down_bias});
        }
    }
    return y;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
