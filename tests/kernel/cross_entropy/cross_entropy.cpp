// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy against its definition, and the definition's gradient against differences.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/cross_entropy/reference.hpp>
#include <halftone/number/classify.hpp>

#include "support/bounds.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using cross_entropy = ht::kernel::cross_entropy<ht::cpu>;
using support::guarded;
using support::u;
using doubles = std::vector<double>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double exp_error = 6 * u, log_error = 6 * u;  // three units in the last place: what simd/math.inc promises
constexpr std::int32_t ignored = -100;

template <class X_, class D_>
struct types {
    using X = X_;
    using D = D_;
};
using all_float = types<float, float>;
using mixed = types<bfloat16, bfloat16>;
using widening = types<float16, float>;

template <class M>
void within_bounds(ht::isa set, extent rows, extent classes, extent padding, double deviation) {
    CAPTURE(classes);
    using support::gamma;
    using X = typename M::X;
    using D = typename M::D;
    ht::cpu device{{.threads = 1, .instruction_set = set}};
    support::random data(static_cast<std::uint64_t>(classes));
    const extent stride = classes + padding;
    const guarded<X> x(data.normals<X>(rows * stride, deviation), 1);
    const ht::const_view<X, 2> logits(x.data(), {rows, classes}, {stride, 1});
    const guarded<std::int32_t> targets(data.indices(rows, static_cast<int>(classes)));
    if (rows > 2) targets[1] = ignored;
    const guarded<float> losses(rows), logsumexp(rows), loss(1), count(1);
    cross_entropy::forward<X>(device, {.logits = logits,
                                       .targets = targets.const_view(),
                                       .losses = losses.view(),
                                       .logsumexp = logsumexp.view(),
                                       .loss = loss.view(),
                                       .count = count.view()});

    const extent counted = ht::reference::counted_rows(targets.const_view(), ignored);
    CHECK(count[0] == static_cast<float>(counted));
    doubles want(static_cast<std::size_t>(rows));
    const double mean =
        ht::reference::cross_entropy(logits, targets.const_view(), ignored, ht::view<double, 1>(want.data(), {rows}));

    support::comparison loss_comparison, normaliser_comparison;
    doubles normaliser_errors(static_cast<std::size_t>(rows));
    double mean_error = 0;
    for (extent i = 0; i < rows; ++i) {
        if (targets[i] == ignored) {
            CHECK(losses[i] == 0.0f);
            continue;
        }
        double largest = -HUGE_VAL, sum = 0, wrong = 0;
        for (extent j = 0; j < classes; ++j) largest = std::fmax(largest, static_cast<double>(logits(i, j)));
        for (extent j = 0; j < classes; ++j) {
            const double difference = largest - static_cast<double>(logits(i, j)), e = std::exp(-difference);
            sum += e;
            wrong += e * (std::expm1(u * difference) * (1 + exp_error) + exp_error);
        }
        const double depth = gamma(static_cast<double>(ht::kernel::sum_depth(classes)));
        const double relative = wrong / sum * (1 + depth) + depth;
        const double excess_error = relative / (1 - relative) + log_error * std::fabs(std::log(sum));
        const double below = largest - static_cast<double>(logits(i, targets[i]));
        const double wanted = want[static_cast<std::size_t>(i)], normaliser = largest + std::log(sum);
        const double loss_error = (excess_error + u * below) * (1 + u) + u * std::fabs(wanted);
        normaliser_errors[static_cast<std::size_t>(i)] = excess_error * (1 + u) + u * std::fabs(normaliser);
        loss_comparison.expect(static_cast<double>(losses[i]), wanted, loss_error);
        normaliser_comparison.expect(static_cast<double>(logsumexp[i]), normaliser,
                                     normaliser_errors[static_cast<std::size_t>(i)]);
        mean_error += loss_error / static_cast<double>(counted);
    }
    CHECK_MESSAGE(loss_comparison.within(), loss_comparison);
    if (classes > 1) CHECK_MESSAGE(loss_comparison.telling(), loss_comparison);
    CHECK_WITHIN(normaliser_comparison);
    CHECK(std::fabs(static_cast<double>(loss[0]) - mean) <= support::rounded<float>(mean, mean_error));

    // The gradient of 3 times the mean.
    const guarded<float> slope(std::vector<float>{3.0f});
    const guarded<D> dx(rows * stride, 3);
    const ht::view<D, 2> dlogits(dx.data(), {rows, classes}, {stride, 1});
    cross_entropy::backward<X, D>(device, {.logits = logits,
                                           .targets = targets.const_view(),
                                           .logsumexp = logsumexp.const_view(),
                                           .gradient = slope.const_view(),
                                           .count = count.const_view(),
                                           .dlogits = dlogits});
    doubles want_dx(static_cast<std::size_t>(rows * classes));
    const ht::view<double, 2> wanted(want_dx.data(), {rows, classes});
    const doubles slopes(static_cast<std::size_t>(rows), 3.0 / static_cast<double>(counted));
    ht::reference::cross_entropy_backward(logits, targets.const_view(), ignored,
                                          ht::const_view<double, 1>(slopes.data(), {rows}), wanted);
    support::comparison dxs;
    for (extent i = 0; i < rows; ++i) {
        const double factor = slopes[0];
        for (extent j = 0; j < classes; ++j) {
            if (targets[i] == ignored) {
                CHECK(dlogits(i, j) == D(0.0f));
                continue;
            }
            const double target = j == targets[i] ? 1 : 0, p = wanted(i, j) / factor + target;
            const double wrong = normaliser_errors[static_cast<std::size_t>(i)];
            const double argument = wrong + u * (std::fabs(std::log(p)) + wrong);
            const double probability_error =
                p * (std::expm1(argument) * (1 + exp_error) + exp_error) + ht::number_traits<float>::min_subnormal;
            // The difference from 1, the factor's own division, the product.
            const double error = factor * (probability_error * (1 + gamma(3)) + gamma(3) * std::fabs(p - target));
            dxs.expect(static_cast<double>(dlogits(i, j)), wanted(i, j), support::rounded<D>(wanted(i, j), error));
        }
        for (extent j = 0; j < padding && i + 1 < rows; ++j)
            CHECK(ht::is_nan(dx[i * stride + classes + j]));  // not ours
    }
    CHECK_MESSAGE(dxs.within(), dxs);
    if (classes > 1) CHECK_MESSAGE(dxs.telling(), dxs);
    CHECK(dx.intact());
    CHECK(losses.intact());
    CHECK(logsumexp.intact());
}

