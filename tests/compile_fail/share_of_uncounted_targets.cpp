// SPDX-License-Identifier: MIT
// expect: share_of: a batch says what its loss is a mean over by `targets` or `labels`, a view of std::int32_t of which those that are -100 do not count
#include <halftone/amp.hpp>

namespace ht = halftone;

struct floats {
    ht::const_view<float, 1> targets;
};
struct classes {
    ht::const_view<std::int32_t, 1> targets;
};

#if defined(HALFTONE_TEST_RIGHT)
using batch = classes;
#else
using batch = floats;
#endif

ht::loss_share share(ht::tape<ht::cpu>& tape, const batch& micro, const batch& whole) {
    return ht::share_of(tape, micro, whole);
}
