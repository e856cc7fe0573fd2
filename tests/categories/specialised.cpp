// SPDX-License-Identifier: MIT
/// \file
/// Categories of operations that a user has changed, in a separate program: operations obey them in the types of results and in
/// their values, forward and backward.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/nn/mlp.hpp>
#include <halftone/observe/ledger/ledger.hpp>
#include <halftone/policy/ledger.hpp>

#include "support/gradient_sink.hpp"

namespace ht = halftone;
namespace op = halftone::op;

template <>
struct halftone::operation_category<op::linear> {
    static constexpr ht::category value = ht::category::fp32;
};
template <>
struct halftone::operation_category<op::matmul> {
    static constexpr ht::category value = ht::category::promote;
};
template <>
struct halftone::operation_category<op::softmax> {
    static constexpr ht::category value = ht::category::as_input;
};
template <>
struct halftone::operation_category<op::gelu> {
    static constexpr ht::category value = ht::category::fp32;
};
template <>
struct halftone::operation_category<op::dropout> {
    static constexpr ht::category value = ht::category::low_precision;
};
template <>
struct halftone::operation_category<op::mse_loss> {
    static constexpr ht::category value = ht::category::low_precision;
};
template <>
struct halftone::operation_category<op::huber_loss> {
    static constexpr ht::category value = ht::category::as_input;
};
template <>
struct halftone::operation_category<op::cross_entropy> {
    static constexpr ht::category value = ht::category::low_precision;
};
template <>
struct halftone::operation_category<op::layer_norm> {
    static constexpr ht::category value = ht::category::low_precision;
};
template <>
struct halftone::operation_category<op::embedding> {
    static constexpr ht::category value = ht::category::fp32;
};
template <>
struct halftone::operation_category<op::linear_cross_entropy> {
    static constexpr ht::category value = ht::category::low_precision;
};

namespace categories_specialised_tests {

using ht::bfloat16, support::doubles;
using P = ht::with_output<ht::amp_bf16, float>;

/// A float that bfloat16 rounds to 1, and its square.
constexpr float fine = 1.00390625f;  // 1 + 2^-8
constexpr double exact = 1.00390625, square = exact * exact;

template <class T, int Rank, class V>
constexpr bool is = std::is_same_v<std::remove_cvref_t<V>, ht::variable<T, Rank>>;

struct net : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    ht::nn::mlp<ht::at<P, "mlp">> mlp;
    explicit net(ht::cpu& device) : model{device}, fc{parameters(), 1, 1}, mlp{parameters(), 1, 1} {
        commit(*this, 1);
        support::set(mlp.up.weight, std::vector<float>{fine});
        support::set(mlp.down.weight, std::vector<float>{fine});
        support::set(fc.weight, std::vector<float>{fine});
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc, self.mlp); }
};

struct fixture {
    ht::cpu device{{.threads = 1}};
    ht::tape<ht::cpu> tape{device};
    std::vector<float> one{fine};
    std::vector<bfloat16> halves{bfloat16(1.0f), bfloat16(1.015625f)};
    ht::variable<float, 2> x = tape.leaf(ht::view(one.data(), ht::shape<2>{1, 1}));
    ht::variable<bfloat16, 2> h = tape.leaf(ht::view(halves.data(), ht::shape<2>{1, 2}));

    auto region() { return ht::autocast<ht::amp_bf16>(tape); }
    template <class T, int Rank>
    void differentiate(const ht::variable<T, Rank>& y) {
        tape.backward(ht::sum<float>(tape, y));
    }
};

TEST_CASE("categories: free products") {
    fixture f;
    const auto y = ht::linear(f.region(), f.x, f.x);
    static_assert(is<float, 2, decltype(y)>);
    CHECK(doubles(y.view()) == std::vector<double>{square});
    f.differentiate(y);
    CHECK(doubles(f.tape.gradient(f.x)) == std::vector<double>{2 * exact});  // fp32 in backward, too
    const auto z = ht::matmul(f.region(), f.x, f.x);                         // the widest of the inputs and `compute`
    static_assert(is<float, 2, decltype(z)>);
    CHECK(doubles(z.view()) == std::vector<double>{square});
    const auto low = ht::matmul(f.region(), f.h, ht::reshape(f.tape, f.h, ht::shape<2>{2, 1}));
    static_assert(is<bfloat16, 2, decltype(low)>);
}