TEST_CASE_TEMPLATE("cross_entropy: within its bound of the definition", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        for (const extent classes : support::widths) within_bounds<M>(set, 5, classes, 0, 2.0);
        within_bounds<M>(set, 1, 257, 0, 4.0);
        within_bounds<M>(set, 7, 257, 7, 8.0);  // a padded vocabulary
        within_bounds<M>(set, 37, 5003, 5, 1.0);
    });
}

TEST_CASE("cross_entropy: what is exact") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent classes : {2, 37, 130}) {
            CAPTURE(classes);
            const ht::shape<2> shape{1, classes};
            const guarded<float> x(classes), losses(1), logsumexp(1), dx(classes), gradient(std::vector<float>{0.25f});
            const guarded<std::int32_t> target(std::vector<std::int32_t>{1});
            const auto run = [&] {
                cross_entropy::forward<float>(device, {.logits = x.const_view(shape),
                                                       .targets = target.const_view(),
                                                       .losses = losses.view(),
                                                       .logsumexp = logsumexp.view()});
                cross_entropy::backward<float, float>(device, {.logits = x.const_view(shape),
                                                               .targets = target.const_view(),
                                                               .logsumexp = logsumexp.const_view(),
                                                               .gradient = gradient.const_view(),
                                                               .dlogits = dx.view(shape)});
            };
            // Certain and right: no loss, no gradient. Certain and wrong: the difference, and the whole gradient.
            for (const float low : {-1e4f, -infinity}) {
                for (extent j = 0; j < classes; ++j) x[j] = low;
                x[1] = 1e4f;
                run();
                CHECK(losses[0] == 0.0f);
                CHECK(logsumexp[0] == 1e4f);
                for (extent j = 0; j < classes; ++j) CHECK(dx[j] == 0.0f);
                std::swap(x[0], x[1]);
                run();
                CHECK(losses[0] == 1e4f - low);
                CHECK(dx[0] == 0.25f);
                CHECK(dx[1] == -0.25f);
            }
            for (extent j = 0; j < classes; ++j) x[j] = -infinity;
            run();
            CHECK(ht::is_nan(losses[0]));
            CHECK(ht::is_nan(dx[0]));
        }
    });
}

