// SPDX-License-Identifier: MIT
/// \file
/// Lists of types.
#include <type_traits>

#include <halftone/policy/types.hpp>

namespace policy_types_tests {

namespace ht = halftone;

template <class A, class B>
inline constexpr bool same = std::is_same_v<A, B>;

static_assert(same<ht::detail::concatenate_t<ht::types<int>, ht::types<>, ht::types<char, int>>, ht::types<int, char, int>>);
static_assert(same<ht::detail::concatenate_t<>, ht::types<>>);
static_assert(same<ht::detail::unique_t<ht::types<int, char, int, char, float>>, ht::types<int, char, float>>);
static_assert(ht::types<int, char>::size == 2 && ht::types<>::size == 0);

}  // namespace policy_types_tests