TEST_CASE("categories: layers and the perceptron, which computes by that of linear") {
    fixture f;
    net model{f.device};
    support::gradient_sink sink(model.parameters());
    const auto y = model.fc(f.tape, f.x);
    CHECK(doubles(y.view()) == std::vector<double>{static_cast<double>(static_cast<float>(square))});
    f.tape.backward(ht::sum(f.tape, y), sink);
    CHECK(doubles(f.tape.gradient(f.x)) == std::vector<double>{exact});
    CHECK(sink.of(model.fc.weight) == std::vector<double>{exact});
    // As if its policy computed in fp32, to the bit.
    const auto whole = model.mlp(f.tape, f.x, f.x);
    const auto& [up, down, rate] = model.mlp;
    const auto apart = down(f.tape, ht::gelu(f.tape, up(f.tape, f.x)), f.x);
    CHECK(doubles(whole.view()) == doubles(apart.view()));
    CHECK(rate == 0);
}

TEST_CASE("categories: softmax and gelu") {
    fixture f;
    static_assert(is<bfloat16, 2, decltype(ht::softmax(f.region(), f.h))>);
    static_assert(is<bfloat16, 2, decltype(ht::gelu(f.tape, f.h))>);
    const auto wide = ht::gelu(f.region(), f.h);
    static_assert(is<float, 2, decltype(wide)>);
    CHECK(doubles(wide.view())[1] != static_cast<double>(static_cast<float>(bfloat16(wide.view()(0, 1)))));
}

TEST_CASE("categories: dropout, with a residual and without") {
    fixture f;
    const auto kept = ht::dropout(f.region(), f.x, {.p = 0.25f});
    static_assert(is<bfloat16, 2, decltype(kept)> && is<float, 2, decltype(ht::dropout(f.tape, f.x, {.p = 0.25f}))>);
    f.differentiate(kept);
    CHECK((f.tape.gradient(f.x)(0, 0) == 0) == (kept.view()(0, 0) == bfloat16(0.0f)));
    // Where it drops nothing it has the same types.
    const auto all = ht::dropout(f.region(), f.x, {.p = 0});
    static_assert(is<bfloat16, 2, decltype(all)>);
    CHECK(doubles(all.view()) == std::vector<double>{1});
    ht::inference eval{f.device};
    const auto seen = eval.constant(f.x.view());
    CHECK(doubles(ht::dropout(ht::autocast<ht::amp_bf16>(eval), seen, {.p = 0.5f}).view()) == std::vector<double>{1});

    // What is added to a residual is of the category's type, and the sum of the residual's.
    const auto sum_of = [&](auto&& ctx, const auto& x, float p) {
        const auto y = ht::dropout(ctx, x, {.p = p}, x);
        static_assert(is<float, 2, decltype(y)>);
        return doubles(y.view())[0] - exact;
    };
    CHECK(sum_of(f.tape, f.x, 0) == exact);
    CHECK(sum_of(f.region(), f.x, 0) == 1);
    CHECK(sum_of(ht::autocast<ht::full_fp32>(f.tape), f.x, 0) == exact);
    CHECK(sum_of(ht::autocast<ht::amp_bf16>(eval), seen, 0.5f) == 1);
    bool was_kept = false;
    for (int i = 0; i < 20; ++i) {
        const double added = sum_of(f.region(), f.x, 0.5f);
        CHECK((added == 0 || added == 2));
        was_kept = was_kept || added == 2;
    }
    CHECK(was_kept);
    const auto leaf = f.tape.leaf(f.x.view());
    f.differentiate(ht::dropout(f.region(), leaf, {.p = 0}, leaf));
    CHECK(doubles(f.tape.gradient(leaf)) == std::vector<double>{2});
}

