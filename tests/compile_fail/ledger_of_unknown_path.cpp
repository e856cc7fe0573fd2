// SPDX-License-Identifier: MIT
// expect: halftone: casts_at: this path names no layer of the model, and would count nothing
#include <halftone/policy/ledger.hpp>

namespace ht = halftone;

struct last_norm {  // `norm` is a function in CUDA
    using policy = ht::at<ht::amp_bf16, "norm">;
    using operation = ht::op::layer_norm;
    static constexpr bool owns_parameters = true;
};
struct model {
    last_norm first;
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.first); }
};
#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::casts_at<model, "norm", ht::bfloat16> == 3);
#else
static_assert(ht::casts_at<model, "norms", ht::bfloat16> == 0);
#endif
