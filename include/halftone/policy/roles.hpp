// SPDX-License-Identifier: MIT
/// \file
/// A precision policy is a type that names a number type for each role in a training step:
///
/// | role         | what has this type |
/// | ------------ | ------------------ |
/// | `param`      | the parameters as the optimizer keeps them (the master weights) |
/// | `compute`    | the operands of products |
/// | `output`     | the results of layers |
/// | `accum`      | the sums of products and reductions; kernels sum in float where it is narrower |
/// | `grad`       | the incoming gradient as backward products read it |
/// | `accumulate` | the buffers in which gradients of several micro-batches are added |
/// | `reduce`     | gradients as they are sent between processes |
/// | `state`      | the optimizer's moments |
///
/// and `static constexpr rounding param_rounding`: how an updated parameter is rounded to `param`. Optional members of
/// a policy are `copy_rounding`, how the copy that kernels read is rounded from the master (default: nearest even);
/// `masters`, a master_layout (default: whole); `scaling`, how 8-bit operands are scaled (scaling.hpp); and `categories`, an
/// autocast_lists (default: cuda).
///
/// The two backward products of a layer with weights have operands of the wider of `compute` and `grad`. A policy can
/// change that by two optional roles:
///
/// | `input_grad`  | the operands of dx = dy w, the gradient of the layer's input; attention's backward products |
/// | `weight_grad` | the operands of dw = dyᵀ x, the gradient of its weights, or of ht::matmul's second factor |
///
/// A third optional role types the residual stream, the sum x + f(x) that a model passes from block to block:
///
/// | `stream`      | the results of embeddings, with which the stream begins, and of the norms of a post-norm encoder |
///
/// A policy without it has its `output` there. A layer that is given a residual returns the residual's type, so that the
/// policy at "embed" determines the stream of the whole model; there a stated `stream` has precedence over `output`, and
/// the `stream` of policies at other layers is not read.
///
/// A fourth optional role is no number type, but a block format (number/block_format.hpp):
///
/// | `copy`        | the weights of linear layers as kernels read them: codes and scales, such as ht::nf4 |
///
/// Such weights are not trained: they are frozen, as the base of adapters is (lora.hpp), and have no master. Products read
/// each number as `compute`.
///
///     struct mine : ht::amp_bf16 { using output = float; };      // inherits a preset, changes one role
///     static_assert(ht::precision_policy<mine>);
#pragma once

#include <concepts>

#include <halftone/config.hpp>
#include <halftone/number/rounding.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class P>
concept has_param = requires {
    requires number<typename P::param>;
};
template <class P>
concept has_compute = requires {
    requires number<typename P::compute>;
};
template <class P>
concept has_output = requires {
    requires number<typename P::output>;
};
template <class P>
concept has_accum = requires {
    requires number<typename P::accum>;
};
template <class P>
concept has_grad = requires {
    requires number<typename P::grad>;
};
template <class P>
concept has_accumulate = requires {
    requires number<typename P::accumulate>;
};
template <class P>
concept has_reduce = requires {
    requires number<typename P::reduce>;
};
template <class P>
concept has_state = requires {
    requires number<typename P::state>;
};
template <class P>
concept has_param_rounding = requires {
    { P::param_rounding } -> std::convertible_to<rounding>;
};

}  // namespace detail

/// A type with all eight roles, each a number type, and `param_rounding`.
template <class P>
concept precision_policy = detail::has_param<P> && detail::has_compute<P> && detail::has_output<P> &&
    detail::has_accum<P> && detail::has_grad<P> && detail::has_accumulate<P> && detail::has_reduce<P> &&
    detail::has_state<P> && detail::has_param_rounding<P>;

/// PyTorch's two lists by which free operations have their categories in an autocast region (category.hpp).
enum class autocast_lists {
    cuda,  ///< that for CUDA, which also holds on a CPU here
    cpu,   ///< that for CPUs, which leaves most of what sums and exponentiates in 16 bits
};

