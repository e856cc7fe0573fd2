// SPDX-License-Identifier: MIT
/// \file
/// The error message of free operations that take variables only, for calls with a layer's parameter. linear (weight
/// and bias), as_variable and apply also take parameters.
#pragma once

#include <cstddef>
#include <type_traits>

#include <halftone/autodiff/engine/tape.hpp>
#include <halftone/policy/operations.hpp>

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

#define HALFTONE_REFUSED(name)                                   \
    template <class As = by_category, class Context, class... T> \
        requires detail::parameter_given<Context, T...>          \
    void name(Context&&, const T&...) {                          \
        detail::refuse_parameter<Context>();                     \
    }

// The operations of variables, by the names of their functions.
#define HALFTONE_FUNCTION_NAME(name, ...) name
#define HALFTONE_OPERATION(tag, category, kind, ...) HALFTONE_REFUSED(HALFTONE_FUNCTION_NAME(__VA_ARGS__ __VA_OPT__(, ) tag))
#define HALFTONE_LAYER_OPERATION(...)
#include <halftone/policy/operation_table.hpp>
#undef HALFTONE_FUNCTION_NAME

// Functions that are other operations' special cases.
HALFTONE_REFUSED(argmax)
HALFTONE_REFUSED(argmin)
HALFTONE_REFUSED(topk)
HALFTONE_REFUSED(mean_squared_error)
HALFTONE_REFUSED(reshape)
HALFTONE_REFUSED(flatten)
HALFTONE_REFUSED(squeeze)
HALFTONE_REFUSED(unsqueeze)
HALFTONE_REFUSED(narrow)
HALFTONE_REFUSED(contiguous)
template <std::size_t Parts, class Context, class... T>
    requires detail::parameter_given<Context, T...>
void chunk(Context&&, const T&...) {
    detail::refuse_parameter<Context>();
}
#undef HALFTONE_REFUSED

// These take parameters, but not as their input.
template <class As = by_category, class Context, class Storage, int Rank, class... T>
    requires detail::parameter_given<Context, parameter<Storage, Rank>>
void linear(Context&&, const parameter<Storage, Rank>&, const T&...) {
    detail::refuse_parameter<Context>();
}
template <class As = by_category, class Context, class Storage, int Rank, class... T>
    requires detail::parameter_given<Context, parameter<Storage, Rank>>
void conv2d(Context&&, const parameter<Storage, Rank>&, const T&...) {
    detail::refuse_parameter<Context>();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
