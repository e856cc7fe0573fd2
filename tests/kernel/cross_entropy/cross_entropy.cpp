// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy on the CPU against its definition, and the definition's gradient against differences.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cross_entropy/cpu.hpp>

#include "kernel/cross_entropy/checks.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace kernel_cross_entropy_tests {

using namespace cross_entropy_checks;
using cross_entropy = ht::kernel::cross_entropy<ht::cpu>;

TEST_CASE_TEMPLATE("cross_entropy: within its bound of the definition", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent classes : support::widths) within_bounds<M>(device, 5, classes, 0, 2.0);
        within_bounds<M>(device, 1, 257, 0, 4.0);
        within_bounds<M>(device, 7, 257, 7, 8.0);  // a padded vocabulary
        within_bounds<M>(device, 37, 5003, 5, 1.0);
        within_bounds<M>(device, 60, 200, 0, 3.0);   // more rows than logarithms are computed at a time
        within_bounds<M>(device, 3, 12300, 0, 2.0);  // some blocks of classes, and a part of one
    });
}

TEST_CASE("cross_entropy: exact results, ignored rows, a gradient of each row's loss") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent classes : {2, 37, 130}) what_is_exact(device, classes);
        ignored_rows(device);
        gradient_of_each_loss(device, 101, 517);  // several pieces
    });
}

TEST_CASE_TEMPLATE("cross_entropy: large logits, and a constant added to a row's logits", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent classes : {2, 3, 37, 300, 5003}) {
            no_constant_matters<typename M::X, typename M::D>(device, classes);
            equal_logits(device, classes);
        }
        for (const double deviation : {1e2, 1e4}) {
            within_bounds<M>(device, 5, 67, 0, deviation);
            within_bounds<M>(device, 5, 2500, 3, deviation);
        }
        for (const double centre : {1e4, -5e4}) within_bounds<M>(device, 5, 67, 0, 3.0, 1, centre);
    });
}

// As many classes as targets can name: 4 GiB of addresses that need hardly any memory, because all are mapped to the system's page
// of zeros. Without segments the sum in a lane would stop growing at 2^24.
TEST_CASE("cross_entropy: so many classes that a float cannot count them" * doctest::skip()) {
    struct release {
        void operator()(void* p) const { std::free(p); }
    };
    constexpr extent classes = std::numeric_limits<std::int32_t>::max();
    const std::unique_ptr<void, release> zeros(std::calloc(static_cast<std::size_t>(classes), sizeof(bfloat16)));
    REQUIRE(zeros != nullptr);
    const guarded<std::int32_t> target(std::vector<std::int32_t>{1});
    const guarded<float> losses(1), maximum(1), sum(1);
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        cross_entropy::forward<bfloat16>(device, {.logits = {static_cast<const bfloat16*>(zeros.get()), {1, classes}},
                                                  .targets = target.const_view(),
                                                  .losses = losses.view(),
                                                  .maximum = maximum.view(),
                                                  .sum = sum.view()});
        CHECK(sum[0] == static_cast<float>(classes));
        const double want = std::log(static_cast<double>(classes));
        CHECK(std::fabs(static_cast<double>(losses[0]) - want) <= log_error * want + u);
    });
}

TEST_CASE_TEMPLATE("cross_entropy: the largest logit of a row is found at any index", T, float, bfloat16,
                   ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent classes : {30, 300, 9000}) {
            constexpr extent rows = 7;
            const ht::shape<2> shape{rows, classes};
            const guarded<T> x(std::vector<T>(static_cast<std::size_t>(rows * classes), T(-500.0f)));
            const guarded<std::int32_t> targets(rows);
            for (extent i = 0; i < rows; ++i) {
                const extent place = i * (classes - 1) / (rows - 1);
                targets[i] = static_cast<std::int32_t>(place);
                x[i * classes + place] = T(500.0f);
            }
            const guarded<float> losses(rows), maximum(rows), sum(rows);
            cross_entropy::forward<T>(device, {.logits = x.const_view(shape),
                                               .targets = targets.const_view(),
                                               .losses = losses.view(),
                                               .maximum = maximum.view(),
                                               .sum = sum.view()});
            for (extent i = 0; i < rows; ++i) {
                CHECK(losses[i] == 0.0f);
                CHECK(maximum[i] == 500.0f);
                CHECK(sum[i] == 1.0f);
            }
        }
    });
}

