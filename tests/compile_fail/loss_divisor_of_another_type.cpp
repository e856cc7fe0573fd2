// SPDX-License-Identifier: MIT
// expect: loss_divisor() of a batch or a model returns an ht::loss_divisor, or what one is made of: a view of std::int32_t or of float, or a number
#include <halftone/amp.hpp>

namespace ht = halftone;

struct batch {
#if defined(HALFTONE_TEST_RIGHT)
    float loss_divisor() const { return 2; }
#else
    const char* loss_divisor() const { return "2"; }
#endif
};

ht::loss_share share(ht::tape<ht::cpu>& tape, const batch& micro, const batch& whole) {
    return ht::share_of(tape, micro, whole);
}
