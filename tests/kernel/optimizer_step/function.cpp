// SPDX-License-Identifier: MIT
/// \file
/// ht::adamw_step, ht::lion_step and ht::sgd_step on the CPU: steps within their bounds of the definition.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/function.hpp>
#include <halftone/kernel/optimizer_step/reference.hpp>
#include <halftone/policy/presets.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace kernel_optimizer_step_function_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using support::guarded;
using doubles = std::vector<double>;

template <class T>
doubles doubles_of(const guarded<T>& g) {
    doubles d;
    for (extent i = 0; i < g.size(); ++i) d.push_back(static_cast<double>(g[i]));
    return d;
}
ht::view<double, 1> view_of(doubles& d) { return {d.data(), {static_cast<extent>(d.size())}}; }

TEST_CASE("adamw_step: one step within its bound of the definition, the copy rounded from the parameter") {
    constexpr extent rows = 3, width = 37, n = rows * width;
    const ht::shape<2> shape{rows, width};
    ht::cpu device{{.threads = 1}};
    support::random data(1);
    const guarded<float> w(data.normals<float>(n)), g(data.normals<float>(n, 0.5)), m(data.normals<float>(n, 0.1)),
        v(n);
    for (extent i = 0; i < n; ++i) v[i] = 0.01f + 0.001f * static_cast<float>(i);
    const guarded<bfloat16> copy(n);
    doubles want = doubles_of(w), gradients = doubles_of(g), first = doubles_of(m), second = doubles_of(v);
    const doubles w0 = want, m0 = first;
    ht::reference::adamw(view_of(want), view_of(gradients), view_of(first), view_of(second), {0.9, 0.99, 1e-6}, 0.01,
                         0.1, 3);
    ht::adamw_step<ht::amp_bf16>(
        device, w.view(shape), copy.view(shape), g.const_view(shape), m.view(shape), v.view(shape),
        {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1, .step = 3});
    support::comparison masters, firsts, seconds;
    for (extent i = 0; i < n; ++i) {
        // As in the tests of the kernels: sums of magnitudes and the roundings of each part.
        const auto k = static_cast<std::size_t>(i);
        const double error_m =
            support::gamma(6) * (0.9 * std::fabs(m0[k]) + 0.1 * (std::fabs(gradients[k]) + std::fabs(m0[k])));
        firsts.expect(static_cast<double>(m[i]), first[k], error_m);
        seconds.expect(static_cast<double>(v[i]), second[k], support::gamma(9) * second[k]);
        const double update = std::fabs(want[k] - w0[k] * (1 - 0.01 * 0.1)), size = 0.01 / (1 - 0.729);
        const double denominator = std::sqrt(second[k] / (1 - 0.970299)) + 1e-6;
        masters.expect(static_cast<double>(w[i]), want[k],
                       support::gamma(3) * std::fabs(w0[k]) + update * support::gamma(12) +
                           size * error_m / denominator + support::u * std::fabs(want[k]));
        CHECK(copy[i].bits() == bfloat16(w[i]).bits());
    }
    CHECK_WITHIN(masters);
    CHECK_WITHIN(firsts);
    CHECK_WITHIN(seconds);
    CHECK((w.intact() && copy.intact() && m.intact() && v.intact()));
}

