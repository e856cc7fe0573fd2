// SPDX-License-Identifier: MIT
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include <halftone/optim/schedule.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/golden.hpp"
#include "optim/small_model.hpp"

namespace optim_schedule_tests {

namespace ht = halftone;

TEST_CASE("schedule: constant, with and without warm-up") {
    CHECK(ht::rate_multiplier({}, 0) == 1);
    CHECK(ht::rate_multiplier({}, 1000000) == 1);
    const ht::schedule_options s{.warmup_steps = 4};
    CHECK(ht::rate_multiplier(s, 0) == 0);
    CHECK(ht::rate_multiplier(s, 1) == 0.25);
    CHECK(ht::rate_multiplier(s, 4) == 1);
    CHECK(ht::rate_multiplier(s, 100) == 1);
}

TEST_CASE("schedule: linear, as get_linear_schedule_with_warmup") {
    const ht::schedule_options s{.shape = ht::schedule::linear, .total_steps = 12, .warmup_steps = 2};
    CHECK(ht::rate_multiplier(s, 0) == 0);
    CHECK(ht::rate_multiplier(s, 1) == 0.5);
    CHECK(ht::rate_multiplier(s, 2) == 1);
    CHECK(ht::rate_multiplier(s, 7) == 0.5);
    CHECK(ht::rate_multiplier(s, 12) == 0);
    CHECK(ht::rate_multiplier(s, 20) == 0);
}

TEST_CASE("schedule: cosine, as get_cosine_schedule_with_warmup") {
    const ht::schedule_options s{.shape = ht::cosine, .total_steps = 110, .warmup_steps = 10};
    CHECK(ht::rate_multiplier(s, 5) == 0.5);
    CHECK(ht::rate_multiplier(s, 10) == 1);
    CHECK(ht::rate_multiplier(s, 60) == doctest::Approx(0.5).epsilon(1e-15));
    CHECK(ht::rate_multiplier(s, 35) == doctest::Approx(0.5 * (1 + std::sqrt(0.5))).epsilon(1e-15));
    CHECK(ht::rate_multiplier(s, 110) == 0);
    CHECK(ht::rate_multiplier(s, 500) == 0);
}

TEST_CASE("schedule: a warm-up as long as the run, or longer: its rates, and the final one behind the end") {
    for (const auto shape : {ht::schedule::linear, ht::cosine, ht::schedule::polynomial}) {
        for (const std::int64_t warmup : {10, 12}) {
            for (const double end : {0.0, 0.25}) {
                const ht::schedule_options s{.shape = shape, .total_steps = 10, .warmup_steps = warmup, .final_ratio = end};
                for (std::int64_t step = 0; step < warmup; ++step)
                    CHECK(ht::rate_multiplier(s, step) == static_cast<double>(step) / static_cast<double>(warmup));
                for (const std::int64_t step : {warmup, warmup + 1, warmup + 2, std::int64_t{1000}}) CHECK(ht::rate_multiplier(s, step) == end);
            }
        }
    }
    const ht::schedule_options all{.shape = ht::schedule::warmup_stable_decay, .total_steps = 10, .warmup_steps = 10};
    CHECK(ht::rate_multiplier(all, 9) == 0.9);
    CHECK(ht::rate_multiplier(all, 10) == 0);
}

TEST_CASE("schedule: warm-up as a ratio, rounded up; warm-up steps have precedence; an end above zero") {
    CHECK(ht::warmup_steps({.total_steps = 101, .warmup_ratio = 0.03}) == 4);
    CHECK(ht::warmup_steps({.total_steps = 100, .warmup_steps = 7, .warmup_ratio = 0.03}) == 7);
    const ht::schedule_options s{.shape = ht::cosine, .total_steps = 100, .final_ratio = 0.1};
    CHECK(ht::rate_multiplier(s, 100) == doctest::Approx(0.1).epsilon(1e-15));
    CHECK(ht::rate_multiplier(s, 50) == doctest::Approx(0.55).epsilon(1e-15));
}

TEST_CASE("schedule: polynomial and warm-up-stable-decay, as in Hugging Face's trainer") {
    constexpr double rate = 3e-4;
    ht::schedule_options s;
    double lr = 1;
    int cases = 0;
    std::string name;
    for (const support::golden_line& line : support::read_golden("schedules.txt")) {
        if (line.kind == "polynomial") {
            lr = rate;
            s = {.shape = ht::schedule::polynomial, .total_steps = 60};
            s.final_ratio = line.number(2) / rate;
            s.power = line.number(3);
        } else if (line.kind == "wsd") {
            lr = 1;
            s = {.shape = ht::schedule::warmup_stable_decay, .total_steps = 60};
            s.decay_steps = static_cast<std::int64_t>(line.number(2));
            s.warmup_type = static_cast<ht::rate_curve>(static_cast<int>(line.number(3)));
            s.decay_type = static_cast<ht::rate_curve>(static_cast<int>(line.number(4)));
            s.final_ratio = line.number(5);
        } else {
            REQUIRE(line.words.size() == 66);
            for (std::size_t done = 0; done < line.words.size(); ++done) {
                CAPTURE(name);
                CAPTURE(done);
                // Both are a few operations in double on numbers of at most 1; pow and cos are within an ulp or two.
                const double mine = lr * ht::rate_multiplier(s, static_cast<std::int64_t>(done));
                CHECK(std::fabs(mine - line.number(done)) <= 16 * 0x1p-53 * lr);
            }
            ++cases;
            continue;
        }
        name = line.words[0];
        s.warmup_steps = static_cast<std::int64_t>(line.number(1));
    }
    CHECK(cases == 8);
}

TEST_CASE("schedule: an optimizer follows it, and skipped steps do not advance it") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::amp_fp16> model{device};
    ht::sgd optimizer{device, model, {.lr = 0.5}};
    optimizer.set_schedule({.shape = ht::schedule::linear, .total_steps = 6, .warmup_steps = 2});
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
    small::tape tape;
    const double expected[] = {0, 0.25, 0.5, 0.5, 0.375, 0.25};
    for (int call = 0; call < 6; ++call) {
        const bool overflow = call == 2;
        CHECK(optimizer.lr() == expected[call]);
        tape.gradients = [=](std::size_t, std::size_t) {
            return overflow ? std::numeric_limits<float>::infinity() : 1.0f;
        };
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        const float before = model.fc1.weight.master()(0);
        auto grads = scaler.unscale(acc.take());
        CHECK(optimizer.step(grads).skipped() == overflow);
        CHECK(model.fc1.weight.master()(0) == (overflow ? before : before - static_cast<float>(expected[call])));
        scaler.update();
    }
    CHECK(optimizer.steps() == 5);
    CHECK(optimizer.skipped_steps() == 1);
}