TEST_CASE("categories: losses") {
    fixture f;
    std::vector<float> nothing{0};
    const auto target = f.tape.constant(ht::view(nothing.data(), ht::shape<2>{1, 1}));
    const auto mse = ht::mean_squared_error(f.region(), f.x, target);
    static_assert(is<bfloat16, 0, decltype(mse)> &&
                  is<float, 0, decltype(ht::mean_squared_error(f.tape, f.x, target))>);
    CHECK(static_cast<double>(mse.item()) == static_cast<double>(static_cast<float>(bfloat16(fine * fine))));
    f.differentiate(mse);
    CHECK(doubles(f.tape.gradient(f.x)) == std::vector<double>{2 * exact});
    static_assert(is<float, 0, decltype(ht::huber_loss(f.region(), f.x, target))> &&
                  is<bfloat16, 0, decltype(ht::huber_loss(f.region(), f.h, f.h))> &&
                  is<float, 0, decltype(ht::l1_loss(f.region(), f.h, f.h))>);
    CHECK(static_cast<float>(ht::huber_loss(f.region(), f.h, f.h).item()) == 0);

    const std::vector<std::int32_t> ids{1};
    const ht::const_view<std::int32_t, 1> one_target(ids.data(), {1});
    const auto bare = ht::cross_entropy(f.tape, f.h, one_target);
    const auto low = ht::cross_entropy(f.region(), f.h, one_target);
    static_assert(is<float, 0, decltype(bare)> && is<bfloat16, 0, decltype(low)>);
    CHECK(low.item().bits() == bfloat16(bare.item()).bits());
    f.tape.backward(low);
    const double slope = doubles(f.tape.gradient(f.h))[0];
    CHECK((slope > 0.49 && slope < 0.5));
}

/// Two classes, whose logits are never stored.
template <class P>
struct classifier : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit classifier(ht::cpu& device) : model{device}, fc{parameters(), 1, 2} {
        commit(*this, 1);
        support::set(fc.weight, std::vector<float>{fine, 0});
    }
    auto loss(auto& ctx, const auto& x, const std::vector<std::int32_t>& target) const {
        return ht::linear_cross_entropy<ht::layer_roles<P, op::linear_cross_entropy, decltype(ctx)>>(
            ctx, x, fc.weight, ht::const_view<std::int32_t, 1>(target.data(), {1}));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

TEST_CASE("categories: the loss of logits that are never stored") {
    ht::cpu device{{.threads = 1}};
    const std::vector<std::int32_t> target{0};
    const double whole = std::log1p(std::exp(-1.0));  // of the logits 1 and 0, as bfloat16 has 1 + 2^-8
    const auto check = [&](auto& tape, auto& ctx) {
        std::vector<float> one{fine};
        classifier<P> model{device};
        classifier<ht::full_fp32> wide{device};
        support::gradient_sink sink(model.parameters());
        const auto x = ctx.root().leaf(ht::view(one.data(), ht::shape<2>{1, 1}));
        static_assert(is<float, 0, decltype(wide.loss(ctx, x, target))>);
        const auto loss = model.loss(ctx, x, target);
        static_assert(is<bfloat16, 0, decltype(loss)>);  // as the layer computes, in regions and outside
        CHECK(loss.item().bits() == bfloat16(static_cast<float>(whole)).bits());
        tape.backward(loss, sink);
        CHECK(doubles(tape.gradient(x))[0] == doctest::Approx(std::exp(-whole) - 1).epsilon(0.01));
        CHECK(sink.of(model.fc.weight)[0] == doctest::Approx(std::exp(-whole) - 1).epsilon(0.01));
    };
    ht::tape tape{device};
    check(tape, tape);
    const auto region = ht::autocast<ht::full_fp32>(tape);
    check(tape, region);
    ht::tape twice{device, ht::double_backward};
    check(twice, twice);
    // The ledgers, of the types and of what was called, have the cast.
    using model = ht::nn::gpt<ht::amp_bf16>;
    constexpr ht::nn::gpt_config small{.vocabulary = 4, .context = 4, .layers = 1, .heads = 1, .width = 2};
    model lm{device, small};
    ht::tape calls{device, ht::ledger_of_calls};
    const std::vector<std::int32_t> ids{0, 1, 2, 3};
    const ht::const_view<std::int32_t, 2> row(ids.data(), {1, 4});
    struct {
        ht::const_view<std::int32_t, 2> tokens, targets;
    } const batch{row, row};
    static_assert(is<bfloat16, 0, decltype(lm.loss(calls, batch))>);
    lm.loss(calls, batch);
    const auto types = ht::ledger<model>;
    int casts = 0;
    for (const ht::ledger_entry& e : types) {
        CHECK(std::count(calls.entries().begin(), calls.entries().end(), e) == 1);
        casts += e.op == std::string("cast") ? 1 : 0;
    }
    CHECK(casts == 2);
    CHECK(calls.casts() == ht::casts<model>);
}

}  // namespace categories_specialised_tests
