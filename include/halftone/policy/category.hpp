// SPDX-License-Identifier: MIT
/// \file
/// Autocast categories: which operations compute in low precision, which in fp32, and in what type a free operation
/// (one that is no layer's) gives its result under autocast.
///
/// The rules are PyTorch's (aten/src/ATen/autocast_mode.h). PyTorch's lists for CUDA hold on every device here, so that
/// a program computes in the same types on each; a policy can take the lists for CPUs (with_cpu_lists). fp64 is exempt: an
/// operation with a double among its inputs computes in double and gives double.
///
///     using ht::op::matmul, ht::op::softmax, ht::op::add;
///     static_assert(std::is_same_v<ht::free_output<ht::amp_bf16, matmul, float, float>, ht::bfloat16>);
///     static_assert(std::is_same_v<ht::free_output<ht::amp_bf16, softmax, ht::bfloat16>, float>);
///     static_assert(std::is_same_v<ht::free_output<ht::as_given, softmax, ht::bfloat16>, ht::bfloat16>);
///
/// An operation of your own is a tag type that states its category:
///
///     struct my_norm { static constexpr const char* name = "my_norm";
///                      static constexpr ht::category cast_rule = ht::category::fp32; };
///
/// To change the category of one of halftone's operations, under both lists, specialise operation_category before its first use.
#pragma once

#include <halftone/config.hpp>
#include <halftone/policy/presets.hpp>
#include <halftone/policy/promotion.hpp>
#include <halftone/policy/recipe.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What autocast does with an operation.
enum class category {
    low_precision,  ///< computes and gives its result in the policy's `compute`: products
    low_to_fp32,    ///< multiplies in `compute`; its result, a loss, is fp32
    fp32,           ///< computes and gives its result in fp32: what sums, divides or exponentiates
    promote,        ///< converts all its inputs to the widest type among them and `compute`
    as_input,       ///< computes in its input's type; several inputs promote as in plain arithmetic
    stated,         ///< computes and gives its result in the type named as `cast_inputs`
    banned,         ///< overflows in low precision: an error under autocast
};

namespace detail {

template <class Op>
concept states_cast_inputs = requires {
    typename Op::cast_inputs;
};
template <class Op>
concept states_cast_rule = requires {
    Op::cast_rule;
};
template <class Op>
concept states_rule = states_cast_inputs<Op> || states_cast_rule<Op>;
template <class Op>
concept knows_cast_rule = requires {
    typename std::integral_constant<category, Op::cast_rule>;
};

template <class Op>
constexpr category stated_category() {
    static_assert(!(states_cast_inputs<Op> && states_cast_rule<Op>),
                  "halftone: this operation states both `cast_inputs`, a type, and `cast_rule`, a category: leave out "
                  "one of them");
    if constexpr (states_cast_inputs<Op>) {
        static_assert(number<typename Op::cast_inputs>,
                      "halftone: the `cast_inputs` of this operation is not a number type: using cast_inputs = float; a "
                      "policy says what is computed in low precision by static constexpr ht::category cast_rule = "
                      "ht::category::low_precision");
        return category::stated;
    } else if constexpr (states_cast_rule<Op>) {
        static_assert(knows_cast_rule<Op>,
                      "halftone: the `cast_rule` of this operation is not a category that is known at compile time: "
                      "static constexpr ht::category cast_rule = ht::category::fp32");
        if constexpr (knows_cast_rule<Op>) return Op::cast_rule;
        return category::as_input;
    } else {
        return category::as_input;
    }
}

}  // namespace detail

/// The category of an operation, given as its tag type: the tag's `cast_rule`; `stated` if the tag names a type as
/// `cast_inputs` (the counterpart of torch.amp.custom_fwd); as_input if it states neither. You may specialise it.
template <class Op>
struct operation_category {
    static constexpr category value = detail::stated_category<Op>();
};

/// Whether an operation scales its 8-bit operands, as its tag says with `static constexpr bool scales_operands = true`.
/// An operation that does not computes in the policy's `output` type where `compute` has eight bits: without a scale
/// most values would overflow or underflow the format.
template <class Op>
inline constexpr bool scales_operands = false;
template <class Op>
    requires requires { Op::scales_operands; }
inline constexpr bool scales_operands<Op> = Op::scales_operands;

