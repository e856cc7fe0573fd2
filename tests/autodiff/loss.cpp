// SPDX-License-Identifier: MIT
/// \file
/// Losses on a tape: within bounds by running error analysis; weighted, used twice, with ignored rows.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/loss.hpp>
#include <halftone/kernel/cross_entropy/reference.hpp>
#include <halftone/kernel/linear_cross_entropy/cpu.hpp>

#include "autodiff/compare.hpp"
#include "autodiff/weigh.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_loss_tests {

namespace ht = halftone;
using support::cross_entropy_of;
using support::guarded;
using support::matrix;
using support::tracked;
using doubles = std::vector<double>;

const std::vector<std::int32_t> targets = {4, 0, -100, 2, 2, 1};
constexpr int rows = 6, classes = 5, width = 7;
const ht::const_view<std::int32_t, 2> target_view(targets.data(), {2, 3});

template <class T>
void cross_entropy_within_bounds(ht::isa set) {
    ht::cpu device{{.threads = 2, .instruction_set = set}};
    const guarded<T> x(support::random(1).normals<T>(rows * classes, 2));
    ht::tape tape{device};
    const auto logits = tape.leaf(x.view(ht::shape<3>{2, 3, classes}));
    const auto loss = ht::cross_entropy(tape, logits, target_view);
    const cross_entropy_of<tracked> want(matrix<tracked>(rows, classes, x.data()), targets, 64);
    CHECK(std::fabs(static_cast<double>(loss.item()) - want.loss.value) <=
          support::rounded<float>(want.loss.value, want.loss.error));
    tape.backward(loss * 64);
    // What does not count has no gradient at all, and the bound there is 0.
    CHECK(tape.gradient(logits)(0, 2, 1) == T(0.0f));
    autodiff_test::check_within(tape.gradient(logits), want.dlogits);

    const auto twice = tape.leaf(x.view(ht::shape<3>{2, 3, classes}));
    tape.backward(
        ht::add(tape, ht::cross_entropy(tape, twice, target_view), ht::cross_entropy(tape, twice, target_view)) * 64);
    const matrix<tracked> once = each(want.dlogits, support::stored_as<T>{});
    autodiff_test::check_within(tape.gradient(twice), plus(once, once));

    ht::inference eval{device};
    CHECK(ht::cross_entropy(eval, eval.constant(x.view(ht::shape<2>{rows, classes})),
                            ht::const_view<std::int32_t, 1>(targets.data(), {rows}))
              .item() == loss.item());
}

TEST_CASE("cross_entropy: loss and gradient within their bounds") {
    support::for_each_set([](ht::isa set) {
        cross_entropy_within_bounds<float>(set);
        cross_entropy_within_bounds<ht::bfloat16>(set);
    });
}

TEST_CASE("cross_entropy: the definition is the reference's, its gradient is central differences") {
    const doubles x = support::random(2).normals<double>(rows * classes);
    const auto reference = [&](const doubles& at) {
        doubles losses(rows);
        return ht::reference::cross_entropy(ht::const_view<double, 2>(at.data(), {rows, classes}),
                                            ht::const_view<std::int32_t, 1>(targets.data(), {rows}), -100,
                                            ht::view<double, 1>(losses.data(), {rows}));
    };
    const cross_entropy_of<double> d(matrix<double>(rows, classes, x.data()), targets);
    CHECK(d.loss == doctest::Approx(reference(x)).epsilon(1e-14));
    support::check_gradient(reference, x, d.dlogits.values);
}

template <class P>
struct head {
    using T = typename P::output;
    using roles = ht::roles<typename P::compute, T, typename P::grad>;
    using storage = ht::storage_signature<P, ht::op::linear>;
    ht::cpu device;
    ht::store parameters{device.memory()};
    ht::parameter<storage, 2> weight = parameters.add<P, ht::op::linear>("weight", ht::shape<2>{classes, width}, {});
    std::vector<typename storage::compute> w =
        support::random(3).normals<typename storage::compute>(classes * width, 0.5);
    guarded<T> x{support::random(4).normals<T>(rows * width)};

    explicit head(ht::isa set = ht::default_isa()) : device({.threads = 2, .instruction_set = set}) {
        parameters.commit();
        support::set(weight, w);
    }
    ht::view<T, 3> input() const { return x.view(ht::shape<3>{2, 3, width}); }
};

