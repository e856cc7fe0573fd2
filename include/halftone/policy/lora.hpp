// SPDX-License-Identifier: MIT
/// \file
/// The policy of layers that may have low-rank adapters (LoRA, Hu et al. 2021): one policy for the adapters, one for the
/// base that they adapt.
///
///     using tuned = ht::lora<ht::amp_bf16, ht::pure_bf16>;       // fp32 masters of adapters over a base of bf16
///     ht::nn::llama<tuned> model{device, config};                // which layers have one: memory/adapters.hpp
///     using some = ht::recipe<ht::pure_bf16, ht::rule<"h.*.attn", tuned>>;      // of other layers no code is made
#pragma once

#include <halftone/config.hpp>
#include <halftone/policy/path.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/policy/roles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Base, under which layers compute and store as without this, and whose linear layers can have an adapter in addition, which
/// stores and computes by P.
template <class P, class Base>
struct lora : Base {
    static_assert(check_roles<P>());
    static_assert(check_roles<Base>());
    using adapter = P;
};

namespace detail {

/// A layer's policy under which it can have an adapter.
template <class P>
concept adapted = requires {
    typename policy_within<P, as_given>::adapter;
};

/// Root at the path of P.
template <class P, class Root>
struct root_replaced {
    using type = Root;
};
template <class P, path_name Name, class Root>
struct root_replaced<at<P, Name>, Root> {
    using type = at<typename root_replaced<P, Root>::type, Name>;
};
/// The policy of the adapter of a layer with policy P, at the layer's path.
template <adapted P>
using adapter_policy = typename root_replaced<P, typename policy_within<P, as_given>::adapter>::type;

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
