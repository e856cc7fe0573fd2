// SPDX-License-Identifier: MIT
/// \file
/// Lists of layers: which indices the rules name, and which class each layer has.
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/policy/presets.hpp>
#include <halftone/policy/repeat.hpp>

namespace policy_repeat_tests {

namespace ht = halftone;
using ht::at, ht::rule;

template <class A, class B>
inline constexpr bool same = std::is_same_v<A, B>;

template <ht::path_name... Pattern>
using ruled = ht::recipe<ht::amp_bf16, rule<Pattern, ht::full_fp32>...>;

// The index that is named last comes first.
using mine = ht::recipe<ht::amp_bf16, rule<"*.norm", ht::full_fp32>, rule<"h.0.attn", ht::full_fp32>,
                        rule<"h.last", ht::full_fp32>, rule<"h.last.attn.qkv", ht::amp_bf16>>;
static_assert(same<ht::detail::classes_of<mine, "h">::type, ht::indices<ht::detail::last_index, 0>>);
static_assert(same<ht::detail::classes_of<mine, "other">::type, ht::indices<>> &&
              same<ht::detail::classes_of<ht::amp_bf16, "h">::type, ht::indices<>>);

static_assert(same<ht::detail::classes_of<ruled<"h.3", "h.12.attn", "h.3.norm">, "h">::type, ht::indices<3, 12>>);
static_assert(
    same<ht::detail::classes_of<ruled<"h.*", "h.*.norm", "h", "h.1x", "h.1*", "h.lasting", "h.01">, "h">::type, ht::indices<>>);
static_assert(same<ht::detail::classes_of<ruled<"h.00">, "h">::type, ht::indices<>> &&
              same<ht::detail::classes_of<ruled<"h.0">, "h">::type, ht::indices<0>>);
static_assert(same<ht::detail::classes_of<ruled<"h.12345678901">, "h">::type, ht::indices<>>);
static_assert(same<ht::detail::classes_of<ruled<"hh.0", "g.h.0">, "h">::type, ht::indices<>>);
static_assert(same<ht::detail::classes_of<ruled<"*.0">, "h">::type, ht::indices<0>> &&
              same<ht::detail::classes_of<ruled<"*.h.0">, "h">::type, ht::indices<0>>);
static_assert(same<ht::detail::classes_of<at<ruled<"decoder.h.7">, "decoder">, "h">::type, ht::indices<7>>);

// A list inside a list: an index of the outer one leads to the inner one of that layer only.
using nested = ruled<"h.0.experts.1", "h.*.experts.2">;
static_assert(same<ht::detail::classes_of<nested, "h">::type, ht::indices<0>>);
static_assert(same<ht::detail::classes_of<at<at<nested, "h">, "*">, "experts">::type, ht::indices<2>>);
static_assert(same<ht::detail::classes_of<at<at<nested, "h">, "0">, "experts">::type, ht::indices<2, 1>>);

TEST_CASE("each layer of a list has the class that its index names") {
    using classes = ht::indices<4, ht::detail::last_index, 0>;
    CHECK(classes::class_of(0, 8) == 2);
    CHECK(classes::class_of(1, 8) == 3);
    CHECK(classes::class_of(4, 8) == 0);
    CHECK(classes::class_of(7, 8) == 1);
    CHECK(classes::class_of(4, 5) == 0);  // both the fourth and the last: the class that comes first
    CHECK(classes::class_of(0, 1) == 1);
    CHECK(ht::indices<>::class_of(0, 1) == 0);
    CHECK(ht::detail::classes_of<mine, "h">::class_of(0, 1) == 0);
}

}  // namespace policy_repeat_tests
