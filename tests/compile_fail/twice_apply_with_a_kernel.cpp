// SPDX-License-Identifier: MIT
// expect: halftone: apply: on a tape for second derivatives the operations of backward are recorded
// expect: is not known: compose this backward of halftone's operations (ht::map, ht::matmul, ...), or apply it on ht::tape tape{device}
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

struct doubled {
    static constexpr const char* name = "doubled";
    static auto forward(auto& ctx, const auto& x) { return ht::mul(ctx, x, 2); }
    static auto backward(auto& ctx, const auto& dy) {
#if defined(HALFTONE_TEST_RIGHT)
        return ht::mul(ctx, dy, 2);
#else
        auto dx = ctx.template make<float>(dy.shape());
        ht::map(
            ctx.device(), [](auto g) { return 2 * g; }, ht::as_const(dy.view()), dx.view());
        return dx;
#endif
    }
};

auto apply(ht::tape<ht::cpu, ht::double_backward_tape>& tape, const ht::variable<float, 1>& x) {
    return ht::apply<doubled>(tape, x);
}
