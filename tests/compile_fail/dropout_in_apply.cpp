// SPDX-License-Identifier: MIT
// expect: halftone: dropout: the functions of a custom operation (ht::apply) run in a context that does not record, where dropout would do nothing even in training: call it on the tape, before or after ht::apply
#include <halftone/autodiff/op/apply.hpp>
#include <halftone/kernel.hpp>
#include <halftone/kernel/dropout/cpu.hpp>
#include <halftone/nn/dropout.hpp>

namespace ht = halftone;

struct doubled {
    static constexpr const char* name = "doubled";
    static auto forward(auto& ctx, const auto& x) {
#if defined(HALFTONE_TEST_RIGHT)
        return ht::mul(ctx, x, 2);
#else
        return ht::mul(ctx, ht::dropout(ht::autocast<ht::full_fp32>(ctx), x, {.p = 0.5f}), 2);
#endif
    }
    static auto backward(auto& ctx, const auto& dy) { return ht::mul(ctx, dy, 2); }
};

template <class Context>
auto use(Context& ctx, const ht::variable<float, 1>& x) {
    return ht::nn::dropout{0.25f}(ctx, ht::apply<doubled>(ctx, ht::dropout(ctx, x, {.p = 0.5f}, x)));
}
auto train(ht::tape<ht::cpu>& tape, const ht::variable<float, 1>& x) { return use(tape, x); }
auto evaluate(ht::inference<ht::cpu>& inference, const ht::variable<float, 1>& x) { return use(inference, x); }
