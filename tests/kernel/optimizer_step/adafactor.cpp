// SPDX-License-Identifier: MIT
/// \file
/// A step of Adafactor on every instruction set; adafactor_checks.hpp has the tests.
#include <halftone/kernel/optimizer_step/adafactor/cpu.hpp>
#include <halftone/kernel/optimizer_step/adafactor/function.hpp>
#include <halftone/policy.hpp>

#include "kernel/optimizer_step/adafactor_checks.hpp"
#include "kernel/optimizer_step/each_set.hpp"

namespace kernel_optimizer_step_adafactor_tests {

using namespace adafactor_checks;

TEST_CASE("adafactor: equals its definition, rounds each parameter by the random bits of its index") {
    step_checks::on_each_set([](ht::cpu& device) {
        equals_definition<slabs<float, ht::bfloat16, float>>(device);
        rounds_by_place(device);
    });
}

TEST_CASE("adafactor: the bits do not depend on the number of threads") {
    using mixed = slabs<float, ht::bfloat16, float>;
    for (const ht::shape<2>& shape : {ht::shape<2>{300, 1100}, ht::shape<2>{0, 40000}}) {
        ht::cpu one{{.threads = 1}}, three{{.threads = 3}};
        support::random a{3}, b{3};
        const mixed first(one, a, shape), second(three, b, shape);
        for (int t = 0; t < 2; ++t) run(one, first.arguments(third)), run(three, second.arguments(third));
        CHECK(first.same_bits(second));
    }
}

TEST_CASE("adafactor_step: the function has the bits of the step, of a matrix and of a vector") {
    using mixed = slabs<float, ht::bfloat16, float>;
    ht::cpu device{{.threads = 2}};
    for (const ht::shape<2>& shape : {ht::shape<2>{17, 70}, ht::shape<2>{0, 67}}) {
        support::random a{3}, b{3};
        const mixed by_function(device, a, shape), by_step(device, b, shape);
        auto arguments = by_step.arguments(third);
        arguments.step.average = {};
        run(device, arguments);
        const ht::adafactor_step_options options{.lr = 0.01,
                                                 .epsilon1 = rule.epsilon1,
                                                 .d = rule.d,
                                                 .weight_decay = 0.1,
                                                 .step = 3,
                                                 .factors = &factors};
        const mixed& s = by_function;
        if (s.is_vector) {
            ht::adafactor_step<ht::amp_bf16>(device, s.master.view(), s.copy.view(), s.gradient.const_view(),
                                             ht::view<float, 1>{}, s.columns.view(), options);
        } else {
            const ht::view<float, 2> matrix(s.master.view().data(), s.shape);
            ht::adafactor_step<ht::amp_bf16>(device, matrix, s.copy.view(), s.gradient.const_view(), s.rows.view(),
                                             s.columns.view(), options);
        }
        CHECK(by_function.same_bits(by_step));
    }
}

TEST_CASE("adafactor: a skipped step changes nothing; arguments that do not fit together are refused") {
    ht::cpu device{{.threads = 1}};
    skips_and_refuses(device);
}

}  // namespace kernel_optimizer_step_adafactor_tests
