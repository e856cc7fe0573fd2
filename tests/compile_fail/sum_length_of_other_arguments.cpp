// SPDX-License-Identifier: MIT
// expect: halftone: shadow_run: the `sum_length` of this operation is not a public static number, `static constexpr ht::extent sum_length = 1;`, and no static function of the shapes of its result and of each of its inputs that are variables or parameters of numbers
#include <halftone/kernel.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/observe/shadow/shadow.hpp>

namespace ht = halftone;

struct doubled {
    static constexpr const char* name = "doubled";
    static auto forward(auto& ctx, const auto& x) { return ht::mul(ctx, x, 2); }
    static auto backward(auto& ctx, const auto& dy) { return ht::mul(ctx, dy, 2); }
};
struct of_both_shapes : doubled {
    static ht::extent sum_length(const auto& y, const auto& x) { return x.size() / y.size(); }
};
#if defined(HALFTONE_TEST_RIGHT)
using other = of_both_shapes;
#else
struct other : doubled {
    static ht::extent sum_length(const auto& x) { return x.size(); }
};
#endif

template <class P>
struct net : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit net(ht::cpu& device) : model{device}, fc{parameters(), 4, 4} { commit(*this); }
    auto operator()(auto& ctx, const auto& x) const {
        return ht::mean(ctx, ht::apply<other>(ctx, ht::apply<of_both_shapes>(ctx, fc(ctx, x))));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

void use(ht::cpu& device, net<ht::amp_fp16>& model, net<ht::full_fp32>& twin, ht::const_view<float, 2> x) {
    ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) { return m(tape, tape.constant(x)); });
}