TEST_CASE("sgd_step: two steps with momentum within their bound of the definition, the first sets it") {
    constexpr extent n = 101;
    ht::cpu device{{.threads = 1}};
    support::random data(2);
    const guarded<float> w(data.normals<float>(n)), g(data.normals<float>(n)), m(data.normals<float>(n));
    const ht::kernel::sgd_rule c{.momentum = 0.9, .kind = ht::kernel::momentum_kind::nesterov};
    for (const std::int64_t step : {1, 2}) {
        doubles want = doubles_of(w), gradients = doubles_of(g), momentum = doubles_of(m);
        const doubles w0 = want, m0 = momentum;
        ht::reference::sgd(view_of(want), view_of(gradients), view_of(momentum), c, 0.01, 0.1,
                           static_cast<double>(step));
        ht::sgd_step<ht::full_fp32>(device, w.view(), ht::view<float, 1>{}, g.const_view(), m.view(),
                                    {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1, .kind = c.kind, .step = step});
        support::comparison masters, momenta;
        for (extent i = 0; i < n; ++i) {
            const auto k = static_cast<std::size_t>(i);
            const double sum = std::fabs(gradients[k]) + 0.1 * std::fabs(w0[k]) + 0.9 * std::fabs(m0[k]);
            momenta.expect(static_cast<double>(m[i]), momentum[k], support::gamma(8) * sum);
            masters.expect(static_cast<double>(w[i]), want[k],
                           0.01 * support::gamma(13) * 2 * sum + support::u * std::fabs(want[k]));
        }
        CHECK_WITHIN(masters);
        CHECK_WITHIN(momenta);
    }
    CHECK((w.intact() && m.intact()));
}

TEST_CASE("lion_step: one step within its bound of the definition, the copy rounded from the parameter") {
    constexpr extent n = 101;
    ht::cpu device{{.threads = 1}};
    support::random data(4);
    const guarded<float> w(data.normals<float>(n)), g(data.normals<float>(n)), m(data.normals<float>(n));
    const guarded<bfloat16> copy(n);
    doubles want = doubles_of(w), gradients = doubles_of(g), momentum = doubles_of(m);
    const doubles w0 = want, m0 = momentum;
    ht::reference::lion(view_of(want), view_of(gradients), view_of(momentum), {.beta1 = 0.95, .beta2 = 0.98}, 0.01, 0.1);
    ht::lion_step<ht::amp_bf16>(device, w.view(), copy.view(), g.const_view(), m.view(),
                                {.lr = 0.01, .beta1 = 0.95, .beta2 = 0.98, .weight_decay = 0.1});
    support::comparison masters, momenta;
    for (extent i = 0; i < n; ++i) {
        const auto k = static_cast<std::size_t>(i);
        const double sum = std::fabs(gradients[k]) + std::fabs(m0[k]);
        REQUIRE(std::fabs(0.95 * m0[k] + 0.05 * gradients[k]) > support::gamma(6) * sum);  // so that no sign is in doubt
        momenta.expect(static_cast<double>(m[i]), momentum[k], support::gamma(6) * sum);
        masters.expect(static_cast<double>(w[i]), want[k], support::gamma(4) * (std::fabs(w0[k]) + 0.01));
        CHECK(copy[i].bits() == bfloat16(w[i]).bits());
    }
    CHECK_WITHIN(masters);
    CHECK_WITHIN(momenta);
    CHECK((w.intact() && copy.intact() && m.intact()));
}

TEST_CASE("adamw_step and sgd_step: clipping factors, and wrong arguments") {
    constexpr extent n = 64;
    ht::cpu device;
    support::random data(3);
    const std::vector<float> start = data.normals<float>(n), gradients = data.normals<float>(n);
    std::vector<float> halves;
    for (const float g : gradients) halves.push_back(g / 2);
    const guarded<float> a(start), b(start), g(gradients), half(halves);
    const ht::view<float, 1> none{};
    ht::kernel::gradient_record record;
    record.factors.inv_scale = 0.5f;
    ht::sgd_step<ht::full_fp32>(device, a.view(), none, g.const_view(), none, {.lr = 0.1, .factors = &record.factors});
    ht::sgd_step<ht::full_fp32>(device, b.view(), none, half.const_view(), none, {.lr = 0.1});
    CHECK(a.same_bits(b));
    const guarded<float> short_of(n - 1), moment(n);
    CHECK_THROWS_WITH_AS(
        ht::adamw_step<ht::full_fp32>(device, a.view(), none, short_of.const_view(), moment.view(), moment.view()),
        "adamw: gradient is (63); expected (64)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::sgd_step<ht::full_fp32>(device, a.view(), none, g.const_view(), none, {.step = 0}),
                         "sgd_step: the step is 0; expected 1 or more", ht::argument_error);
}

}  // namespace kernel_optimizer_step_function_tests