TEST_CASE("schedule: wrong options are refused") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    ht::sgd optimizer{device, model};
    CHECK_THROWS_AS(optimizer.set_schedule({.shape = ht::cosine}), ht::argument_error);
    CHECK_THROWS_AS(optimizer.set_schedule({.warmup_ratio = 0.1}), ht::argument_error);
    CHECK_THROWS_AS(optimizer.set_schedule({.total_steps = 10, .warmup_ratio = 1.5}), ht::argument_error);
    CHECK_THROWS_AS(optimizer.set_schedule({.total_steps = -1}), ht::argument_error);
    CHECK_THROWS_AS(optimizer.set_schedule({.total_steps = 10, .final_ratio = 2}), ht::argument_error);
    CHECK_THROWS_WITH_AS(
        optimizer.set_schedule({.shape = ht::schedule::polynomial, .total_steps = 10, .power = 0}),
        "sgd: a polynomial schedule's power is 0; expected more than 0", ht::argument_error);
    for (const std::int64_t decay : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{9}}) {
        CHECK_THROWS_AS(optimizer.set_schedule({.shape = ht::schedule::warmup_stable_decay,
                                                .total_steps = 10,
                                                .warmup_steps = 2,
                                                .decay_steps = decay}),
                        ht::argument_error);
    }
    CHECK_THROWS_WITH_AS(
        optimizer.set_schedule({.shape = ht::schedule::warmup_stable_decay, .total_steps = 10, .warmup_steps = 2}),
        "sgd: a schedule of 10 steps with 2 of warm-up has decay_steps of 0; expected 1 to 8", ht::argument_error);
    CHECK(optimizer.lr() == 1e-3);
}

}  // namespace optim_schedule_tests
