// SPDX-License-Identifier: MIT
// expect: halftone: a repeated block must return the type that it takes, the residual stream's; see `output` of its policy
#include <halftone/amp.hpp>

namespace ht = halftone;

template <class P>
struct block {
    ht::nn::linear<ht::at<P, "fc">> fc;
    block(ht::store& s, ht::extent width) : fc(s, width, width) {}
    auto operator()(auto&& ctx, const auto& x) const { return fc(ctx, x); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::recipe<ht::amp_bf16, ht::rule<"h.last", ht::with_output<ht::full_fp32, ht::bfloat16>>>;
#else
using mine = ht::recipe<ht::amp_bf16, ht::rule<"h.last", ht::full_fp32>>;
#endif
auto run(const ht::nn::stack<block, mine, "h">& h, ht::tape<ht::cpu>& tape, const ht::variable<ht::bfloat16, 2>& x) {
    return h(tape, x);
}
