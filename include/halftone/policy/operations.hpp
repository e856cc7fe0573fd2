// SPDX-License-Identifier: MIT
/// \file
/// The tags of halftone's operations, in `halftone::op`: each has a name, and states its autocast category and its kind.
///
///     static_assert(ht::operation_category<ht::op::layer_norm>::value == ht::category::fp32);
///
/// They are made from the rows of operation_table.hpp. Operations that PyTorch's autocast does not list (add, gelu, mean, embedding, ...)
/// run in their input's type, as in PyTorch. Those with another category in its list for CPUs state that too, as `cpu_cast_rule`.
#pragma once

#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/policy/category.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <category Category>
struct in_category {
    static constexpr category cast_rule = Category;
};
/// In one category by PyTorch's list for CUDA, and in another by that for CPUs.
template <category Cuda, category Cpu>
struct in_categories : in_category<Cuda> {
    static constexpr category cpu_cast_rule = Cpu;
};

}  // namespace detail

/// The kinds of operations: what halftone knows of an operation beyond its category. An operation of a program's own may derive its
/// tag from one; with none, or derived from a tag of the library, it is `other`. A kind that tables tell from others names itself,
/// `using kind = product;`, and is that of the kinds that derive from it otherwise.
namespace operation_kind {

struct other {
    using kind = other;
};
struct function : other {};       ///< a function of each element of one variable
struct pointwise : other {};      ///< a function of each element of several variables, or with arguments
struct reduction : other {};      ///< a sum over all elements of a pointwise expression
struct along_axes : other {};     ///< a reduction or a scan along axes
struct join : other {};           ///< variables one behind the other
struct choice : other {};         ///< elements or rows by indices
struct rearrangement : other {};  ///< a variable's elements in another order or shape
/// A loss that overflows in low precision, where its form for logits does not.
struct loss_of_probabilities : other {
    static constexpr bool has_logits_form = true;
};

/// A sum or mean over all elements, whose terms have both signs.
struct sum : other {
    using kind = sum;
};
struct product : other {
    using kind = product;
};
/// A product with weights, whose 8-bit operands it scales.
struct linear : other {
    using kind = linear;
    static constexpr bool has_weights = true;
    static constexpr bool scales_operands = true;
};
struct mlp : linear {
    using kind = mlp;
};
struct conv2d : other {
    using kind = conv2d;
    static constexpr bool has_weights = true;
};
struct attention : other {
    using kind = attention;
};
/// A product with weights and the loss of its logits.
struct linear_cross_entropy : other {
    using kind = linear_cross_entropy;
    static constexpr bool has_weights = true;
};

struct softmax : other {
    using kind = softmax;
};
struct cross_entropy : other {
    using kind = cross_entropy;
};
/// Normalisation, whose kernels read input and parameters as they are stored and compute in float, whatever its category.
struct norm : other {
    using kind = norm;
};
struct layer_norm : norm {
    using kind = layer_norm;
};
struct rms_norm : norm {
    using kind = rms_norm;
};
struct channel_norm : norm {
    using kind = channel_norm;
};
struct dropout : other {
    using kind = dropout;
};
/// Rows of a table by ids.
struct embedding : other {
    using kind = embedding;
};
struct sparse_embedding : other {
    using kind = sparse_embedding;
    static constexpr bool gradient_is_sparse = true;  ///< its parameters' gradient is held by rows
};

/// A parameter as a variable: `ht::as_variable`.
struct parameter_read : other {
    using kind = parameter_read;
};

}  // namespace operation_kind

namespace op {

using low_precision = detail::in_category<category::low_precision>;
using low_to_fp32 = detail::in_category<category::low_to_fp32>;
using fp32 = detail::in_category<category::fp32>;
using promote = detail::in_category<category::promote>;
using as_input = detail::in_category<category::as_input>;
using fp32_on_cuda = detail::in_categories<category::fp32, category::as_input>;
using promote_on_cuda = detail::in_categories<category::promote, category::as_input>;
using promote_on_cpu = detail::in_categories<category::as_input, category::promote>;
using banned_on_cuda = detail::in_categories<category::banned, category::fp32>;

#define HALFTONE_OPERATION(tag, category, kind, ...)                                           \
    struct tag : category, operation_kind::kind {                                              \
        static constexpr const char* name = #__VA_ARGS__[0] == '\0' ? #tag : #__VA_ARGS__;     \
        using tag_of_kind = tag;                                                               \
    };
#include <halftone/policy/operation_table.hpp>

}  // namespace op

namespace detail {

template <class Op>
struct kind_given {
    using type = operation_kind::other;
};
template <class Op>
    requires(requires { typename Op::kind; } && !requires { typename Op::tag_of_kind; })
struct kind_given<Op> {
    using type = typename Op::kind;
};
template <class Op>
    requires std::is_same_v<typename Op::tag_of_kind, Op>
struct kind_given<Op> {
    using type = typename Op::kind;
};
/// The kind of the operation with the tag Op.
template <class Op>
using kind_of = typename kind_given<Op>::type;
template <class Op, class Kind>
inline constexpr bool is_of_kind = std::is_same_v<kind_of<Op>, Kind>;

}  // namespace detail

namespace detail {

// Op is a template parameter so that its category is read only where this is used, after users may have specialised it.
template <class Compute, class Op = op::linear_cross_entropy>
struct linear_loss_given : result<operation_category<Op>::value, Compute> {};
/// The type of the loss of a layer that computes in Compute: decided by the operation's category, float unless a user
/// has specialised that.
template <class Compute>
using linear_loss = storage_of<typename linear_loss_given<Compute>::type>;

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
