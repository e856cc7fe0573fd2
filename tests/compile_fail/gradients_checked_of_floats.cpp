// SPDX-License-Identifier: MIT
// expect: halftone: check_gradients: inputs are views of doubles, one or more
// expect: halftone: check_gradients: the function's result is not a variable of doubles
// expect: halftone: check_gradients: this model has parameters that are not doubles
#include <halftone/amp.hpp>
#include <halftone/observe/check_gradients.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using input = double;
using explicitly = double;
using trained = ht::full_fp64;
#else
using input = float;
using explicitly = float;
using trained = ht::full_fp32;
#endif

struct net : ht::nn::model {
    using policy = trained;
    ht::nn::linear<policy> fc;
    explicit net(ht::cpu& device) : model(device), fc(parameters(), 2, 2) { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

void use(ht::cpu& device, net& model, const ht::view<input, 2>& x, const ht::view<double, 2>& y) {
    static_cast<void>(ht::check_gradients(
        device, [](auto& ctx, auto a) { return ht::exp(ctx, a); }, x));
    static_cast<void>(ht::check_gradients(
        device, [](auto& ctx, auto a) { return ht::softmax<explicitly>(ctx, a); }, y));
    static_cast<void>(ht::check_gradients(device, model, [&](auto& ctx) {
        return ht::sum<double>(ctx, model.fc(ctx, ctx.constant(ht::const_view<input, 2>(x))));
    }));
}
