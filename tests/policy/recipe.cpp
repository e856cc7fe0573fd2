// SPDX-License-Identifier: MIT
/// \file
/// Recipes: which policy holds where, and lists whose single layers a rule names.
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/policy/presets.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/policy/repeat.hpp>

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

// A plain policy holds everywhere below itself; the markers stay.
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

// Lists: the index named last stands first.
static_assert(same<ht::classes_of<mine, "h">, ht::indices<ht::last_index, 0>>);
static_assert(same<ht::classes_of<mine, "other">, ht::indices<>> &&
              same<ht::classes_of<ht::amp_bf16, "h">, ht::indices<>>);

template <ht::path_name... Pattern>
using ruled = ht::recipe<ht::amp_bf16, rule<Pattern, ht::full_fp32>...>;

static_assert(same<ht::classes_of<ruled<"h.3", "h.12.attn", "h.3.norm">, "h">, ht::indices<3, 12>>);
static_assert(
    same<ht::classes_of<ruled<"h.*", "h.*.norm", "h", "h.1x", "h.1*", "h.lasting", "h.01">, "h">, ht::indices<>>);
static_assert(same<ht::classes_of<ruled<"h.00">, "h">, ht::indices<>> &&
              same<ht::classes_of<ruled<"h.0">, "h">, ht::indices<0>>);
static_assert(same<ht::classes_of<ruled<"h.12345678901">, "h">, ht::indices<>>);
static_assert(same<ht::classes_of<ruled<"hh.0", "g.h.0">, "h">, ht::indices<>>);
static_assert(same<ht::classes_of<ruled<"*.0">, "h">, ht::indices<0>> &&
              same<ht::classes_of<ruled<"*.h.0">, "h">, ht::indices<0>>);
static_assert(same<ht::classes_of<at<ruled<"decoder.h.7">, "decoder">, "h">, ht::indices<7>>);

// A list inside a list: an index of the outer one leads to the inner one of that layer only.
using nested = ruled<"h.0.experts.1", "h.*.experts.2">;
static_assert(same<ht::classes_of<nested, "h">, ht::indices<0>>);
static_assert(same<ht::classes_of<at<at<nested, "h">, "*">, "experts">, ht::indices<2>>);
static_assert(same<ht::classes_of<at<at<nested, "h">, "0">, "experts">, ht::indices<2, 1>>);

TEST_CASE("each layer of a list has the class that its index names") {
    using classes = ht::indices<4, ht::last_index, 0>;
    CHECK(classes::class_of(0, 8) == 2);
    CHECK(classes::class_of(1, 8) == 3);
    CHECK(classes::class_of(4, 8) == 0);
    CHECK(classes::class_of(7, 8) == 1);
    CHECK(classes::class_of(4, 5) == 0);  // both the fourth and the last: the class that comes first
    CHECK(classes::class_of(0, 1) == 1);
    CHECK(ht::indices<>::class_of(0, 1) == 0);
    CHECK(ht::classes_of<mine, "h">::class_of(0, 1) == 0);
}