namespace detail {

template <class T>
inline constexpr bool is_fp64 = false;
template <number T>
inline constexpr bool is_fp64<T> = contains<T, double>;

template <class Op, class Low>
struct stated_type {
    static_assert(states_cast_inputs<Op>,
                  "halftone: the category of this operation is `stated`, and it states no type: using cast_inputs = "
                  "float in its struct, and no cast_rule beside it");
    using type = Low;
};
template <class Op, class Low>
    requires(states_cast_inputs<Op>&& number<typename Op::cast_inputs>)
struct stated_type<Op, Low> {
    using type = typename Op::cast_inputs;
};

template <class Widest, class Otherwise>
struct first_of {
    using type = Widest;
};
template <class Otherwise>
struct first_of<void, Otherwise> {
    using type = Otherwise;
};

// The types under a policy: Low is its `compute`; Widest is the type that the inputs promote to, void if there are
// none.
template <category Category, class Op, class Low, class Widest>
struct cast {  // as_input
    using type = typename first_of<Widest, storage_of<Low>>::type;
};
template <class Op, class Low, class Widest>
struct cast<category::promote, Op, Low, Widest> {
    using type = promote<storage_of<Low>, Widest>;
};
template <class Op, class Low, class Widest>
struct cast<category::low_precision, Op, Low, Widest> {
    using type = Low;
};
template <class Op, class Low, class Widest>
struct cast<category::low_to_fp32, Op, Low, Widest> {
    using type = Low;
};
template <class Op, class Low, class Widest>
struct cast<category::fp32, Op, Low, Widest> {
    using type = promote<float, Low>;
};
template <class Op, class Low, class Widest>
struct cast<category::stated, Op, Low, Widest> : stated_type<Op, Low> {};
template <class Op, class Low, class Widest>
struct cast<category::banned, Op, Low, Widest> {
    static constexpr bool has_logits_form = requires { Op::has_logits_form; };
    // Where only operands of products are rounded, as in tf32, everything else is in fp32.
    static constexpr bool is_wide = contains<storage_of<Low>, float>;
    static_assert(is_wide || !has_logits_form,
                  "halftone: this operation overflows in low precision; call its with_logits form, or open a region "
                  "with ht::autocast<ht::full_fp32>(ctx) around it");
    static_assert(is_wide || has_logits_form,
                  "halftone: this operation is not for low precision (its category is ht::category::banned); open a "
                  "region with ht::autocast<ht::full_fp32>(ctx) around it");
    using type = promote<float, Low>;
};

// The type of a role, or the policy's `output` where the role has eight bits and the operation does not scale.
template <class R, class Role, bool Scaled>
using scaled_role = std::conditional_t<eight_bit<Role> && !Scaled, typename R::output, Role>;

template <class Op>
concept states_cpu_cast_rule = requires {
    Op::cpu_cast_rule;
};
template <class R>
constexpr bool takes_cpu_lists() {
    if constexpr (requires { R::categories; }) return R::categories == autocast_lists::cpu;
    return false;
}

/// The category of Op under R: for a free operation, which has inputs, that of the lists which R takes.
template <class R, class Op, class... Inputs>
constexpr category category_under() {
    constexpr category value = operation_category<Op>::value;
    if constexpr (sizeof...(Inputs) != 0 && takes_cpu_lists<R>() && states_cpu_cast_rule<Op>) {
        if (value == stated_category<Op>()) return Op::cpu_cast_rule;
    }
    return value;
}

template <class R, class Op, class... Inputs>
struct operand {
    using type = typename cast<category_under<R, Op, Inputs...>(), Op,
                               scaled_role<R, typename R::compute, scales_operands<Op>>, promote<Inputs...>>::type;
};
template <policy_marker R, class Op, class... Inputs>
struct operand<R, Op, Inputs...> {
    using type = typename first_of<promote<Inputs...>, float>::type;
};
template <class R, class Op, class... Inputs>
    requires(!policy_marker<R> && (is_fp64<Inputs> || ...))
struct operand<R, Op, Inputs...> {
    using type = promote<Inputs...>;
};

template <category Category, class Compute>
struct result {
    using type = Compute;
};
template <class Compute>
struct result<category::low_to_fp32, Compute> {
    using type = promote<float, Compute>;
};

}  // namespace detail

