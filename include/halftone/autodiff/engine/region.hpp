// SPDX-License-Identifier: MIT
/// \file
/// Autocast regions: a context with another precision policy.
///
///     auto probs = ht::softmax(ht::autocast<ht::full_fp32>(ctx), scores);
///     const auto region = ht::autocast<ht::at<P, "attn">>(ctx);               // an object that refers to its context
///
/// Regions nest and end with their scope. They set no global or thread-local state.
#pragma once

#include <type_traits>

#include <halftone/policy/check.hpp>
#include <halftone/policy/recipe.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A context with another policy: the result of `autocast`. It refers to its root context.
template <class Policy, class Root>
class region {
  public:
    using policy = Policy;
    using device_type = typename Root::device_type;
    static constexpr bool records = Root::records;

    explicit region(Root& root) : root_(&root) {}
    Root& root() const { return *root_; }

  private:
    Root* root_;
};

/// The policy that free operations follow in this context.
template <class Context>
using policy_of = typename std::remove_cvref_t<Context>::policy;

namespace detail {

/// The policy of a region of P on a tape: P, unless the tape's hook (autodiff/engine/hook.hpp) replaces it.
template <class P, class Root>
struct region_policy {
    using type = P;
};
template <class P, class Root>
    requires requires { typename Root::hook_type; }
struct region_policy<P, Root> {
    using type = typename Root::hook_type::template region_policy<P>;
};

/// The policy of a region of P within a context of policy Around, which `inherit` keeps.
template <class P, class Around, class Root>
using policy_inside =
    std::conditional_t<std::is_same_v<resolve<P>, inherit>, Around, typename region_policy<P, Root>::type>;

}  // namespace detail

/// A region of the context in which free operations, and layers that inherit, compute by the policy P (or a recipe). If
/// P is `inherit`, or a place in a recipe that is, the surrounding policy stays.
template <class P, class Context>
auto autocast(Context&& context) {
    constexpr bool is_context = requires { context.root(); };
    static_assert(is_context,
                  "halftone: autocast makes a region of a context, and this is not one: give it a tape (ht::tape "
                  "tape{device}), an inference context (ht::inference eval{device}) or a region");
    if constexpr (is_context) {
        using root = std::remove_reference_t<decltype(context.root())>;
        static_assert(check_policy<P>());
        return region<detail::policy_inside<P, policy_of<Context>, root>, root>(context.root());
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
