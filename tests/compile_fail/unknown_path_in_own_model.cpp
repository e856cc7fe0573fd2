// SPDX-License-Identifier: MIT
// expect: halftone: this rule's path names no layer of the model
// expect: path_text<'d', 'o', 'w', 'm'>
#include <halftone/amp.hpp>

namespace ht = halftone;

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "down">> down;
    explicit network(ht::cpu& device) : model{device}, down{parameters(), 4, 4} { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.down); }
};

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::recipe<ht::amp_bf16, ht::rule<"down", ht::full_fp32>>;
#else
using mine = ht::recipe<ht::amp_bf16, ht::rule<"dowm", ht::full_fp32>>;
#endif
network<mine>* make(ht::cpu& device) { return new network<mine>(device); }