/// How a master and the copy of it that kernels read are stored.
enum class master_layout {
    whole,  ///< the whole master, and its copy in another slab
    split,  ///< an fp32 master as its bf16 copy and the 16 bits that the copy lacks (number/remainder.hpp)
};

namespace detail {

template <class P>
constexpr master_layout layout_of() {
    if constexpr (requires { P::masters; }) {
        return P::masters;
    } else {
        return master_layout::whole;
    }
}
/// A split master's copy is rounded with ties away from zero, without which its halves would not give the master back.
template <class P>
constexpr rounding copy_rounding_of() {
    if constexpr (layout_of<P>() == master_layout::split) {
        return rounding::nearest_away;
    } else if constexpr (requires { P::copy_rounding; }) {
        return P::copy_rounding;
    } else {
        return rounding::nearest_even;
    }
}

}  // namespace detail

/// A layer with this policy computes by the policy of the autocast region it is called in. Its parameters, which
/// outlive every region, are stored as full_fp32 stores them.
struct inherit {};

/// The policy of a bare tape: free operations keep the types of their inputs.
struct as_given {};

/// `inherit` or `as_given`: policies without roles of their own.
template <class P>
concept policy_marker = std::same_as<P, inherit> || std::same_as<P, as_given>;

namespace detail {

/// Whether the types of all roles that P has are number types: what else is wrong can be told only then.
template <class P>
consteval bool has_number_types() {
    bool all = true;
    if constexpr (requires { typename P::param; }) all = all && number<typename P::param>;
    if constexpr (requires { typename P::compute; }) all = all && number<typename P::compute>;
    if constexpr (requires { typename P::output; }) all = all && number<typename P::output>;
    if constexpr (requires { typename P::accum; }) all = all && number<typename P::accum>;
    if constexpr (requires { typename P::grad; }) all = all && number<typename P::grad>;
    if constexpr (requires { typename P::accumulate; }) all = all && number<typename P::accumulate>;
    if constexpr (requires { typename P::reduce; }) all = all && number<typename P::reduce>;
    if constexpr (requires { typename P::state; }) all = all && number<typename P::state>;
    return all;
}

/// True, or a compile-time error that says why the type of a role that P has is no number type.
template <class P>
consteval bool check_types_of_roles() {
    if constexpr (requires { typename P::param; }) static_assert(check_number<typename P::param>());
    if constexpr (requires { typename P::compute; }) static_assert(check_number<typename P::compute>());
    if constexpr (requires { typename P::output; }) static_assert(check_number<typename P::output>());
    if constexpr (requires { typename P::accum; }) static_assert(check_number<typename P::accum>());
    if constexpr (requires { typename P::grad; }) static_assert(check_number<typename P::grad>());
    if constexpr (requires { typename P::accumulate; }) static_assert(check_number<typename P::accumulate>());
    if constexpr (requires { typename P::reduce; }) static_assert(check_number<typename P::reduce>());
    if constexpr (requires { typename P::state; }) static_assert(check_number<typename P::state>());
    return true;
}

}  // namespace detail