/// The type in which Op reads its operands under P. For a layer leave Inputs out: the result is fp32 (or `compute` if
/// that is wider) if the category computes in fp32, otherwise `compute`. A free operation passes the types of its
/// inputs.
template <class P, class Op, class... Inputs>
using compute_type = typename detail::operand<resolve<P>, Op, Inputs...>::type;

/// The type in which a product that does not scale reads its operands under P: `compute`, or `output` if `compute` has
/// eight bits.
template <class P>
using unscaled_compute = detail::scaled_role<resolve<P>, typename resolve<P>::compute, false>;

/// The type in which Op's backward products read the incoming gradient under P, a policy with roles: `grad`, or
/// `output` if `grad` has eight bits and Op does not scale.
template <class P, class Op>
using grad_type = detail::scaled_role<P, typename P::grad, scales_operands<Op>>;

namespace detail {

// An 8-bit operand has a scale and is read in its own type; otherwise both operands are read in the wider of the two
// types.
template <class Compute, class Grad>
struct read_gradient {
    using type = promote<Compute, Grad>;
};
template <class Compute, eight_bit Grad>
struct read_gradient<Compute, Grad> {
    using type = Grad;
};

template <class Stated, class Derived>
struct backward_role {
    using type = Stated;
};
template <class Derived>
struct backward_role<void, Derived> {
    using type = Derived;
};

}  // namespace detail

/// The operand type of the product that computes a layer's input gradient under P, a policy with roles: `input_grad`
/// where the policy has that role, otherwise the wider of the forward product's operand type and the type in which the
/// incoming gradient is read. Where the latter has eight bits, the other operand is read in eight bits too, as in the
/// forward pass.
template <class P, class Op>
using input_grad_type =
    typename detail::backward_role<typename detail::stated_input_grad<P>::type,
                                   typename detail::read_gradient<compute_type<P, Op>, grad_type<P, Op>>::type>::type;
/// The operand type of the product that computes the weight's gradient: the same with `weight_grad`.
template <class P, class Op>
using weight_grad_type =
    typename detail::backward_role<typename detail::stated_weight_grad<P>::type,
                                   typename detail::read_gradient<compute_type<P, Op>, grad_type<P, Op>>::type>::type;

/// The type in which Op sums: the policy's `accum`, and never narrower than the operands.
template <class P, class Op, class... Inputs>
using accum_type = promote<storage_of<compute_type<P, Op, Inputs...>>, typename policy_within<inherit, P>::accum>;

/// The type of a layer's result, whatever its operation.
template <class P>
using layer_output = typename resolve<P>::output;

/// The type of the residual stream under the policy at P: its `stream`, or its `output` where it has no such role. Layers
/// called with a residual return the residual's type; this names the type for sums of a model's own:
/// ht::add<ht::layer_stream<P>>(ctx, x, y).
template <class P>
using layer_stream = detail::stream_of<resolve<P>>;

/// The type of a free operation's result in a region with policy P, or on a bare tape (P = as_given).
template <class P, class Op, class... Inputs>
using free_output =
    storage_of<typename detail::result<operation_category<Op>::value, compute_type<P, Op, Inputs...>>::type>;

/// The default of the first template argument of every free operation: the operation's category decides the result's
/// type. A number type in its place decides instead, as `dtype=` does in PyTorch: ht::softmax<float>(ctx, x) gives
/// floats inside and outside of any autocast region.
struct by_category {};

namespace detail {

template <class As, class P, class Op, class... Inputs>
struct chosen {
    static_assert(number<As>,
                  "halftone: the template argument given to this operation is not a number type: ht::softmax<float>(ctx, x); "
                  "the policy is the context's, ht::autocast<policy>(ctx)");
    using compute = As;
    using type = storage_of<As>;
};
template <class P, class Op, class... Inputs>
struct chosen<by_category, P, Op, Inputs...> {
    using compute = compute_type<P, Op, Inputs...>;
    using type = free_output<P, Op, Inputs...>;
};

}  // namespace detail

/// The type of the result of a free operation called with As, a number type or by_category.
template <class As, class P, class Op, class... Inputs>
using chosen_output = typename detail::chosen<As, P, Op, Inputs...>::type;
/// The type in which such an operation's products read their operands.
template <class As, class P, class Op, class... Inputs>
using chosen_compute = typename detail::chosen<As, P, Op, Inputs...>::compute;

}  // namespace HALFTONE_ABI
}  // namespace halftone
