// SPDX-License-Identifier: MIT
// expect: halftone: apply: an argument is a container of variables or parameters
#include <vector>

#include <halftone/autodiff/op/apply.hpp>
#include <halftone/kernel.hpp>

namespace ht = halftone;

struct sum_of_all {
    static constexpr const char* name = "sum_of_all";
    static auto forward(auto& ctx, const auto& first, const std::vector<ht::variable<float, 1>>& rest) {
        auto sum = first;
        for (const auto& x : rest) sum = ht::add(ctx, sum, x);
        return sum;
    }
    static auto forward(auto& ctx, const auto& first, const auto& second) { return ht::add(ctx, first, second); }
    static auto backward(auto&, const auto& dy) { return std::tuple{dy, dy}; }
};

void use(ht::tape<ht::cpu>& tape, const ht::variable<float, 1>& x) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::apply<sum_of_all>(tape, x, x);
#else
    ht::apply<sum_of_all>(tape, x, std::vector<ht::variable<float, 1>>{x, x});
#endif
}
