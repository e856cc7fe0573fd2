// SPDX-License-Identifier: MIT
/// \file
/// Precision by layer: a default policy, and rules that change it by path, all at compile time.
///
///     using mine = ht::recipe<ht::amp_bf16,
///         ht::rule<"*.norm", ht::full_fp32>,                            // the last rule that matches wins,
///         ht::rule<"head", ht::with_output<ht::amp_bf16, float>>>;      // and holds for the layers below, too
///     static_assert(std::is_same_v<ht::resolve<ht::at<mine, "norm">>, ht::full_fp32>);
///
/// A recipe can be given wherever a policy can. A layer receives at<..., "its name">; resolve<> turns that into a
/// policy with roles.
#pragma once

#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/policy/path.hpp>
#include <halftone/policy/presets.hpp>
#include <halftone/policy/roles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The policy of all layers that Pattern names (see path_matches), and of everything below them.
template <path_name Pattern, class Policy>
struct rule {
    static constexpr path_name pattern = Pattern;
    using policy = Policy;
};

/// Default is the policy of every layer that no rule names; where several rules name a layer, the last one wins.
template <class Default, class... Rules>
struct recipe {};

namespace detail {

template <class R>
inline constexpr bool is_rule = false;
template <path_name Pattern, class Policy>
inline constexpr bool is_rule<rule<Pattern, Policy>> = true;

template <class P>
concept recipe_entry = precision_policy<P> || std::same_as<P, inherit>;

template <class Default, class... Rules>
consteval bool check_recipe_entries() {
    static_assert(recipe_entry<Default>,
                  "halftone: the default of this recipe is not a policy; give a preset, a policy of your own with all "
                  "eight roles, or ht::inherit");
    static_assert((is_rule<Rules> && ...),
                  "halftone: after its default a recipe takes rules only: ht::rule<\"path\", policy>");
    return true;
}

template <path_name Pattern, class Policy>
consteval bool check_rule(const rule<Pattern, Policy>*) {
    static_assert(recipe_entry<Policy>,
                  "halftone: what this rule gives is not a policy; give a preset, a policy of your own with all eight "
                  "roles, or ht::inherit");
    return true;
}
consteval bool check_rule(const void*) { return true; }

template <path_name Path, class Found, class... Rules>
struct last_match {
    using type = Found;
};
template <path_name Path, class Found, path_name Pattern, class Policy, class... Rest>
struct last_match<Path, Found, rule<Pattern, Policy>, Rest...>
    : last_match<Path, std::conditional_t<path_matches(Pattern, Path), Policy, Found>, Rest...> {};

template <class Root, path_name Path>
struct lookup {
    static_assert(check_roles<Root>());
    using type = Root;
};
template <policy_marker Root, path_name Path>
struct lookup<Root, Path> {
    using type = Root;
};
template <class Default, class... Rules, path_name Path>
struct lookup<recipe<Default, Rules...>, Path> {
    static_assert(check_recipe_entries<Default, Rules...>());
    static_assert((check_rule(static_cast<const Rules*>(nullptr)) && ...));
    using type = typename last_match<Path, Default, Rules...>::type;
};

}  // namespace detail

/// The policy at P, where P is a policy, a recipe, or either inside any number of at<>; `inherit` and `as_given` are
/// returned unchanged.
template <class P>
using resolve = typename detail::lookup<root_of<P>, path_of<P>>::type;

namespace detail {

template <class Own, class Region>
struct within {
    using type = Own;
};
template <class Region>
struct within<inherit, Region> {
    using type = Region;
};
template <policy_marker Region>
struct within<inherit, Region> {
    using type = full_fp32;
};

template <class P, path_name Name>
struct scaling<at<P, Name>> : scaling<resolve<at<P, Name>>> {};
template <class Default, class... Rules>
struct scaling<recipe<Default, Rules...>> {
    static constexpr bool value = (scaling<Default>::value || ... || scaling<typename Rules::policy>::value);
};

}  // namespace detail

/// The policy that a layer with policy P computes by, in Region: P itself; where that is `inherit`, the policy of the
/// autocast region that it is called in; on a bare tape, where there is no region, full_fp32, by which its parameters
/// are stored.
template <class P, class Region>
using policy_within = typename detail::within<resolve<P>, resolve<Region>>::type;

}  // namespace HALFTONE_ABI
}  // namespace halftone
