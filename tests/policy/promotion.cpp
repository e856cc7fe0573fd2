// SPDX-License-Identifier: MIT
/// \file
/// Which number type contains which, and the promotion of two types, including user-defined ones.
#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/policy/promotion.hpp>

#include "number_types.hpp"
#include "support/own_numbers.hpp"

namespace policy_promotion_tests {

namespace ht = halftone;
using ht::bfloat16, ht::float16;

template <class A, class B>
inline constexpr bool same = std::is_same_v<A, B>;

static_assert(ht::contains<float, float> && ht::contains<double, float> && !ht::contains<float, double>);
static_assert(ht::contains<float, float16> && ht::contains<float, bfloat16>);
static_assert(!ht::contains<float16, bfloat16> && !ht::contains<bfloat16, float16>);
// A format whose numbers lie elsewhere than those of the least binary format that has them all contains nothing else.
static_assert(ht::contains<float, support::log8> && ht::contains<support::log8, support::log8>);
static_assert(!ht::contains<support::log8, support::fixed16>);
static_assert(std::is_same_v<ht::promote<support::log8, support::fixed16>, float>);
static_assert(ht::contains<float24, bfloat16> && ht::contains<float24, float16>);
static_assert(!ht::contains<float, int>);

static_assert(same<ht::promote<float16>, float16>);
static_assert(same<ht::promote<float16, float16>, float16>);
static_assert(same<ht::promote<float16, bfloat16>, float>);
static_assert(same<ht::promote<bfloat16, float16, bfloat16>, float>);
static_assert(same<ht::promote<bfloat16, float>, float>);
static_assert(same<ht::promote<float, double>, double> && same<ht::promote<double, float16>, double>);
static_assert(same<ht::promote<bfloat16, float24>, float24>);
static_assert(same<ht::promote<wide_range, float>, double>);               // 2^300 does not fit in a float
static_assert(same<ht::promote<std::int64_t, bfloat16, bool>, bfloat16>);  // indices and masks have no say
static_assert(same<ht::promote<int>, void> && same<ht::promote<>, void>);

}  // namespace policy_promotion_tests
