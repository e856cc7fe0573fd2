// SPDX-License-Identifier: MIT
// expect: halftone: map: a symbolic condition has no truth value; choose with ht::where(condition, a, b)
#include <halftone/kernel/map/expression/expression.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
constexpr auto e = ht::trace<1>([](auto x) { return ht::where(x < 0, 0, x); });
#else
const auto e = ht::trace<1>([](auto x) { return x < 0 ? 0 * x : 1 * x; });
#endif
static_assert(ht::reads<0, decltype(e)>);
