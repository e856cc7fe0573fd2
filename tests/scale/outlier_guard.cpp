// SPDX-License-Identifier: MIT
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "scale/outliers.hpp"
#include "support/random.hpp"

namespace scale_outlier_guard_tests {

namespace ht = halftone;
using outliers::guarded;

TEST_CASE("outlier_guard: the scripts that any device runs") {
    ht::cpu device{{.threads = 1}};
    outliers::check_scripts(device);
}

TEST_CASE("outlier_guard: equals its definition on a random walk with spikes") {
    ht::cpu device{{.threads = 1}};
    const ht::outlier_options options{
        .factor = 3, .window = 10, .warm_up = 5, .least_deviation = 0, .most_in_a_row = 1000};
    guarded run(device, options);
    support::random data{4};
    std::vector<double> window;
    int skipped = 0;
    for (int t = 0; t < 300; ++t) {
        const float spike = data.below(12) == 0 ? 4.0f : 1.0f;
        const float size = spike * (1.0f + 0.01f * static_cast<float>(data.below(100)));
        const bool was_skipped = run.step(size) == ht::step_result::outlier;
        const double norm = static_cast<double>(run.norm);
        double mean = 0, squares = 0;
        for (const double v : window) mean += v / static_cast<double>(window.size());
        for (const double v : window) squares += (v - mean) * (v - mean);
        const double limit = mean + 3 * std::sqrt(squares / (static_cast<double>(window.size()) - 1));
        const bool want = window.size() >= 5 && norm > limit;
        // The definition's sums are not exact either; no value is that close to the limit.
        if (window.size() >= 5) CHECK(std::fabs(norm - limit) > 1e-9 * limit);
        CHECK(was_skipped == want);
        skipped += want ? 1 : 0;
        if (!want) window.push_back(norm);
        if (window.size() > 10) window.erase(window.begin());
    }
    CHECK(skipped > 10);
    CHECK(run.guard.outliers() == skipped);
    CHECK(run.optimizer.skips() == ht::skip_counts{.outlier = skipped});
}

TEST_CASE("outlier_guard: its state, saved and loaded, in the middle of a run") {
    ht::cpu device{{.threads = 1}};
    const ht::outlier_options options{.factor = 3, .window = 4, .warm_up = 3, .most_in_a_row = 2};
    guarded whole(device, options), first(device, options), second(device, options);
    const float sizes[] = {1, 1.1f, 0.9f, 1, 1.05f, 9, 1.02f, 9, 9, 9, 8, 9, 1, 1, 20, 9};
    int t = 0;
    for (const float size : sizes) {
        const ht::step_result want = whole.step(size);
        if (t == 8) second.guard.load(first.guard.state());
        CHECK((t < 8 ? first : second).step(size) == want);
        ++t;
    }
    CHECK(second.guard.outliers() == whole.guard.outliers());
    const ht::outlier_state a = whole.guard.state(), b = second.guard.state();
    CHECK(a.norms == b.norms);
    CHECK(a.in_a_row == b.in_a_row);

    // A shorter window keeps the latest values.
    ht::outlier_guard shorter{device, {.window = 2, .warm_up = 2}};
    shorter.load(a);
    CHECK(shorter.state().norms == std::vector<float>(a.norms.end() - 2, a.norms.end()));
    ht::outlier_state odd = a;
    odd.losses.pop_back();
    CHECK_THROWS_AS(shorter.load(odd), ht::argument_error);
    odd = a;
    odd.norms[0] = std::numeric_limits<float>::infinity();
    CHECK_THROWS_AS(shorter.load(odd), ht::argument_error);
}

TEST_CASE("outlier_guard: the wrong order of calls throws") {
    ht::cpu device{{.threads = 1}};
    guarded run(device, {});
    auto clipped = run.take(1);
    ht::clip_grad_norm(clipped, 1);
    CHECK_THROWS_WITH_AS(run.guard.watch(clipped),
                         "outlier_guard: watch() after clipping, which hides outliers; watch first",
                         ht::state_error);
    run.optimizer.step(clipped), run.scaler.update();
    auto by_value = run.take(1);
    ht::clip_grad_value(by_value, 1);
    CHECK_THROWS_AS(run.guard.watch(by_value), ht::state_error);
    run.optimizer.step(by_value), run.scaler.update();
    auto grads = run.take(1);
    run.guard.watch(grads);
    CHECK_THROWS_WITH_AS(run.guard.watch(grads), "outlier_guard: watch() was called twice with the same gradients",
                         ht::state_error);
    run.optimizer.step(grads), run.scaler.update();
    auto stepped = run.take(1);
    run.optimizer.step(stepped), run.scaler.update();
    CHECK_THROWS_WITH_AS(run.guard.watch(stepped),
                         "outlier_guard: watch() after a step with these gradients; watch before all steps",
                         ht::state_error);
    guarded both(device, {.of = ht::outlier_of::both});
    auto lossless = both.take(1);
    CHECK_THROWS_WITH_AS(both.guard.watch(lossless),
                         "outlier_guard: losses are watched and this step has none; call add(loss) before watch()",
                         ht::state_error);
    ht::tape tape{device};
    const float one = 1;
    CHECK_THROWS_AS(run.guard.add(tape.constant(ht::const_view<float, 0>(&one, ht::shape<0>{}))), ht::state_error);
}

TEST_CASE("outlier_guard: options out of range are refused") {
    ht::cpu device{{.threads = 1}};
    const auto make = [&](const ht::outlier_options& o) { ht::outlier_guard{device, o}; };
    CHECK_THROWS_AS(make({.factor = 0}), ht::argument_error);
    CHECK_THROWS_AS(make({.window = 1}), ht::argument_error);
    CHECK_THROWS_AS(make({.warm_up = 1}), ht::argument_error);
    CHECK_THROWS_AS(make({.window = 32}), ht::argument_error);
    CHECK_THROWS_AS(make({.least_deviation = -1}), ht::argument_error);
    CHECK_THROWS_AS(make({.most_in_a_row = 0}), ht::argument_error);
}

}  // namespace scale_outlier_guard_tests
