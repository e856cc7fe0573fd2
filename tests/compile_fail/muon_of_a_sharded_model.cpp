// SPDX-License-Identifier: MIT
// expect: this optimizer's steps need whole matrices, and each rank has a range of a sharded model's
#include <halftone/kernel.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/muon.hpp>
#include <halftone/ranks/shard.hpp>

namespace ht = halftone;

template <class P>
struct model_type : ht::nn::model {
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit model_type(ht::cpu& device) : ht::nn::model(device), fc(parameters(), 16, 16) { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

void train(ht::cpu& device, ht::communicator& comm, model_type<ht::full_fp32>& model) {
    ht::shard sharded{device, model, comm, ht::zero1{}};
#if defined(HALFTONE_TEST_RIGHT)
    ht::adamw optimizer{device, sharded};
#else
    ht::muon optimizer{device, sharded, {.hidden = {"fc"}}};
#endif
    (void)optimizer.steps();
}
