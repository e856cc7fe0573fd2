// SPDX-License-Identifier: MIT
/// \file
/// Shares of a batch: the gradient of a loss times a share, and how meters and guards use it.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include <halftone/kernel.hpp>
#include <halftone/scale/outlier_guard.hpp>
#include <halftone/train/loss_meter.hpp>

#include "optim/sparse_checks.hpp"

namespace train_shares_tests {

namespace ht = halftone;
using ht::extent;
using model_type = sparse_checks::dense<ht::full_fp32>;

struct only_targets {
    ht::const_view<std::int32_t, 1> targets;
};
static_assert(ht::has_loss_divisor<only_targets> && ht::has_loss_divisor<sparse_checks::batch>);
struct floats {
    ht::const_view<float, 1> targets;
};
struct nothing_known {
    ht::const_view<std::int32_t, 1> tokens;
};
static_assert(!ht::has_loss_divisor<floats> && !ht::has_loss_divisor<nothing_known>);

/// Four rows with 12, 1, 0 and 3 targets that count.
struct rows_of_four {
    std::vector<std::int32_t> tokens = support::random(1).indices(48, 40), targets = support::random(2).indices(48, 8);
    rows_of_four() {
        for (std::size_t i = 0; i < 48; ++i) {
            const std::size_t counted[] = {12, 1, 0, 3};
            if (i % 12 >= counted[i / 12]) targets[i] = -100;
        }
    }
    sparse_checks::batch rows(extent first, extent count) const {
        return {{tokens.data() + 12 * first, {count, 12}}, {targets.data() + 12 * first, {count, 12}}};
    }
};

std::vector<float> gradients_of(const auto& backward) {
    ht::cpu device{{.threads = 1}};
    model_type model(device, 40, 8);
    ht::accumulator acc{model};
    ht::grad_scaler scaler{device, {.init_scale = 1024}};
    ht::tape tape{device};
    backward(model, tape, scaler, acc);
    const auto grads = scaler.unscale(acc.take());
    const auto table = grads.of(model.tokens.table);
    return {table.data(), table.data() + table.size()};
}

TEST_CASE("share_of: with factors before and after it, with a loss scale, for one row or two rows") {
    const rows_of_four data;
    const sparse_checks::batch whole = data.rows(0, 4);
    const std::vector<float> want = gradients_of([&](auto& model, auto& tape, auto& scaler, auto& acc) {
        tape.backward(scaler.scale(model.loss(tape, whole) * 0.5), acc);
    });
    const auto check = [&](const auto& times, extent rows) {
        const std::vector<float> got = gradients_of([&](auto& model, auto& tape, auto& scaler, auto& acc) {
            for (extent first = 0; first < 4; first += rows) {
                const sparse_checks::batch micro = data.rows(first, rows);
                tape.backward(scaler.scale(times(model.loss(tape, micro), ht::share_of(tape, micro, whole))), acc);
            }
        });
        REQUIRE(got.size() == want.size());
        // At most 16 terms of a probability or 1, over the number of targets: four roundings each, and those of the sum.
        for (std::size_t i = 0; i < got.size(); ++i)
            CHECK(std::fabs(got[i] - want[i]) <= 64 * 0x1p-24f * (0.5f / 16 + std::fabs(want[i])));
    };
    for (const extent rows : {1, 2}) {
        check([](const auto& loss, const ht::loss_share& share) { return loss * share * 0.5; }, rows);
        check([](const auto& loss, const ht::loss_share& share) { return 0.5 * (share * loss); }, rows);
        check([](const auto& loss, const ht::loss_share& share) { return loss / 2 * share; }, rows);
        check([](const auto& loss, const ht::loss_share& share) { return share * (loss / 4) * 2; }, rows);
        check([](const auto& loss, const ht::loss_share& share) { return loss * share / 2; }, rows);
    }
}

TEST_CASE("share_of: the seed of a loss of doubles has the share in double") {
    double share = 1.0 / 3;
    const float scale = 4;
    CHECK(ht::gradient_seed{1, nullptr, &share}.value<double>() == 1.0 / 3);
    CHECK(ht::gradient_seed{2, &scale, &share}.value<double>() == 8.0 / 3);
    CHECK(ht::gradient_seed{1, &scale, &share}.value() == 4 * (1.0f / 3));
}

/// A loss and its number of targets that count.
struct part {
    float loss;
    extent counted;
};

/// Calls use(loss, share) for each part.
void with_shares(ht::inference<ht::cpu>& eval, std::initializer_list<part> parts, const auto& use) {
    std::vector<std::int32_t> targets(100, 1);
    for (const part& p : parts) {
        for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<extent>(i) < p.counted ? 1 : -100;
        const only_targets batch{{targets.data(), {100}}};
        use(eval.constant(ht::const_view<float, 0>{&p.loss, {}}), ht::share_of(eval, batch));
    }
}
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST_CASE("loss_meter: losses with shares count by their targets; those without targets do not count") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    ht::loss_meter losses{device, 2};
    const auto step = [&](std::initializer_list<part> parts, double factor = 1) {
        with_shares(eval, parts, [&](const auto& loss, const auto& share) { losses.add(loss * share * factor); });
        losses.end_step();
    };
    step({{2, 3}, {nan, 0}, {6, 1}});
    CHECK(losses.mean() == 3);
    step({{2, 3}, {6, 1}}, 0.5);
    CHECK(losses.mean() == 2.25);  // steps have equal weights
    CHECK(losses.latest_mean() == 2.25);
    losses.restart();
    // A third is not a float: parts with equal shares have the same mean as losses without a share.
    ht::loss_meter plain{device};
    for (const float loss : {0.1f, 0.7f, 1e-3f}) plain.add(eval.constant(ht::const_view<float, 0>{&loss, {}}));
    plain.end_step();
    step({{0.1f, 7}, {0.7f, 7}, {1e-3f, 7}});
    CHECK(losses.mean() == plain.mean());
    step({{nan, 0}, {nan, 0}});
    CHECK(std::isnan(losses.mean()));
    losses.restart();
    with_shares(eval, {{100, 5}}, [&](const auto& loss, const auto& share) { losses.add(loss * share); });
    losses.discard();
    step({{1, 2}});
    CHECK(losses.mean() == 1);
}

TEST_CASE("outlier_guard: a micro-batch without targets is not an outlier, a batch without any is") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    model_type model(device, 40, 8);
    ht::sgd optimizer{device, model, {.lr = 0}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    ht::outlier_guard guard{device, ht::outlier_options{.window = 4, .warm_up = 2, .of = ht::outlier_of::both}};
    const rows_of_four data;
    const auto step = [&](std::initializer_list<part> parts) {
        tape.backward(model.loss(tape, data.rows(0, 1)), acc);
        with_shares(eval, parts, [&](const auto& loss, const auto& share) { guard.add(loss * share); });
        auto grads = acc.take();
        guard.watch(grads);
        return optimizer.step(grads).result();
    };
    CHECK(step({{2, 3}, {nan, 0}, {6, 1}}) == ht::step_result::taken);
    CHECK(guard.state().losses == std::vector<float>{3});
    CHECK(step({{nan, 0}, {nan, 0}}) == ht::step_result::outlier);
    CHECK(step({{3, 99}, {1e6f, 0}}) == ht::step_result::taken);
    CHECK(guard.state().losses == std::vector<float>{3, 3});
    CHECK(step({{3, 1}, {1e6f, 50}}) == ht::step_result::outlier);
}

}  // namespace train_shares_tests
