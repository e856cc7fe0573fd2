// SPDX-License-Identifier: MIT
// expect: halftone: an optimizer's step: the kernels of this device are not included: include <halftone/kernel.hpp> for ht::cpu
#if defined(HALFTONE_TEST_RIGHT)
#include <halftone/kernel.hpp>
#endif
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/optim/adamw.hpp>

namespace ht = halftone;

struct network : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::linear<ht::at<policy, "fc">> fc;

    explicit network(ht::cpu& device) : model(device), fc(parameters(), 4, 4) { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

void step(ht::cpu& device, network& model) {
    ht::adamw optimizer{device, model};
    ht::accumulator acc{model, ht::unscaled};
    optimizer.step(acc.take());
}
