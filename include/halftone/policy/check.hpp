// SPDX-License-Identifier: MIT
/// \file
/// What makes a policy invalid: one concept for each condition, and the messages with which compilation fails.
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

namespace halftone {
inline namespace HALFTONE_ABI {

/// `accum` has at least the significand and the exponent range of the operands' type, `compute`.
template <class P>
concept wide_enough_accum = contains<typename P::accum, typename P::compute>;

/// `accum` has at least the significand and the exponent range of the operands of backward products, where a policy
/// states them.
template <class P>
concept wide_enough_backward_accum =
    (std::is_void_v<typename detail::stated_input_grad<P>::type> ||
     contains<typename P::accum, typename detail::stated_input_grad<
                                     P>::type>)&&(std::is_void_v<typename detail::stated_weight_grad<P>::type> ||
                                                  contains<typename P::accum,
                                                           typename detail::stated_weight_grad<P>::type>);

/// `accum` is a type that the kernels really sum in: float, or double where they compute in double. A wider one would
/// be ignored.
template <class P>
concept summed_as_stated = !contains<typename P::accum, double> || contains<typename P::compute, double>;

/// `input_grad` and `weight_grad` have more than eight bits, because only `compute` and `grad` have scales.
template <class P>
concept unscaled_backward_operands =
    !eight_bit<typename detail::stated_input_grad<P>::type> && !eight_bit<typename detail::stated_weight_grad<P>::type>;

/// A parameter stored by this policy (or storage<...>) does not lose small updates: it has enough
/// bits, as a master has, or is rounded stochastically, which keeps updates on average.
template <class P>
concept keeps_small_updates =
    number_traits<typename P::param>::unit_roundoff <= 0x1p-16 || P::param_rounding == rounding::stochastic;

/// Roles that are stored in memory have a type that can be stored: tfloat32 and split<bfloat16, N> are only formats in
/// which products read floats.
template <class P>
concept storable_roles = std::same_as<storage_of<typename P::param>, typename P::param> &&
    std::same_as<storage_of<typename P::output>, typename P::output> &&
    std::same_as<storage_of<typename P::accum>, typename P::accum> &&
    std::same_as<storage_of<typename P::accumulate>, typename P::accumulate> &&
    std::same_as<storage_of<typename P::reduce>, typename P::reduce> &&
    std::same_as<storage_of<typename P::state>, typename P::state>;

/// Roles that outlive an operation, and the type of sums, have more than eight bits: only operands of products have the
/// scales that eight bits need.
template <class P>
concept wide_enough_storage =
    !eight_bit<typename P::param> && !eight_bit<typename P::output> && !eight_bit<typename P::accum> &&
    !eight_bit<typename P::accumulate> && !eight_bit<typename P::reduce> && !eight_bit<typename P::state>;

/// The residual stream, where a policy states its type, has one in which activations can be stored and added up: more than
/// eight bits, not only a format of operands, and double exactly where layers compute in double.
template <class P>
concept possible_stream =
    !detail::states_stream<P> ||
    (std::same_as<storage_of<detail::stream_of<P>>, detail::stream_of<P>> && !eight_bit<detail::stream_of<P>> &&
     std::same_as<detail::stream_of<P>, double> == std::same_as<typename P::compute, double>);

/// Activations and weights keep four significant bits, at least: with float8_e5m2's three, training does not converge
/// as it should (Micikevicius et al. 2022, section 4).
template <class P>
concept precise_enough_operands =
    !eight_bit<typename P::compute> || number_traits<typename P::compute>::unit_roundoff <= 0x1p-4;

namespace detail {

/// Whether scaled gradients that overflow in T are infinite or NaN, which a scaler looks for.
template <class T>
inline constexpr bool shows_overflow = true;
template <number T>
inline constexpr bool shows_overflow<T> = number_traits<T>::has_infinity || number_traits<T>::has_nan;

}  // namespace detail

/// Gradients that pass through a type of so short a range that the loss is scaled become infinite or NaN in it where they
/// overflow, so that the scale can be lowered.
template <class P>
concept visible_overflow =
    !needs_scaling<P> || ((detail::shows_overflow<typename P::grad> || eight_bit<typename P::grad>)&&detail::shows_overflow<
                              typename P::output> &&
                          detail::shows_overflow<detail::stream_of<P>> &&
                          detail::shows_overflow<typename detail::stated_input_grad<P>::type> &&
                          detail::shows_overflow<typename detail::stated_weight_grad<P>::type>);

/// Sums of gradients, and gradients that go from rank to rank, keep infinities and NaNs, which tell that a step has to be skipped.
template <class P>
concept visible_sums = detail::shows_overflow<typename P::accumulate> && detail::shows_overflow<typename P::reduce>;

/// Gradients are read in eight bits only where activations and weights are.
template <class P>
concept scaled_gradients = !eight_bit<typename P::grad> || eight_bit<typename P::compute>;

/// Either all of `param`, `compute`, `output`, `grad` and `accumulate` are double, or none is.
template <class P>
concept doubles_throughout =
    (std::same_as<typename P::compute, double> && std::same_as<typename P::param, double> &&
     std::same_as<typename P::output, double> && std::same_as<typename P::grad, double> &&
     std::same_as<typename P::accumulate, double>) ||
    !(std::same_as<typename P::compute, double> || std::same_as<typename P::param, double> ||
      std::same_as<typename P::output, double> || std::same_as<typename P::grad, double> ||
      std::same_as<typename P::accumulate, double>);

/// Parameters in a type that float does not hold are rounded to nearest: random numbers round floats.
template <class P>
concept possible_param_rounding = !wide_number<typename P::param> || P::param_rounding == rounding::nearest_even;

/// Masters are stored whole, or are fp32 masters with bf16 copies, which can be split.
template <class P>
concept possible_masters = detail::layout_of<P>() == master_layout::whole || detail::splittable<P>;

namespace detail {

/// True, or a compile-time error that says why kernels cannot compute with the type of a role.
template <class R>
consteval bool check_computable_roles() {
    return check_storable<typename R::param>() && check_computable<typename R::compute>() &&
           check_computable<typename R::output>() && check_computable<typename R::accum>() &&
           check_computable<typename R::grad>() && check_computable<typename R::accumulate>() &&
           check_computable<typename R::reduce>() && check_computable<typename R::state>() &&
           check_computable<stream_of<R>>();
}

/// Whether kernels compute with the types of all roles. If not that is told, and nothing that follows from it.
template <class R>
consteval bool has_computable_types() {
    if constexpr (precision_policy<R>) {
        return !(wide_number<typename R::compute> || wide_number<typename R::output> ||
                 wide_number<typename R::accum> || wide_number<typename R::grad> ||
                 wide_number<typename R::accumulate> || wide_number<typename R::reduce> ||
                 wide_number<typename R::state> || wide_number<stream_of<R>>);
    } else {
        return false;
    }
}

/// What is wrong with roles that kernels compute with.
template <class R, bool Computable>
struct policy_check_of_roles {};
template <class R>
struct policy_check_of_roles<R, true> {
    static_assert(precise_enough_operands<R>,
                  "halftone: this policy reads activations and weights as ht::float8_e5m2 (role `compute`), whose "
                  "three significant bits are too few for them: take ht::float8_e4m3 there and ht::float8_e5m2 for "
                  "gradients alone (role `grad`), as ht::fp8_hybrid does");
    static_assert(doubles_throughout<R>,
                  "halftone: this policy has double in some of the roles `param`, `compute`, `output`, `grad` and "
                  "`accumulate` and not in all: layers have kernels for floats and for doubles, and none for both; "
                  "take ht::full_fp64, or ht::cast<double>(ctx, x) and free operations");
    static_assert(scaled_gradients<R>,
                  "halftone: this policy reads gradients in eight bits (role `grad`), but activations and weights in "
                  "more (role `compute`): nothing scales gradients there; start from ht::fp8_hybrid, or take "
                  "ht::with_grad<P, ht::bfloat16>");
    static_assert(wide_enough_storage<R>,
                  "halftone: this policy keeps or sums numbers in eight bits, where updates and sums get lost; only "
                  "`compute` and `grad`, the operands of products, can have them, since they are scaled: take "
                  "ht::bfloat16 or float for `param`, `output`, `accum`, `accumulate`, `reduce` and `state`");
    static_assert(wide_enough_accum<R>,
                  "halftone: the accumulator of this policy (role `accum`) is narrower than the operands it sums (role "
                  "`compute`), in significand or in range; widen it: ht::with_accum<P, float>");
    static_assert(summed_as_stated<R>,
                  "halftone: this policy sums in double (role `accum`) what it multiplies in less (role `compute`): "
                  "kernels sum in float there, and the role would be ignored; take ht::with_accum<P, float>, or "
                  "compute in double, ht::full_fp64");
    static_assert(
        wide_enough_backward_accum<R>,
        "halftone: the accumulator of this policy (role `accum`) is narrower than the operands of a backward product "
        "(roles `input_grad` and `weight_grad`), in significand or in range; widen it: ht::with_accum<P, float>");
    static_assert(
        unscaled_backward_operands<R>,
        "halftone: the roles `input_grad` and `weight_grad` have no scales, which numbers of eight bits need; leave "
        "them out, so that `compute` and `grad` tell, or give a wider type: ht::with_weight_grad<P, ht::bfloat16>");
    static_assert(storable_roles<R>,
                  "halftone: this policy keeps numbers in a type that only products read, such as ht::tfloat32; only "
                  "the roles `compute` and `grad` can have it: take ht::with_output<P, float>, and float likewise for "
                  "`param`, `accum`, `accumulate`, `reduce` and `state`");
    static_assert(
        visible_overflow<R>,
        "halftone: gradients pass through a type without infinity and NaN (role `grad`, `output` or `stream`), "
        "whose range is so short that they have to be scaled: an overflow would go unseen there, and the scale "
        "would never be lowered; such a type can be `compute` or `param`");
    static_assert(
        visible_sums<R>,
        "halftone: gradients are summed in a type without infinity and NaN (role `accumulate` or `reduce`): an "
        "overflow, "
        "and a loss that is NaN, would go unseen, and such steps would be taken; a type of your own can have one NaN, "
        "which is what larger numbers become");
    static_assert(
        possible_stream<R>,
        "halftone: the residual stream of this policy (role `stream`) has a type in which no layer adds to it: "
        "eight bits, a type that only products read, such as ht::tfloat32, or a double where layers do not "
        "compute in double; take ht::with_stream<P, float> or ht::bfloat16, and with ht::full_fp64 a double");
    static_assert(
        possible_param_rounding<R>,
        "halftone: the parameters of this policy (role `param`) have a type that float does not hold, and are rounded "
        "stochastically, which rounds floats: round to nearest, ht::with_param_rounding<P, "
        "ht::rounding::nearest_even>");
    static_assert(
        possible_masters<R>,
        "halftone: this policy splits its masters (ht::with_split_master) and has another `param` than float or "
        "another `compute` than bfloat16: an fp32 master splits into a bf16 copy and its remainder, and no other does");
};

template <class R>
struct policy_check {
    static_assert(check_roles<R>());
    static_assert(check_computable_roles<R>());
    static_assert(sizeof(policy_check_of_roles<R, has_computable_types<R>()>) > 0);
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

/// Appears in the compiler's message, spelling the path character by character.
template <class PathText>
struct parameters_at {};

/// True, or a compile-time error with a message for each thing that is wrong with the policy that resolves at P.
template <class P>
consteval bool check_policy() {
    static_assert(sizeof(detail::policy_check<resolve<P>>) > 0);
    return true;
}

namespace detail {

template <class L>
using check_parameters = parameter_check<parameters_at<detail::spelled_path<typename L::policy>>,
                                         keeps_small_updates<storage_signature<typename L::policy>>>;

template <class... Ls>
consteval bool check_owners(types<Ls...>) {
    static_assert(((sizeof(check_parameters<Ls>) > 0) && ...));
    static_assert((!std::same_as<typename storage_signature<typename Ls::policy>::param, double> && ...),
                  "halftone: some parameters of this model are doubles (ht::full_fp64), and optimizers step over floats: "
                  "fp64 is for checking gradients; train with ht::full_fp32");
    return true;
}

}  // namespace detail

/// True, or a compile-time error for each layer of the Model whose parameters an optimizer cannot train.
template <class Model>
consteval bool check_trainable() {
    return detail::check_owners(detail::owners_of<Model>{});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
