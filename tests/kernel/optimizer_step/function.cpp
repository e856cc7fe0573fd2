// SPDX-License-Identifier: MIT
/// \file
/// ht::adamw_step, ht::lion_step and ht::sgd_step on the CPU: steps within their bounds of the definition.
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/function.hpp>
#include <halftone/policy/presets.hpp>

#include "kernel/optimizer_step/step_checks.hpp"

namespace kernel_optimizer_step_function_tests {

using namespace step_checks;

TEST_CASE("adamw_step: a step within its bound of the definition, the copy rounded from the parameter") {
    const ht::shape<2> shape{3, 37};
    ht::cpu device{{.threads = 1}};
    support::random data(1);
    const slabs<adamw_rule, float, ht::bfloat16, float, float> s(data, shape.size());
    const in_doubles before(s);
    ht::adamw_step<ht::amp_bf16>(
        device, s.master.view(shape), s.copy.view(shape), s.gradient.const_view(shape), s.moments[0].view(shape),
        s.moments[1].view(shape),
        {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = decay, .step = 3});
    definition<std::decay_t<decltype(s)>> all;
    all.expect(s, before, third, plain);
    all.check();
}

TEST_CASE("sgd_step: two steps with momentum within their bound of the definition, the first sets it") {
    ht::cpu device{{.threads = 1}};
    support::random data(2);
    const slabs<sgd_rule, float, float, float, float> s(data, 95);
    definition<std::decay_t<decltype(s)>> all;
    for (const std::int64_t step : {1, 2}) {
        const in_doubles before(s);
        ht::sgd_step<ht::full_fp32>(
            device, s.master.view(), s.copy.view(), s.gradient.const_view(), s.moments[0].view(),
            {.lr = 0.01, .momentum = 0.9, .weight_decay = decay, .kind = s.rule.kind, .step = step});
        all.expect(s, before, {.steps = step, .lr = 0.01}, plain);
    }
    all.check();
}

TEST_CASE("lion_step: a step within its bound of the definition, the copy rounded from the parameter") {
    ht::cpu device{{.threads = 1}};
    support::random data(4);
    slabs<lion_rule, float, ht::bfloat16, float, float> s(data, 101);
    s.rule = {.beta1 = 0.95, .beta2 = 0.98};  // neither is the options' own
    const in_doubles before(s);
    ht::lion_step<ht::amp_bf16>(device, s.master.view(), s.copy.view(), s.gradient.const_view(), s.moments[0].view(),
                                {.lr = 0.01, .beta1 = 0.95, .beta2 = 0.98, .weight_decay = decay});
    definition<std::decay_t<decltype(s)>> all;
    all.expect(s, before, third, plain);
    all.check();
}

TEST_CASE("adamw_step and sgd_step: clipping factors, and wrong arguments") {
    constexpr ht::extent n = 64;
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