/// True, or a compile-time error that names each role that P lacks.
template <class P>
consteval bool check_roles() {
    static_assert(detail::check_types_of_roles<P>());
    constexpr bool are_numbers = detail::has_number_types<P>();
    static_assert(!are_numbers || detail::has_param<P>,
                  "halftone: this policy lacks the role `param`, the number type the optimizer keeps parameters in; "
                  "inherit a preset (struct mine : ht::amp_bf16 {}) and change single roles");
    static_assert(!are_numbers || detail::has_compute<P>,
                  "halftone: this policy lacks the role `compute`, the number type of the operands of products; "
                  "inherit a preset (struct mine : ht::amp_bf16 {}) and change single roles");
    static_assert(!are_numbers || detail::has_output<P>,
                  "halftone: this policy lacks the role `output`, the number type a layer gives to the next; "
                  "inherit a preset (struct mine : ht::amp_bf16 {}) and change single roles");
    static_assert(!are_numbers || detail::has_accum<P>,
                  "halftone: this policy lacks the role `accum`, the number type a reduction sums in; "
                  "inherit a preset (struct mine : ht::amp_bf16 {}) and change single roles");
    static_assert(!are_numbers || detail::has_grad<P>,
                  "halftone: this policy lacks the role `grad`, the number type backward products read gradients in; "
                  "inherit a preset (struct mine : ht::amp_bf16 {}) and change single roles");
    static_assert(!are_numbers || detail::has_accumulate<P>,
                  "halftone: this policy lacks the role `accumulate`, the number type of the gradient buffers; "
                  "inherit a preset (struct mine : ht::amp_bf16 {}) and change single roles");
    static_assert(!are_numbers || detail::has_reduce<P>,
                  "halftone: this policy lacks the role `reduce`, the number type gradients travel in; "
                  "inherit a preset (struct mine : ht::amp_bf16 {}) and change single roles");
    static_assert(!are_numbers || detail::has_state<P>,
                  "halftone: this policy lacks the role `state`, the number type of the optimizer's moments; "
                  "inherit a preset (struct mine : ht::amp_bf16 {}) and change single roles");
    static_assert(!are_numbers || detail::has_param_rounding<P>,
                  "halftone: this policy lacks `static constexpr ht::rounding param_rounding`, how an updated "
                  "parameter is rounded; inherit a preset (struct mine : ht::amp_bf16 {})");
    return true;
}

/// T has fewer than eight exponent bits: gradients in it underflow unless the loss is scaled.
template <class T>
concept narrow_range = number<T> &&(number_traits<T>::max_exponent - number_traits<T>::min_exponent < 128);

namespace detail {

/// The optional roles of a policy: void for those that it does not have.
template <class P>
struct stated_input_grad {
    using type = void;
};
template <class P>
    requires requires { typename P::input_grad; }
struct stated_input_grad<P> {
    static_assert(number<typename P::input_grad>,
                  "halftone: the role `input_grad` of this policy, the operands of the product that makes an input's "
                  "gradient, is not a number type");
    using type = typename P::input_grad;
};
template <class P>
struct stated_weight_grad {
    using type = void;
};
template <class P>
    requires requires { typename P::weight_grad; }
struct stated_weight_grad<P> {
    static_assert(number<typename P::weight_grad>,
                  "halftone: the role `weight_grad` of this policy, the operands of the product that makes a weight's "
                  "gradient, is not a number type");
    using type = typename P::weight_grad;
};

/// A policy that has the optional role `stream`.
template <class P>
concept states_stream = requires {
    typename P::stream;
};
template <class P>
struct stream_type {
    using type = typename P::output;
};
template <states_stream P>
struct stream_type<P> {
    static_assert(number<typename P::stream>,
                  "halftone: the role `stream` of this policy, the type of the residual stream, is not a number type; "
                  "leave it out for a stream of the type `output`, or give a type: ht::with_stream<P, float>");
    using type = typename P::stream;
};
/// A policy that has the optional role `copy`.
template <class P>
concept states_copy = requires {
    typename P::copy;
};

/// The type of the residual stream under P, a policy with roles: `stream`, or `output` where P does not have it.
template <class P>
using stream_of = typename stream_type<P>::type;

template <class P>
struct scaling {
    static_assert(check_roles<P>());
    // Gradients in eight bits have scales of their own, one a tensor, where operands are scaled (policy/scaling.hpp).
    static constexpr bool value =
        (narrow_range<typename P::grad> && !(eight_bit<typename P::grad> && eight_bit<typename P::compute>)) ||
        narrow_range<typename P::output> || narrow_range<stream_of<P>> ||
        narrow_range<typename stated_input_grad<P>::type> || narrow_range<typename stated_weight_grad<P>::type>;
};
template <policy_marker P>
struct scaling<P> {
    static constexpr bool value = false;
};

}  // namespace detail

/// Whether training under P needs a scaled loss (Micikevicius et al. 2018, section 3.2): whether a type that gradients
/// pass through has a short exponent range. For a recipe: whether one of its policies does.
template <class P>
inline constexpr bool needs_scaling = detail::scaling<P>::value;

}  // namespace HALFTONE_ABI
}  // namespace halftone
