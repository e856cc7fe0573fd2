// SPDX-License-Identifier: MIT
// expect: halftone: map: the function does not take that many symbolic arguments; give a generic lambda
#include <halftone/kernel/map/map.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
constexpr auto e = ht::trace<2>([](auto x, auto y) { return x + y; });
#else
constexpr auto e = ht::trace<2>([](float x, float y) { return x + y; });
#endif
static_assert(ht::reads<1, decltype(e)>);
