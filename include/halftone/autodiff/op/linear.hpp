// SPDX-License-Identifier: MIT
/// \file
/// y = x wᵀ + bias, optionally plus a residual; and the perceptron y = w₂ gelu(w₁ x + b₁) + b₂ + residual,
/// whose activation is computed in the first product's epilogue, and its gradient in that of the second product's
/// backward product.
///
///     auto y = ht::linear<roles>(ctx, x, weight, bias);              // x: (…, in), weight: (out, in), y: (…, out)
///     auto y = ht::linear<roles>(ctx, x, weight, bias, residual);    // in the residual's type
///
/// Numeric contract: products as in kernel::matmul; the forward product in the roles' `compute`, backward products in
/// their `input_grad` and `weight_grad` (by default the wider of `compute` and `grad`), with the weights as the forward
/// pass read them. Gradients of parameters are float sums, rounded once to `accumulate` where they are added to the
/// accumulator. 8-bit `compute`: scaled_linear.hpp.
#pragma once

#include <halftone/autodiff/op/linear_epilogue.hpp>
#include <halftone/autodiff/op/scaled_linear.hpp>
#include <halftone/kernel/column_sum/column_sum.hpp>
#include <halftone/kernel/matmul/matmul.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// c = epilogue(ab).
template <class Compute, class Device, class A, class B, class C, class Epilogue>
void product_with_epilogue(Device& device, const view<A, 2>& a, const view<B, 2>& b, const view<C, 2>& c,
                           const Epilogue& e) {
    check_matmul(a, b, c);
    kernel::matmul<Device>::template run<Compute>(device, a, b, epilogue_of(e, c));
}

template <class Compute, class Device, class A, class Format, class C, class Epilogue>
void product_with_epilogue(Device& device, const view<A, 2>& a, const coded_matrix<Format>& b, const view<C, 2>& c,
                           const Epilogue& e) {
    check_matmul(a, b, c);
    run_product<Compute>(device, a, b, epilogue_of(e, c), nullptr);
}

/// The gradients of weight and bias, from dy (rows, out) and x (…, in); x is not needed if the weight is frozen.
template <class Compute, class Tape, class Dy, class X, int Rank, class Weight, class Bias>
void linear_parameter_gradients(Tape& tape, const view<Dy, 2>& dy, const variable<X, Rank>& x, const Weight& weight,
                                const Bias& bias) {
    if (const auto to = tape.gradient_target(weight)) {
        product<Compute>(tape.device(), transpose(dy), as_rows(x), view(to.data, weight.shape()), to.mode, to.squares);
    }
    if constexpr (!is_absent<Bias>) {
        if (const auto to = tape.gradient_target(bias)) {
            kernel::column_sum<typename Tape::device_type>::run(tape.device(), as_const(dy),
                                                                view(to.data, bias.shape()), to.mode);
        }
    }
}

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct linear_record {
    using operation = op::linear;
    variable<X, Rank> x;  // empty if the weight is frozen
    gradient_of<X, Rank> dx;
    gradient_of<Y, Rank> dy;
    gradient_of<Y, Rank> dresidual;
    Weight weight;
    Bias bias;
    bool has_residual;

    template <class Tape>
    void propagate(Tape& tape) {
        const auto g = as_rows(dy);
        tape.template note_gradients_as<typename Roles::input_grad>();
        tape.template note_gradients_as<typename Roles::weight_grad>();
        if (const auto to = tape.gradient_target(dx)) {
            product<typename Roles::input_grad>(tape.device(), g, values_for<typename Roles::compute>(weight),
                                                as_rows(view(to.data, dx.shape())), to.mode);
        }
        linear_parameter_gradients<typename Roles::weight_grad>(tape, g, x, weight, bias);
        if (has_residual) pass_gradient(tape, dy, dresidual);
    }
};

}  // namespace detail

/// y = x weightᵀ + bias + residual. x: (…, in), weight: (out, in), bias: (out) or `absent`, residual and y: (…, out),
/// of one type; without a residual y has the type of the role `output`. Throws shape_error.
template <class Roles, class Context, class X, int Rank, class Weight, class Bias, class Residual = absent>
    requires detail::called_with_roles<Roles, Residual>
auto linear(Context&& context, const variable<X, Rank>& x, const Weight& weight, const Bias& bias,
            const Residual& residual = {}) {
    static_assert(detail::check_roles_given<Roles>());
    using compute = typename Roles::compute;
    using Y = detail::sum_type<Residual, typename Roles::output>;
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::linear::name);
    const shape<Rank> y_shape = detail::with_last(x.shape(), weight.shape()[0]);
    const bool wanted = detail::wants_gradient(x, weight, bias, residual);
    auto y = root.template make<Y>(y_shape, wanted);
    const auto w = transpose(detail::values_for<compute>(weight));
    const auto rows = as_rows(x);
    const auto to = as_rows(y);
    detail::product_with_epilogue<compute>(root.device(), rows, w, to,
                                           detail::linear_epilogue<compute>(bias, residual));
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            detail::linear_record<Roles, X, Y, Rank, Weight, Bias> r{weight.is_frozen() ? variable<X, Rank>{} : x,
                                                                     gradient_of(x),
                                                                     gradient_of(y),
                                                                     {},
                                                                     weight,
                                                                     bias,
                                                                     !is_absent<Residual>};
            if constexpr (!is_absent<Residual>) r.dresidual = gradient_of(residual);
            root.record(std::move(r));
        }
    }
    return y;
}