template <class P>
void head_within_bounds(ht::isa set) {
    using T = typename P::output;
    head<P> h(set);
    ht::tape tape{h.device};
    support::gradient_sink sink(h.parameters);
    const auto x = tape.leaf(h.input());
    const auto loss = ht::linear_cross_entropy<typename head<P>::roles>(tape, x, h.weight, target_view);
    const matrix<tracked> X(rows, width, h.x.data()), W(classes, width, h.w.data());
    const cross_entropy_of<tracked> ce(each(product(X, transposed(W)), support::stored_as<T>{}), targets, 8);
    CHECK(std::fabs(static_cast<double>(loss.item()) - ce.loss.value) <=
          support::rounded<float>(ce.loss.value, ce.loss.error));
    tape.backward(loss * 8, sink);
    const matrix<tracked> dlogits = each(ce.dlogits, support::stored_as<T>{}), dw = product(transposed(dlogits), X);
    autodiff_test::check_within(tape.gradient(x), product(dlogits, W));
    autodiff_test::check_within<float>(sink.of(h.weight), dw);
    tape.backward(
        ht::linear_cross_entropy<typename head<P>::roles>(tape, tape.constant(h.input()), h.weight, target_view) * 8,
        sink);
    autodiff_test::check_within<float>(sink.of(h.weight), plus(dw, dw));
}

TEST_CASE("linear_cross_entropy: loss and gradients within their bounds") {
    support::for_each_set([](ht::isa set) {
        head_within_bounds<ht::full_fp32>(set);
        head_within_bounds<ht::amp_bf16>(set);
    });
}

TEST_CASE("linear_cross_entropy: logits are kept where they are small, or as one says") {
    using P = ht::amp_bf16;
    head<P> h;
    ht::tape tape{h.device};
    const auto gradients_with = [&](ht::keep_logits keep, std::size_t& bytes) {
        support::gradient_sink sink(h.parameters);
        const auto x = tape.leaf(h.input());
        const std::size_t before = tape.memory().live();
        const auto loss = ht::linear_cross_entropy<head<P>::roles>(tape, x, h.weight, target_view, keep);
        bytes = tape.memory().live() - before;
        tape.backward(loss, sink);
        auto all = sink.of(h.weight);
        for (const double d : support::doubles(tape.gradient(x))) all.push_back(d);
        return all;
    };
    std::size_t small = 0, always = 0, never = 0;
    const doubles want = gradients_with(ht::keep_logits::never, never);
    CHECK(gradients_with(ht::keep_logits::where_small, small) == want);
    CHECK(gradients_with(ht::keep_logits::always, always) == want);
    using kernel = ht::kernel::linear_cross_entropy<ht::cpu>;
    const auto of_logits = static_cast<std::size_t>(kernel::kept_logits(rows, classes)) * sizeof(ht::bfloat16);
    CHECK(always - never == ht::round_up(of_logits, ht::block_alignment));
    // They would take more than the few floats of the weight's gradient.
    REQUIRE(of_logits > classes * width * sizeof(float));
    CHECK(small == never);
    const auto keeps = [](ht::extent tokens, ht::extent vocabulary, ht::extent channels) {
        return ht::detail::keeps<decltype(h.weight), ht::bfloat16>(
            ht::keep_logits::where_small, kernel::kept_logits(tokens, vocabulary), {vocabulary, channels});
    };
    CHECK(keeps(256, 50304, 768));
    CHECK(keeps(1024, 50304, 768));
    CHECK_FALSE(keeps(1600, 50304, 768));
    CHECK_FALSE(keeps(4096, 256, 384));
}

TEST_CASE("linear_cross_entropy: a frozen weight, and one that is tied to another layer") {
    using P = ht::full_fp32;
    head<P> h;
    ht::tape tape{h.device};
    support::gradient_sink sink(h.parameters);
    const auto loss = [&](const auto& x) {
        return ht::linear_cross_entropy<head<P>::roles>(tape, x, h.weight, target_view);
    };
    const auto x = tape.leaf(h.input());
    tape.backward(loss(x), sink);
    const doubles dx = support::doubles(tape.gradient(x)), dw = sink.of(h.weight);
    sink.close();
    // Twice in one loss: both uses add into one gradient.
    tape.backward(ht::add(tape, loss(tape.constant(h.input())), loss(tape.constant(h.input()))), sink);
    for (std::size_t i = 0; i < dw.size(); ++i) CHECK(sink.of(h.weight)[i] == 2 * dw[i]);

    head<P> frozen;
    frozen.parameters.freeze("*");
    ht::tape other{frozen.device};
    const auto y = other.leaf(frozen.input());
    other.backward(ht::linear_cross_entropy<head<P>::roles>(other, y, frozen.weight, target_view));
    // Its gradient is summed in another order, in the forward pass, whether logits are to be kept or not.
    const doubles of_frozen = support::doubles(other.gradient(y));
    REQUIRE(of_frozen.size() == dx.size());
    for (std::size_t i = 0; i < dx.size(); ++i) CHECK(std::fabs(of_frozen[i] - dx[i]) < 1e-6 * (1 + std::fabs(dx[i])));
    for (const ht::keep_logits keep : {ht::keep_logits::always, ht::keep_logits::never}) {
        ht::tape again{frozen.device};
        const auto z = again.leaf(frozen.input());
        again.backward(ht::linear_cross_entropy<head<P>::roles>(again, z, frozen.weight, target_view, keep));
        CHECK(support::doubles(again.gradient(z)) == of_frozen);
    }
}

}  // namespace autodiff_loss_tests
