// SPDX-License-Identifier: MIT
/// \file
/// Recipes: which policy each path has.
#include <type_traits>

#include <halftone/policy/presets.hpp>
#include <halftone/policy/recipe.hpp>

namespace policy_recipe_tests {

namespace ht = halftone;
using ht::at, ht::rule;

template <class A, class B>
inline constexpr bool same = std::is_same_v<A, B>;

using wide_head = ht::with_output<ht::amp_bf16, float>;
// clang-format off
using mine = ht::recipe<ht::amp_bf16,
    rule<"*.norm", ht::full_fp32>,
    rule<"h.0.attn", ht::amp_fp16>,
    rule<"h.last", ht::full_fp32>,
    rule<"head", wide_head>,
    rule<"h.last.attn.qkv", ht::amp_bf16>>;
// clang-format on

using many = at<at<mine, "h">, "*">;
using first = at<at<mine, "h">, "0">;
using last = at<at<mine, "h">, "last">;

static_assert(same<ht::resolve<mine>, ht::amp_bf16>);
static_assert(same<ht::resolve<at<mine, "wte">>, ht::amp_bf16>);
static_assert(same<ht::resolve<at<mine, "norm">>, ht::full_fp32>);
static_assert(same<ht::resolve<at<mine, "head">>, wide_head>);
static_assert(same<ht::resolve<at<many, "norm">>, ht::full_fp32>);
static_assert(same<ht::resolve<at<many, "attn">>, ht::amp_bf16>);
static_assert(same<ht::resolve<at<at<first, "attn">, "qkv">>, ht::amp_fp16>);
static_assert(same<ht::resolve<at<first, "mlp">>, ht::amp_bf16>);
static_assert(same<ht::resolve<at<last, "mlp">>, ht::full_fp32>);
static_assert(same<ht::resolve<at<at<last, "attn">, "proj">>, ht::full_fp32>);
static_assert(same<ht::resolve<at<at<last, "attn">, "qkv">>, ht::amp_bf16>);  // the last rule wins

// A plain policy applies to everything below it; the markers stay.
static_assert(same<ht::resolve<ht::amp_fp16>, ht::amp_fp16>);
static_assert(same<ht::resolve<at<at<ht::amp_fp16, "h">, "x">>, ht::amp_fp16>);
static_assert(same<ht::resolve<at<ht::inherit, "x">>, ht::inherit> && same<ht::resolve<ht::as_given>, ht::as_given>);

// Whose precision?
using undecided = ht::recipe<ht::inherit, rule<"head", ht::full_fp32>>;
static_assert(same<ht::policy_within<at<mine, "norm">, ht::amp_fp16>, ht::full_fp32>);
static_assert(same<ht::policy_within<at<undecided, "fc">, ht::amp_fp16>, ht::amp_fp16>);
static_assert(same<ht::policy_within<at<undecided, "head">, ht::amp_fp16>, ht::full_fp32>);
static_assert(same<ht::policy_within<at<undecided, "fc">, mine>, ht::amp_bf16>);
static_assert(same<ht::policy_within<ht::inherit, ht::as_given>, ht::full_fp32>);
static_assert(same<ht::policy_within<ht::inherit, ht::inherit>, ht::full_fp32>);

static_assert(ht::needs_scaling<mine> && ht::needs_scaling<at<first, "attn">> && !ht::needs_scaling<at<first, "mlp">>);
static_assert(!ht::needs_scaling<undecided>);
static_assert(ht::needs_scaling<ht::recipe<ht::full_fp32, rule<"a", ht::full_fp32>, rule<"b", ht::amp_fp16>>>);

}  // namespace policy_recipe_tests
