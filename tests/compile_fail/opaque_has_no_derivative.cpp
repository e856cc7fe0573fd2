// SPDX-License-Identifier: MIT
// expect: halftone: derivative: an opaque functor has no derivative; write it as a generic lambda over ht:: functions
#include <halftone/kernel/map/expression/derivative.hpp>

namespace ht = halftone;

struct cube {
    HALFTONE_HD float operator()(float x) const { return x * x * x; }
};

// Of y it does not depend.
#if defined(HALFTONE_TEST_RIGHT)
constexpr int chosen = 1;
#else
constexpr int chosen = 0;
#endif
constexpr auto e = ht::trace<2>([](auto x, auto y) { return ht::opaque(cube{})(x) + y; });
constexpr auto d = ht::derivative<chosen>(e);
static_assert(ht::expression<decltype(d)>);