namespace detail {

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct mlp_record {
    using operation = op::mlp;
    using input_grad = typename Roles::input_grad;
    using weight_grad = typename Roles::weight_grad;
    using H = storage_of<typename Roles::compute>;
    variable<X, Rank> x;  // x and hidden are empty if their weight is frozen, pre if x takes no gradient
    variable<typename Roles::output, Rank> pre;
    variable<H, Rank> hidden;
    gradient_of<X, Rank> dx;
    gradient_of<Y, Rank> dy;
    gradient_of<Y, Rank> dresidual;
    Weight up, down;
    Bias up_bias, down_bias;
    bool has_residual;

    template <class Tape>
    void propagate(Tape& tape) {
        const auto g = as_rows(dy);
        tape.template note_gradients_as<input_grad>();
        tape.template note_gradients_as<weight_grad>();
        linear_parameter_gradients<weight_grad>(tape, g, hidden, down, down_bias);
        hidden = {};
        if (!pre.is_empty()) {
            // dpre overwrites pre: every element is read once, right before it is written.
            const auto dpre = as_rows(pre);
            product_with_epilogue<input_grad>(tape.device(), g, values_for<typename Roles::compute>(down), dpre,
                                              gelu_gradient{dpre});
            if (const auto to = tape.gradient_target(dx)) {
                product<input_grad>(tape.device(), dpre, values_for<typename Roles::compute>(up),
                                    as_rows(view(to.data, dx.shape())), to.mode);
            }
            linear_parameter_gradients<weight_grad>(tape, dpre, x, up, up_bias);
        }
        if (has_residual) pass_gradient(tape, dy, dresidual);
    }
};

/// Whether mlp() works without a residual, too: not if it is composed of other operations.
template <class Roles, class Context>
concept whole_mlp = !records_double_backward<Context> && !is_scaled_product<Roles>;

}  // namespace detail

/// y = gelu(x upᵀ + up_bias) downᵀ + down_bias + residual, with GPT-2's gelu. x, residual and y: (…, width), up:
/// (hidden, width), down: (width, hidden). The hidden activations are kept in the storage type of `compute`, their
/// inputs in `output`; y has the residual's type, or without a residual the type of the role `output`. Throws
/// shape_error.
template <class Roles, class Context, class X, int Rank, class Weight, class Bias, class Residual>
    requires(!is_absent<Residual> || detail::whole_mlp<Roles, Context>)
auto mlp(Context&& context, const variable<X, Rank>& x, const Weight& up, const Bias& up_bias, const Weight& down,
         const Bias& down_bias, const Residual& residual) {
    using compute = typename Roles::compute;
    using Y = detail::sum_type<Residual, typename Roles::output>;
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::mlp::name);
    const bool reaches_pre = detail::wants_gradient(x, up, up_bias);
    const bool wanted = reaches_pre || detail::wants_gradient(down, down_bias, residual);
    const shape<Rank> hidden_shape = detail::with_last(x.shape(), up.shape()[0]);
    auto hidden = root.template make<storage_of<compute>>(hidden_shape, false);
    auto y = root.template make<Y>(detail::with_last(x.shape(), down.shape()[0]), wanted);
    const auto rows = as_rows(x);
    const auto h = as_rows(hidden);
    const auto up_values = transpose(detail::values_for<compute>(up)),
               down_values = transpose(detail::values_for<compute>(down));
    variable<typename Roles::output, Rank> pre;
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (reaches_pre) pre = root.template make<typename Roles::output>(hidden_shape, false);
    }
    if (pre.is_empty()) {
        detail::product_with_epilogue<compute>(root.device(), rows, up_values, h,
                                               bias_gelu{detail::values_for<compute>(up_bias)});
    } else {
        detail::product_with_epilogue<compute>(root.device(), rows, up_values, h,
                                               bias_gelu_keep{detail::values_for<compute>(up_bias), as_rows(pre)});
    }
    detail::product_with_epilogue<compute>(root.device(), as_const(h), down_values, as_rows(y),
                                           detail::linear_epilogue<compute>(down_bias, residual));
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            detail::mlp_record<Roles, X, Y, Rank, Weight, Bias> r{
                up.is_frozen() ? variable<X, Rank>{} : x,
                pre,
                down.is_frozen() ? variable<storage_of<compute>, Rank>{} : hidden,
                gradient_of(x),
                gradient_of(y),
                {},
                up,
                down,
                up_bias,
                down_bias,
                !is_absent<Residual>};
            if constexpr (!is_absent<Residual>) r.dresidual = gradient_of(residual);
            root.record(std::move(r));
        }
    }
    return y;
}
template <class Roles, class Context, class X, class Y, int Rank, class Weight, class Bias>
    requires(detail::records_double_backward<Context> && !detail::is_scaled_product<Roles>)
variable<Y, Rank> mlp(Context&& context, const variable<X, Rank>& x, const Weight& up, const Bias& up_bias,
                      const Weight& down, const Bias& down_bias, const variable<Y, Rank>& residual) {
    return detail::composition<op::mlp, Roles>::run(context.root(), x, up, up_bias, down, down_bias, residual);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
