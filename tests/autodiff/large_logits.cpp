// SPDX-License-Identifier: MIT
/// \file
/// Losses of large logits: equal logits of any size have the loss and the gradient of zeros; binary cross-entropy of large logits
/// is exact, too.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/loss.hpp>
#include <halftone/kernel/linear_cross_entropy/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "support/each_set.hpp"
#include "support/gradient_sink.hpp"
#include "support/store_bytes.hpp"

namespace autodiff_large_logits_tests {

namespace ht = halftone;
constexpr double u = 0x1p-24;

// Two rows of two classes; the targets are the first class of one row and the second of the other.
const std::vector<std::int32_t> targets = {0, 1};
const ht::const_view<std::int32_t, 1> to(targets.data(), {2});

template <class T>
std::vector<T> equal_logits(double logit) {
    return std::vector<T>(4, T(static_cast<float>(logit)));
}

/// Of the mean over both rows: (p - 1) / 2 for the target, p / 2 for the other.
template <class Gradient>
void check_halves(const Gradient& gradient) {
    for (ht::extent i = 0; i < 2; ++i) {
        for (ht::extent j = 0; j < 2; ++j) CHECK(static_cast<double>(gradient(i, j)) == (i == j ? -0.25 : 0.25));
    }
}

template <class T>
void check_equal_logits(ht::cpu& device, double logit) {
    CAPTURE(logit);
    std::vector<T> x = equal_logits<T>(logit);
    ht::tape tape{device};
    const auto logits = tape.leaf(ht::view<T, 2>(x.data(), {2, 2}));
    const auto loss = ht::cross_entropy(tape, logits, to);
    CHECK(std::fabs(static_cast<double>(loss.item()) - std::log(2.0)) <= 8 * u);
    tape.backward(loss);
    check_halves(tape.gradient(logits));
}

TEST_CASE("cross_entropy: two equal logits of any size") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const double logit : {0.0, 1e4, -1e4, 1e7, -1e7, 1e8, 3e38}) {
            check_equal_logits<float>(device, logit);
            check_equal_logits<ht::bfloat16>(device, logit);
        }
        check_equal_logits<ht::float16>(device, 6e4);
    });
}

TEST_CASE("cross_entropy of doubles: two equal logits of any size") {
    ht::cpu device{{.threads = 1}};
    for (const double logit : {0.0, 1e8, 1e17, -1e300}) {
        std::vector<double> x(4, logit);
        ht::tape tape{device};
        const auto logits = tape.leaf(ht::view<double, 2>(x.data(), {2, 2}));
        const auto loss = ht::cross_entropy(tape, logits, to);
        CHECK(std::fabs(loss.item() - std::log(2.0)) <= 0x1p-52);
        tape.backward(loss);
        check_halves(tape.gradient(logits));
    }
}

/// x of one row's width and a weight of as many ones: all logits are x.
template <class P>
void check_equal_logits_of_head(ht::isa set, double logit, ht::keep_logits keep) {
    CAPTURE(logit);
    using T = typename P::output;
    using roles = ht::roles<typename P::compute, T, typename P::grad>;
    using storage = ht::storage_signature<P, ht::op::linear>;
    using compute = typename storage::compute;
    ht::cpu device{{.threads = 1, .instruction_set = set}};
    ht::store parameters{device.memory()};
    const auto weight = parameters.add<P, ht::op::linear>("weight", ht::shape<2>{2, 1}, {});
    parameters.commit();
    support::set(weight, std::vector<compute>{compute(1.0f), compute(1.0f)});
    std::vector<T> x(2, T(static_cast<float>(logit)));
    ht::tape tape{device};
    support::gradient_sink sink(parameters);
    const auto in = tape.leaf(ht::view<T, 2>(x.data(), {2, 1}));
    const auto loss = ht::linear_cross_entropy<roles>(tape, in, weight, to, keep);
    CHECK(std::fabs(static_cast<double>(loss.item()) - std::log(2.0)) <= 8 * u);
    tape.backward(loss, sink);
    // The gradients of both logits of a row cancel in x, and those of both rows in the weight.
    for (ht::extent i = 0; i < 2; ++i) CHECK(static_cast<double>(tape.gradient(in)(i, 0)) == 0);
    for (const double d : sink.of(weight)) CHECK(d == 0);
}

TEST_CASE("linear_cross_entropy: equal logits of any size") {
    support::for_each_set([](ht::isa set) {
        for (const ht::keep_logits keep : {ht::keep_logits::never, ht::keep_logits::always}) {
            for (const double logit : {0.0, 1e4, -1e7, 1e8}) {
                check_equal_logits_of_head<ht::full_fp32>(set, logit, keep);
                check_equal_logits_of_head<ht::amp_bf16>(set, logit, keep);
            }
        }
    });
}

TEST_CASE("binary_cross_entropy_with_logits: loss and gradient at logits of any size") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const float magnitude : {0.0f, 1e-3f, 1.0f, 17.0f, 40.0f, 1e4f, 1e8f, 3e38f}) {
            for (const float target : {0.0f, 0.25f, 1.0f}) {
                for (float logit : {magnitude, -magnitude}) {
                    CAPTURE(logit);
                    CAPTURE(target);
                    const double x = static_cast<double>(logit), t = static_cast<double>(target);
                    const double want = std::fmax(x, 0) - x * t + std::log1p(std::exp(-std::fabs(x)));
                    // sigmoid(x) - t, where t is 1 without a difference.
                    const double slope = t == 1 ? -1 / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)) - t;
                    ht::tape tape{device};
                    const auto at = tape.leaf(ht::view<float, 1>(&logit, {1}));
                    const auto loss =
                        ht::binary_cross_entropy_with_logits(tape, at, ht::const_view<float, 1>(&target, {1}));
                    CHECK(std::fabs(static_cast<double>(loss.item()) - want) <= 16 * u * want);
                    tape.backward(loss);
                    CHECK(std::fabs(static_cast<double>(tape.gradient(at)(0)) - slope) <= 16 * u * std::fabs(slope));
                }
            }
        }
    });
}

}  // namespace autodiff_large_logits_tests
