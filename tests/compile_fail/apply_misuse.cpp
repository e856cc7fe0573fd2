// SPDX-License-Identifier: MIT
// expect: halftone: apply: this operation has no name
// expect: halftone: apply: this operation has no `static auto backward(auto& ctx, const auto& dy, ...)` that takes what its forward function keeps
// expect: halftone: apply: this operation has no `static auto forward(auto& ctx, ...)` for these inputs
// expect: halftone: apply: forward returns a variable, or ht::keep(variable, what backward needs...)
// expect: halftone: apply: backward returns another number of gradients than the operation has inputs
// expect: halftone: apply: backward returns variables, one for each input, and ht::absent{} for an input without a gradient
// expect: halftone: apply: a gradient that backward returns has another rank than its input
// expect-nvcc: halftone: apply: this operation has no name
// expect-nvcc: halftone: apply: this operation has no `static auto forward(auto& ctx, ...)` for these inputs
#include <tuple>

#include <halftone/autodiff/op/apply.hpp>
#include <halftone/kernel.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
constexpr bool is_right = true;
#else
constexpr bool is_right = false;
#endif

template <bool>
struct named {
    static constexpr const char* name = "named";
};
template <>
struct named<false> {};

struct nameless : named<is_right> {
    static auto forward(auto& ctx, const auto& x) { return ht::mul(ctx, x, 2); }
    static auto backward(auto& ctx, const auto& dy) { return ht::mul(ctx, dy, 2); }
};

struct keeps_more : named<true> {
    static auto forward(auto& ctx, const auto& x) {
        if constexpr (is_right) {
            return ht::mul(ctx, x, 2);
        } else {
            return ht::keep(ht::mul(ctx, x, 2), x);
        }
    }
    static auto backward(auto& ctx, const auto& dy) { return ht::mul(ctx, dy, 2); }
};

struct gives_a_view : named<true> {
    static auto forward(auto& ctx, const auto& x) {
        if constexpr (is_right) {
            return ht::mul(ctx, x, 2);
        } else {
            return x.view();
        }
    }
    static auto backward(auto& ctx, const auto& dy) { return ht::mul(ctx, dy, 2); }
};

struct one_gradient_of_two : named<true> {
    static auto forward(auto& ctx, const auto& a, const auto& b) { return ht::sub(ctx, a, b); }
    static auto backward(auto& ctx, const auto& dy) {
        if constexpr (is_right) {
            return std::tuple{dy, ht::mul(ctx, dy, -1)};
        } else {
            return dy;
        }
    }
};

struct gradient_is_a_number : named<true> {
    static auto forward(auto& ctx, const auto& x) { return ht::mul(ctx, x, 2); }
    static auto backward(auto& ctx, const auto& dy) {
        if constexpr (is_right) {
            return ht::mul(ctx, dy, 2);
        } else {
            return 2.0f;
        }
    }
};

struct gradient_of_a_row : named<true> {
    static auto forward(auto& ctx, const auto& x) { return ht::mul(ctx, x, 2); }
    static auto backward(auto& ctx, const auto& dy) {
        if constexpr (is_right) {
            return ht::mul(ctx, dy, 2);
        } else {
            return ht::reshape(ctx, dy, ht::shape<2>{1, dy.size()});
        }
    }
};

struct named_too : named<true> {
    static auto forward(auto& ctx, const auto& x) { return ht::mul(ctx, x, 2); }
    static auto backward(auto& ctx, const auto& dy) { return ht::mul(ctx, dy, 2); }
};

void use(ht::tape<ht::cpu>& tape, const ht::variable<float, 1>& x) {
    ht::apply<nameless>(tape, x);
    ht::apply<keeps_more>(tape, x);
#if defined(HALFTONE_TEST_RIGHT)
    ht::apply<named_too>(tape, x);
#else
    ht::apply<named_too>(tape, x, x);
#endif
    ht::apply<gives_a_view>(tape, x);
    ht::apply<one_gradient_of_two>(tape, x, x);
    ht::apply<gradient_is_a_number>(tape, x);
    ht::apply<gradient_of_a_row>(tape, x);
}
