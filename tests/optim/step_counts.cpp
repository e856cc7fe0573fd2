// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "optim/reached_checks.hpp"

namespace optim_step_counts_tests {

namespace ht = halftone;
using pure = ht::with_state<ht::pure_bf16, ht::bfloat16>;

TEST_CASE_TEMPLATE("step counts: windows that do not reach a parameter have no effect on it", P, ht::full_fp32,
                   ht::amp_fp16, pure, ht::with_split_master<ht::amp_bf16>) {
    ht::cpu device{{.threads = 1}};
    reached::check<P>(device);
}

TEST_CASE("step counts: the first step of a parameter has AdamW's first bias correction, whenever it is taken") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    ht::adamw optimizer{device, model, {.lr = 0.5, .epsilon = 0, .weight_decay = 0}};
    ht::accumulator acc{model, ht::unscaled};
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return 3.0f; };
    std::size_t reached = 0;
    tape.reaches = [&](std::size_t entry) { return entry == reached; };
    const auto step = [&] {
        tape.backward(small::loss{}, acc, model.parameters());
        optimizer.step(acc.take());
    };
    for (int i = 0; i < 100; ++i) step();
    reached = 3;
    const float before = model.head.weight.master()(0);
    step();
    CHECK(model.head.weight.master()(0) == doctest::Approx(before - 0.5f).epsilon(1e-5));
    CHECK(optimizer.steps() == 101);
    CHECK(optimizer.state().step_counts == std::vector<std::int64_t>{100, 0, 0, 1});
}

TEST_CASE("step counts: invalid states are refused, valid ones replace the state") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    ht::sgd optimizer{device, model, {.lr = 1}};
    CHECK_THROWS_WITH_AS(optimizer.load({.steps = 3, .lr = 1, .step_counts = {3, 3}}),
                         "sgd: a state with the step counts of 2 parameters; expected none, or for each of 4, 0 to 3",
                         ht::argument_error);
    CHECK_THROWS_AS(optimizer.load({.steps = 3, .lr = 1, .step_counts = {3, 3, 4, 0}}), ht::argument_error);
    CHECK_THROWS_AS(optimizer.load({.steps = 3, .lr = 1, .step_counts = {3, 3, -1, 0}}), ht::argument_error);
    CHECK(optimizer.steps() == 0);
    optimizer.load({.steps = 3, .lr = 1, .step_counts = {3, 1, 1, 0}});
    CHECK(optimizer.state().step_counts == std::vector<std::int64_t>{3, 1, 1, 0});
    optimizer.load({.steps = 2, .lr = 1});
    CHECK(optimizer.state().step_counts.empty());
    CHECK(optimizer.steps() == 2);
}

}  // namespace optim_step_counts_tests