TEST_CASE("cross_entropy: the same bits at one and at two threads, in chunks of rows, in place and out of place") {
    support::for_each_set([](ht::isa set) {
        constexpr extent rows = 203, classes = 517, chunk = 50;
        const ht::shape<2> shape{rows, classes};
        support::random data(7);
        const auto values = data.normals<bfloat16>(rows * classes, 3);
        const guarded<bfloat16> x(values), other_x(values), dx(rows * classes);
        const guarded<std::int32_t> targets(data.indices(rows, classes));
        targets[3] = ignored;
        const guarded<float> losses(rows), maximum(rows), sum(rows), loss(1), count(1), other_losses(rows),
            other_maximum(rows), other_sum(rows);
        const guarded<float> gradient(std::vector<float>{1.0f});
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        cross_entropy::forward<bfloat16>(one, {.logits = x.const_view(shape),
                                               .targets = targets.const_view(),
                                               .losses = losses.view(),
                                               .maximum = maximum.view(),
                                               .sum = sum.view(),
                                               .loss = loss.view(),
                                               .count = count.view()});
        cross_entropy::backward<bfloat16, bfloat16>(one, {.logits = x.const_view(shape),
                                                          .targets = targets.const_view(),
                                                          .maximum = maximum.const_view(),
                                                          .sum = sum.const_view(),
                                                          .gradient = gradient.const_view(),
                                                          .count = count.const_view(),
                                                          .dlogits = dx.view(shape)});
        for (extent i = 0; i < rows; i += chunk) {
            const extent some = std::min(chunk, rows - i);
            const ht::view<bfloat16, 2> part(other_x.data() + i * classes, {some, classes});
            const ht::const_view<std::int32_t, 1> part_targets(targets.data() + i, {some});
            const ht::view<float, 1> part_maximum(other_maximum.data() + i, {some}),
                part_sum(other_sum.data() + i, {some});
            cross_entropy::forward_rows<bfloat16>(two, {.logits = part,
                                                        .targets = part_targets,
                                                        .losses = {other_losses.data() + i, {some}},
                                                        .maximum = part_maximum,
                                                        .sum = part_sum});
            cross_entropy::backward<bfloat16, bfloat16>(two, {.logits = part,
                                                              .targets = part_targets,
                                                              .maximum = part_maximum,
                                                              .sum = part_sum,
                                                              .gradient = gradient.const_view(),
                                                              .count = count.const_view(),
                                                              .dlogits = part});
        }
        CHECK(losses.same_bits(other_losses));
        CHECK(maximum.same_bits(other_maximum));
        CHECK(sum.same_bits(other_sum));
        CHECK(dx.same_bits(other_x));
        const guarded<float> other_loss(1);
        cross_entropy::mean(two, other_losses.const_view(), targets.const_view(), other_loss.view(), {});
        CHECK(loss.same_bits(other_loss));
    });
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
    const guarded<float> x(std::vector<float>(12, 0.0f)), losses(3), maximum(3), sum(3), gradient(2);
    const guarded<std::int32_t> targets(std::vector<std::int32_t>{0, 3, 1});
    const auto run = [&] {
        cross_entropy::forward<float>(device, {.logits = x.const_view(shape),
                                               .targets = targets.const_view(),
                                               .losses = losses.view(),
                                               .maximum = maximum.view(),
                                               .sum = sum.view()});
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
                                                                 .maximum = maximum.view(),
                                                                 .sum = sum.view()})),
                         "cross_entropy: targets is (2); expected (3)", ht::shape_error);
    CHECK_THROWS_WITH_AS((cross_entropy::forward<float>(device, {.logits = {x.data(), shape, {1, 3}},
                                                                 .targets = targets.const_view(),
                                                                 .losses = losses.view(),
                                                                 .maximum = maximum.view(),
                                                                 .sum = sum.view()})),
                         "cross_entropy: logits (3, 4) has gaps within its rows; its strides are (1, 3)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS((cross_entropy::backward<float, float>(device, {.logits = x.const_view(shape),
                                                                         .targets = targets.const_view(),
                                                                         .maximum = maximum.const_view(),
                                                                         .sum = sum.const_view(),
                                                                         .gradient = gradient.const_view(),
                                                                         .dlogits = x.view(shape)})),
                         "cross_entropy backward: gradient is (2); expected (3)", ht::shape_error);
}

}  // namespace kernel_cross_entropy_tests
