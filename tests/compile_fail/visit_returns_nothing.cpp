// SPDX-License-Identifier: MIT
// expect: halftone: visit must call f once, with all children, and return what it returns
#include "../policy/small_gpt.hpp"

namespace ht = halftone;

template <class P>
struct block {
    outline::layer_norm<ht::at<P, "norm">> norm{};
    outline::linear<ht::at<P, "fc">> fc{};
#if defined(HALFTONE_TEST_RIGHT)
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.fc); }
#else
    static void visit(auto&& self, auto&& f) {
        f(self.norm);
        f(self.fc);
    }
#endif
};
static_assert(ht::layers_of<block<ht::amp_bf16>>::size == 2);
