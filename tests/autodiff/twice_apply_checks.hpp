// SPDX-License-Identifier: MIT
/// \file
/// Custom operations on a tape for second derivatives, on any device.
#pragma once

#include <halftone/autodiff/op/apply.hpp>

#include "autodiff/twice_checks.hpp"
#include "support/cubed.hpp"

namespace twice_checks {

using support::cubed;

/// exp(x) by a kernel of its own, which keeps its result.
struct exponential {
    static constexpr const char* name = "exponential";
    static auto forward(auto& ctx, const auto& x) {
        auto y = ctx.template make<float>(x.shape());
        ht::map(
            ctx.device(), [](auto a) { return ht::exp(a); }, ht::as_const(ht::flatten(x.view())),
            ht::flatten(y.view()));
        return ht::keep(y, y);
    }
    static auto backward(auto& ctx, const auto& dy, const auto& y) { return ht::mul(ctx, dy, y); }
};

/// factor x w, of two inputs of which one may want no gradient, keeping w in another shape.
struct scaled_product {
    static constexpr const char* name = "scaled_product";
    static auto forward(auto& ctx, const auto& x, const auto& w, float factor) {
        const auto y = ht::mul(ctx, ht::mul(ctx, x, w), factor);
        return ht::keep(y, x, ht::reshape(ctx, w, ht::shape<1>{w.size()}), factor);
    }
    static auto backward(auto& ctx, const auto& dy, const auto& x, const auto& w, float factor) {
        const auto g = ht::mul(ctx, dy, factor);
        using matrix_type = ht::variable<float, 2>;
        return std::tuple{ctx.wants(0) ? ht::mul(ctx, g, ht::reshape(ctx, w, x.shape())) : matrix_type{},
                          ctx.wants(1) ? ht::mul(ctx, g, x) : matrix_type{}};
    }
};

/// x times a mask that is no function of x, as it says; or that it forgot to say so of.
template <bool Says>
struct masked {
    static constexpr const char* name = "masked";
    static auto forward(auto& ctx, const auto& x) {
        const auto mask = ht::map(
            ctx, [](auto a) { return ht::where(a > 0.0f, 2.0f, 0.5f); }, x);
        if constexpr (Says) {
            return ht::keep(ht::mul(ctx, x, mask), ht::detach(ctx, mask));
        } else {
            return ht::keep(ht::mul(ctx, x, mask), mask);
        }
    }
    static auto backward(auto& ctx, const auto& dy, const auto& mask) { return ht::mul(ctx, dy, mask); }
};

/// x w, which says nothing of autocast, and is no product of halftone's.
struct own_product {
    static constexpr const char* name = "own_product";
    static auto forward(auto& ctx, const auto& x, const auto& w) { return ht::keep(ht::matmul(ctx, x, w), x, w); }
    static auto backward(auto& ctx, const auto& dy, const auto& x, const auto& w) {
        return std::tuple{ht::matmul(ctx, dy, w), ht::matmul(ctx, dy, x)};
    }
};

/// Without a rule the recorded operations of backward follow the region as well: of factors that bfloat16 rounds to 1.
template <class Device>
void check_region(Device& device) {
    const float fine[] = {1.00390625f};
    ht::tape tape{device, ht::double_backward};
    const auto x = tape.leaf(ht::const_view<float, 2>(fine, {1, 1})),
               w = tape.leaf(ht::const_view<float, 2>(fine, {1, 1}));
    const auto value = [&](const auto& view) {
        float v;
        device.memory().read(&v, view.data(), sizeof v);
        return v;
    };
    const auto y = ht::apply<own_product>(ht::autocast<ht::amp_bf16>(tape), x, w);
    static_assert(std::is_same_v<decltype(y), const ht::variable<ht::bfloat16, 2>>);
    const auto grads = tape.gradients(ht::sum<float>(tape, y), x);
    const auto dx = grads.of(x);
    CHECK(value(dx.view()) == 1);
    tape.backward(ht::sum<float>(tape, ht::mul(tape, dx, dx)));
    CHECK(value(tape.gradient(w)) == 2);
}

template <class Device>
void check_own_operations(Device& device) {
    check(
        device, nullptr, {2, 3}, 6,
        [](auto& t, const auto& x) { return weigh(t, ht::apply<cubed>(t, ht::apply<exponential>(t, x))); },
        [](doubles x) {
            for (double& a : x) a = std::exp(3 * a);
            return weighed(x);
        });
    ht::store parameters(device.memory());
    ht::nn::linear<P> layer(parameters, 3, 2, {.deviation = 0.5f});  // its weight is of the shape of x
    parameters.commit(1);
    check(
        device, &parameters, {2, 3}, 12,
        [&](auto& t, const auto& x) {
            return weigh(t, layer(t, ht::apply<scaled_product>(t, ht::apply<masked<true>>(t, x), layer.weight, 0.75f)));
        },
        [](const doubles& all) {
            doubles y;
            for (std::size_t i = 0; i < 6; ++i) y.push_back(0.75 * (all[i] > 0 ? 2 : 0.5) * all[i] * all[6 + i]);
            return weighed(linear(y, 3, &all[6], &all[12], 2));
        });
    const float in[] = {0.5f, -1, 2};
    ht::tape tape{device, ht::double_backward};
    const auto x = tape.leaf(ht::const_view<float, 1>(in, {3}));
    CHECK_THROWS_WITH_AS(ht::apply<masked<false>>(tape, x),
                         "masked: forward keeps a value of shape (3) that is neither an unchanged input nor the "
                         "result, so that its derivative is not known: keep the inputs that it is computed from and "
                         "compute it in backward, or keep ht::detach(ctx, it) if it is a constant",
                         ht::argument_error);
    CHECK_NOTHROW(ht::apply<masked<false>>(tape, tape.constant(ht::const_view<float, 1>(in, {3}))));

    // The input is cast to bf16: the kept input is cast on the tape, too. With small integers everything is exact.
    const float whole[] = {1, -2, 3}, weights[] = {2, 1, -3};
    const auto y = tape.leaf(ht::const_view<float, 1>(whole, {3}));
    const auto loss = ht::sum<float>(tape, ht::apply<cubed>(tape, ht::cast<ht::bfloat16>(tape, y)));
    const auto grads = tape.gradients(loss, y);
    tape.backward(ht::dot(tape, grads.of(y), tape.constant(ht::const_view<float, 1>(weights, {3}))));
    float dy[3];
    device.memory().read(dy, tape.gradient(y).data(), sizeof dy);
    for (int i = 0; i < 3; ++i) CHECK(dy[i] == 6 * whole[i] * weights[i]);
    check_region(device);
}

}  // namespace twice_checks
