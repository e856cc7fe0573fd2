// SPDX-License-Identifier: MIT
/// \file
/// What makes a policy wrong: one concept each, and the sentences in which the compiler says so.
///
///     static_assert(ht::check_policy<P>());                  // in a layer or a kernel
///     static_assert(ht::check_trainable<Model>());           // where an optimizer is built
#pragma once

#include <concepts>

#include <halftone/config.hpp>
#include <halftone/policy/model.hpp>
#include <halftone/policy/path.hpp>
#include <halftone/policy/promotion.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/policy/roles.hpp>

namespace halftone::inline HALFTONE_ABI {

/// The accumulator has at least the significand and the exponent range of the operands.
template <class P>
concept wide_enough_accum = contains<typename P::accum, typename P::compute>;

/// A parameter of this policy (or storage<...>) keeps an update that is small beside it: by enough bits, as a master
/// has, or on average, by stochastic rounding.
template <class P>
concept keeps_small_updates =
    number_traits<typename P::param>::significand_bits >= 16 || P::param_rounding == rounding::stochastic;

/// What is kept in memory has a type that memory can hold: tfloat32, for one, is how products read floats.
template <class P>
concept storable_roles = std::same_as<storage_of<typename P::param>, typename P::param> &&
    std::same_as<storage_of<typename P::output>, typename P::output> &&
    std::same_as<storage_of<typename P::accum>, typename P::accum> &&
    std::same_as<storage_of<typename P::accumulate>, typename P::accumulate> &&
    std::same_as<storage_of<typename P::reduce>, typename P::reduce> &&
    std::same_as<storage_of<typename P::state>, typename P::state>;

namespace detail {

template <class R>
struct policy_check {
    static_assert(check_roles<R>());
    static_assert(wide_enough_accum<R>,
                  "halftone: the accumulator of this policy (role `accum`) is narrower than the operands it sums (role "
                  "`compute`), in significand or in range; widen it: ht::with_accum<P, float>");
    static_assert(storable_roles<R>,
                  "halftone: this policy keeps numbers in a type that only products read, such as ht::tfloat32; only the "
                  "roles `compute` and `grad` can have it: take ht::with_output<P, float>, and float likewise for "
                  "`param`, `accum`, `accumulate`, `reduce` and `state`");
};
template <policy_marker R>
struct policy_check<R> {};

template <class Where, bool Keeps>
struct parameter_check {
    static_assert(Keeps,
                  "halftone: these parameters (role `param`) have so few bits that an optimizer's updates round away: "
                  "keep a master, ht::with_param<P, float>, or round stochastically, "
                  "ht::with_param_rounding<P, ht::rounding::stochastic>; the layer's path stands in "
                  "parameters_at<...>");
};

}  // namespace detail

/// Appears in the compiler's message, with the path as its characters.
template <class PathText>
struct parameters_at {};

/// True, or a compile-time error with a sentence for what is wrong with the policy that holds at P.
template <class P>
consteval bool check_policy() {
    static_assert(sizeof(detail::policy_check<resolve<P>>) > 0);
    return true;
}

namespace detail {

template <class L>
using check_parameters = parameter_check<parameters_at<spelled_path<typename L::policy>>,
                                         keeps_small_updates<storage_signature<typename L::policy>>>;

template <class... Ls>
consteval bool check_owners(types<Ls...>) {
    static_assert(((sizeof(check_parameters<Ls>) > 0) && ...));
    return true;
}

}  // namespace detail

/// True, or a compile-time error for each layer of the Model whose parameters an optimizer cannot train.
template <class Model>
consteval bool check_trainable() {
    return detail::check_owners(owners_of<Model>{});
}

}  // namespace halftone::inline HALFTONE_ABI
