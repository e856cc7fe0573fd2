// SPDX-License-Identifier: MIT
// expect: halftone: gated units halve the last axis, which a single value does not have
#include <halftone/autodiff/op/gated.hpp>
#include <halftone/kernel/map/cpu.hpp>

namespace ht = halftone;

auto gate(ht::inference<ht::cpu>& ctx, const ht::variable<float, 0>& one, const ht::variable<float, 1>& two) {
#if defined(HALFTONE_TEST_RIGHT)
    static_cast<void>(one);
    return ht::swiglu(ctx, two);
#else
    static_cast<void>(two);
    return ht::swiglu(ctx, one);
#endif
}