TEST_CASE("cross_entropy: ignored rows") {
    ht::cpu device{{.threads = 1}};
    const ht::shape<2> shape{2, 3};
    const guarded<float> x(std::vector<float>{1, 2, 3, infinity, infinity, infinity}), losses(2), logsumexp(2), loss(1),
        count(1), dx(6);
    const guarded<float> gradient(std::vector<float>{1.0f});
    const guarded<std::int32_t> targets(std::vector<std::int32_t>{2, 7});
    const auto run = [&] {
        cross_entropy::forward<float>(device, {.logits = x.const_view(shape),
                                               .targets = targets.const_view(),
                                               .losses = losses.view(),
                                               .logsumexp = logsumexp.view(),
                                               .loss = loss.view(),
                                               .count = count.view(),
                                               .ignore_index = 7});
        cross_entropy::backward<float, float>(device, {.logits = x.const_view(shape),
                                                       .targets = targets.const_view(),
                                                       .logsumexp = logsumexp.const_view(),
                                                       .gradient = gradient.const_view(),
                                                       .count = count.const_view(),
                                                       .dlogits = dx.view(shape),
                                                       .ignore_index = 7});
    };
    run();  // what an ignored row holds does not matter
    CHECK(count[0] == 1.0f);
    CHECK(loss[0] == losses[0]);
    CHECK(losses[1] == 0.0f);
    for (extent j = 3; j < 6; ++j) CHECK(dx[j] == 0.0f);
    targets[0] = 7;
    run();
    CHECK(count[0] == 0.0f);
    CHECK(ht::is_nan(loss[0]));
    for (extent j = 0; j < 6; ++j) CHECK(dx[j] == 0.0f);
}

TEST_CASE("cross_entropy: the same bits at one and at two threads, in chunks of rows, in place and apart") {
    support::for_each_set([](ht::isa set) {
        constexpr extent rows = 203, classes = 517, chunk = 50;
        const ht::shape<2> shape{rows, classes};
        support::random data(7);
        const auto values = data.normals<bfloat16>(rows * classes, 3);
        const guarded<bfloat16> x(values), other_x(values), dx(rows * classes);
        const guarded<std::int32_t> targets(data.indices(rows, classes));
        targets[3] = ignored;
        const guarded<float> losses(rows), logsumexp(rows), loss(1), count(1), other_losses(rows),
            other_logsumexp(rows);
        const guarded<float> gradient(std::vector<float>{1.0f});
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        cross_entropy::forward<bfloat16>(one, {.logits = x.const_view(shape),
                                               .targets = targets.const_view(),
                                               .losses = losses.view(),
                                               .logsumexp = logsumexp.view(),
                                               .loss = loss.view(),
                                               .count = count.view()});
        cross_entropy::backward<bfloat16, bfloat16>(one, {.logits = x.const_view(shape),
                                                          .targets = targets.const_view(),
                                                          .logsumexp = logsumexp.const_view(),
                                                          .gradient = gradient.const_view(),
                                                          .count = count.const_view(),
                                                          .dlogits = dx.view(shape)});
        for (extent i = 0; i < rows; i += chunk) {
            const extent some = std::min(chunk, rows - i);
            const ht::view<bfloat16, 2> part(other_x.data() + i * classes, {some, classes});
            const ht::const_view<std::int32_t, 1> part_targets(targets.data() + i, {some});
            const ht::view<float, 1> part_logsumexp(other_logsumexp.data() + i, {some});
            cross_entropy::forward_rows<bfloat16>(two, {.logits = part,
                                                        .targets = part_targets,
                                                        .losses = {other_losses.data() + i, {some}},
                                                        .logsumexp = part_logsumexp});
            cross_entropy::backward<bfloat16, bfloat16>(two, {.logits = part,
                                                              .targets = part_targets,
                                                              .logsumexp = part_logsumexp,
                                                              .gradient = gradient.const_view(),
                                                              .count = count.const_view(),
                                                              .dlogits = part});
        }
        CHECK(losses.same_bits(other_losses));
        CHECK(logsumexp.same_bits(other_logsumexp));
        CHECK(dx.same_bits(other_x));
        CHECK(loss[0] ==
              cross_entropy::mean(other_losses.const_view(), cross_entropy::counted_rows(targets.const_view())));
    });
}

