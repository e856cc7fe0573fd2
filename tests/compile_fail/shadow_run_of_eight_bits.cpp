// SPDX-License-Identifier: MIT
// expect: shadow_run: a layer of this model reads products' operands in eight bits, and how far that carries its results is not known here: ht::numerics_collector tells what becomes of these operands
#include <halftone/kernel.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/observe/shadow.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::amp_bf16;
#else
using policy = ht::fp8_hybrid;
#endif

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "in">> in;
    explicit network(ht::cpu& device) : model(device), in(parameters(), 16, 16) { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.in); }
};

ht::shadow_report look(ht::cpu& device, network<policy>& model, const ht::const_view<float, 2>& x) {
    ht::shadow_twin<network<policy>> twin{device};
    return ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        return ht::mean<float>(tape, m.in(tape, tape.constant(x)));
    });
}
