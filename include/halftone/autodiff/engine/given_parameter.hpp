// SPDX-License-Identifier: MIT
/// \file
/// The error message of free operations that take variables only, for calls with a layer's parameter. linear (weight
/// and bias), as_variable and apply also take parameters.
#pragma once

#include <cstddef>
#include <type_traits>

#include <halftone/autodiff/engine/tape.hpp>
#include <halftone/policy/category.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class T>
inline constexpr bool is_parameter = false;
template <class Storage, int Rank>
inline constexpr bool is_parameter<parameter<Storage, Rank>> = true;

/// A context, and operands with a parameter among them.
template <class Context, class... Operands>
concept parameter_given = requires {
    typename policy_of<Context>;
    requires(is_parameter<std::remove_cvref_t<Operands>> || ...);
};

template <class Context>
void refuse_parameter() {
    static_assert(!std::is_same_v<Context, Context>,
                  "halftone: this operation takes variables, and is given a parameter of a layer: ht::as_variable(ctx, "
                  "layer.weight) is one, whose gradient goes where the parameter's does");
}

}  // namespace detail

// clang-format off
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void add(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void sub(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void mul(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void div(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void pow(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void atan2(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void addcmul(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void addcdiv(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void neg(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void abs(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void sqrt(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void rsqrt(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void reciprocal(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void exp(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void expm1(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void log(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void log1p(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void log2(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void log10(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void sinh(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void cosh(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void tan(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void tanh(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void sigmoid(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void silu(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void softplus(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void erf(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void gelu_erf(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void gelu(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void relu(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void leaky_relu(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void prelu(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void map(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void cast(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void reshape(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void matmul(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class Storage, int Rank, class... T>
    requires detail::parameter_given<Context, parameter<Storage, Rank>>
void linear(Context&&, const parameter<Storage, Rank>&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class Storage, int Rank, class... T>
    requires detail::parameter_given<Context, parameter<Storage, Rank>>
void conv2d(Context&&, const parameter<Storage, Rank>&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void cat(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void stack(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void sum(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void mean(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void dot(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void norm(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void softmax(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void log_softmax(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void mean_squared_error(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void l1_loss(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void smooth_l1_loss(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void huber_loss(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void binary_cross_entropy_with_logits(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void binary_cross_entropy(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void cross_entropy(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void amax(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void amin(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void argmax(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void argmin(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void cumsum(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void logsumexp(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void std(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void var(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void gather(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void index_select(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void take_along_dim(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void scatter_add(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void index_add(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void where(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void masked_fill(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void tril(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void triu(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void topk(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void mse_loss(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void glu(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void swiglu(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class As = by_category, class Context, class... T> requires detail::parameter_given<Context, T...>
void geglu(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void permute(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void transpose(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void slice(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void narrow(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void select(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void flip(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void expand(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void squeeze(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void unsqueeze(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void flatten(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void split_with_sizes(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <class Context, class... T> requires detail::parameter_given<Context, T...>
void contiguous(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
template <std::size_t Parts, class Context, class... T> requires detail::parameter_given<Context, T...>
void chunk(Context&&, const T&...) { detail::refuse_parameter<Context>(); }
// clang-format on

}  // namespace HALFTONE_ABI
}  // namespace halftone
