// SPDX-License-Identifier: MIT
// expect: halftone: ledger, casts: the first layer of this model is given numbers, and not ids: say of which type
#include <halftone/policy/ledger.hpp>
#include <halftone/policy/operations.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

template <class P>
struct linear {
    using policy = P;
    using operation = ht::op::linear;
    static constexpr bool owns_parameters = true;
};
template <class P>
struct model {
    using policy = P;
    using children = ht::types<linear<ht::at<P, "up">>, linear<ht::at<P, "down">>>;
};

#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::casts<model<ht::amp_bf16>, const float> == 2);
#else
static_assert(ht::casts<model<ht::amp_bf16>> == 2);
#endif