TEST_CASE("cross_entropy: a gradient of each row's loss") {
    ht::cpu device{{.threads = 2}};
    constexpr extent rows = 101, classes = 517;  // several pieces
    const ht::shape<2> shape{rows, classes};
    support::random data(3);
    const guarded<float> x(data.normals<float>(rows * classes)), losses(rows), logsumexp(rows),
        one(std::vector<float>{1});
    const guarded<float> powers(rows), dx(rows * classes), scaled_dx(rows * classes);
    for (extent i = 0; i < rows; ++i) powers[i] = std::ldexp(i % 2 == 0 ? 1.0f : -1.0f, static_cast<int>(i % 7));
    const guarded<std::int32_t> targets(data.indices(rows, classes));
    cross_entropy::forward<float>(device, {.logits = x.const_view(shape),
                                           .targets = targets.const_view(),
                                           .losses = losses.view(),
                                           .logsumexp = logsumexp.view()});
    const auto backward = [&](ht::const_view<float, 1> gradient, ht::view<float, 2> to) {
        cross_entropy::backward<float, float>(device, {.logits = x.const_view(shape),
                                                       .targets = targets.const_view(),
                                                       .logsumexp = logsumexp.const_view(),
                                                       .gradient = gradient,
                                                       .dlogits = to});
    };
    backward(one.const_view(), dx.view(shape));
    backward(powers.const_view(), scaled_dx.view(shape));
    extent wrong = 0;
    for (extent k = 0; k < rows * classes; ++k) wrong += scaled_dx[k] == dx[k] * powers[k / classes] ? 0 : 1;
    CHECK(wrong == 0);
}

TEST_CASE("cross_entropy: the definition's gradient") {
    constexpr extent rows = 3, classes = 5;
    const ht::shape<2> shape{rows, classes};
    support::random data(11);
    const doubles x = data.normals<double>(rows * classes), slopes = data.normals<double>(rows);
    const std::vector<std::int32_t> targets{4, ignored, 0};
    const ht::const_view<std::int32_t, 1> to(targets.data(), {rows});
    doubles losses(rows), dx(rows * classes);
    ht::reference::cross_entropy_backward(ht::const_view<double, 2>(x.data(), shape), to, ignored,
                                          ht::const_view<double, 1>(slopes.data(), {rows}),
                                          ht::view<double, 2>(dx.data(), shape));
    support::check_gradient(
        [&](const doubles& at) {
            ht::reference::cross_entropy(ht::const_view<double, 2>(at.data(), shape), to, ignored,
                                         ht::view<double, 1>(losses.data(), {rows}));
            double sum = 0;
            for (std::size_t i = 0; i < losses.size(); ++i) sum += losses[i] * slopes[i];
            return sum;
        },
        x, dx);
}

TEST_CASE("cross_entropy: wrong arguments") {
    ht::cpu device{{.threads = 1}};
    const ht::shape<2> shape{3, 4};
    const guarded<float> x(std::vector<float>(12, 0.0f)), losses(3), logsumexp(3), gradient(2);
    const guarded<std::int32_t> targets(std::vector<std::int32_t>{0, 3, 1});
    const auto run = [&] {
        cross_entropy::forward<float>(device, {.logits = x.const_view(shape),
                                               .targets = targets.const_view(),
                                               .losses = losses.view(),
                                               .logsumexp = logsumexp.view()});
    };
    targets[1] = 4;
    CHECK_THROWS_WITH_AS(run(), "cross_entropy: the target of row 1 is 4; expected 0 to 3, or -100 to ignore the row",
                         ht::argument_error);
    CHECK(ht::is_nan(losses[0]));  // found before anything ran
    targets[1] = -1;
    CHECK_THROWS_WITH_AS(run(), "cross_entropy: the target of row 1 is -1; expected 0 to 3, or -100 to ignore the row",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS((cross_entropy::forward<float>(device, {.logits = x.const_view(shape),
                                                                 .targets = {targets.data(), {2}},
                                                                 .losses = losses.view(),
                                                                 .logsumexp = logsumexp.view()})),
                         "cross_entropy: targets is (2); expected (3)", ht::shape_error);
    CHECK_THROWS_WITH_AS((cross_entropy::forward<float>(device, {.logits = {x.data(), shape, {1, 3}},
                                                                 .targets = targets.const_view(),
                                                                 .losses = losses.view(),
                                                                 .logsumexp = logsumexp.view()})),
                         "cross_entropy: logits (3, 4) has gaps within its rows; its strides are (1, 3)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS((cross_entropy::backward<float, float>(device, {.logits = x.const_view(shape),
                                                                         .targets = targets.const_view(),
                                                                         .logsumexp = logsumexp.const_view(),
                                                                         .gradient = gradient.const_view(),
                                                                         .dlogits = x.view(shape)})),
                         "cross_entropy backward: gradient is (2); expected (3)", ht::shape_error);
}

}  // namespace
