// SPDX-License-Identifier: MIT
/// \file
/// Shadow runs on the CPU: correct steps have nothing to report, and a mistake in one layer is reported with the layer's name.
#include <sstream>

#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/softmax.hpp>

#include "nn/pack.hpp"
#include "support/gradient_sink.hpp"
#include "train/overflow_checks.hpp"
#include "train/shadow_checks.hpp"

namespace train_shadow_tests {

namespace ht = halftone;

using shadow_checks::first_of;

TEST_CASE_TEMPLATE("shadow: an operation that casts wrongly or loses addends, and a stale copy, are named", P,
                   ht::amp_bf16, ht::amp_fp16, ht::fp8_hybrid) {
    ht::cpu device{{.threads = 1}};
    shadow_checks::names_what_is_wrong<P>(device);
}

TEST_CASE("shadow: a layer whose gradients underflow or overflow is named") {
    ht::cpu device{{.threads = 1}};
    shadow_checks::names_what_leaves_the_range(device);
}

using fp8_with_wide_gradients = ht::with_grad<ht::fp8_hybrid, ht::bfloat16>;
/// Layers with 8-bit operands together with others, and perceptrons that consist of several operations.
using fp8_in_some_layers =
    ht::recipe<ht::amp_bf16, ht::rule<"h.*.attn.qkv", ht::fp8_hybrid>, ht::rule<"h.*.mlp.up", ht::fp8_hybrid>>;
using narrow_stream = ht::with_stream<ht::amp_bf16, ht::bfloat16>;

TEST_CASE_TEMPLATE("shadow: a GPT's step under mixed precision differs from fp32 only by rounding", P, ht::amp_bf16,
                   ht::amp_fp16, ht::fp8_hybrid, fp8_with_wide_gradients, fp8_in_some_layers, narrow_stream) {
    ht::cpu device{{.threads = 1}};
    overflow_checks::loop<P, ht::cpu> l(device);
    ht::shadow_twin<ht::nn::gpt<P>> twin{device, overflow_checks::config};
    const auto step = [&](auto& tape, const auto& m) { return l.scaler.scale(m.loss(tape, l.whole())); };
    const auto report = ht::shadow_run(device, l.model, twin, step);
    std::ostringstream table;
    report.print(table);
    CAPTURE(table.str());
    CHECK(first_of(report) == "");

    // Packed documents: the number of operations is the same.
    const nn_test::pack documents({4, 1, 0, 3}, static_cast<int>(overflow_checks::config.vocabulary));
    const auto packed = ht::shadow_run(device, l.model, twin, [&](auto& tape, const auto& m) {
        return l.scaler.scale(m.loss(tape, documents.in_a_row()));
    });
    CHECK(first_of(packed) == "");
    CHECK(packed.rows.size() == report.rows.size());

    // Frozen layers; the twin's are frozen, too.
    l.model.parameters().freeze("h.0");
    l.model.parameters().freeze("h.1.mlp.down");
    const auto frozen = ht::shadow_run(device, l.model, twin, step);
    CHECK(first_of(frozen) == "");
    CHECK(frozen.rows.size() < report.rows.size());
}

/// An operation with 16-bit inputs that magnifies their rounding errors, and that rounds three times.
struct magnified {
    static constexpr const char* name = "magnified";
    static constexpr ht::category cast_rule = ht::category::low_precision;
    static constexpr int roundings = 3;

    static auto forward(auto& ctx, const auto& x, const auto& gain) {
        const auto steep = ht::map(
            ctx, [](auto a, auto g) { return (a - 1.0f) * 64.0f * g; }, x, gain);
        const auto larger = ht::map(
            ctx, [](auto a) { return a * 1.1f; }, steep);
        return ht::keep(ht::map(
                            ctx, [](auto a) { return a * 0.7f; }, larger),
                        gain);
    }
    static auto backward(auto& ctx, const auto& dy, const auto& gain) {
        return std::tuple(ht::map(
                              ctx, [](auto d, auto g) { return 64.0f * d * g; }, dy, gain),
                          ht::absent{});
    }
};

/// The perceptron's layers have different policies, so that it consists of several operations; so must the twin's.
using split_perceptron = ht::recipe<ht::amp_bf16, ht::rule<"mlp.up", ht::full_fp32>>;

/// Free operations of many kinds, casts and regions among them.
template <class P>
struct all_kinds : ht::nn::model {
    using policy = P;
    ht::nn::rms_norm<ht::at<P, "norm">> norm;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::mlp<ht::at<P, "mlp">> mlp;
    explicit all_kinds(ht::cpu& device)
        : model(device), norm(parameters(), 16), up(parameters(), 16, 48), mlp(parameters(), 16, 40) {
        commit(*this, 11);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.up, self.mlp); }

    auto operator()(auto& tape, const auto& input) const {
        auto ctx = ht::autocast<P>(tape);
        using roles = ht::layer_roles<ht::at<P, "up">, ht::op::attention, decltype(ctx)>;
        const auto x = norm(ctx, input);  // (2, 5, 16)
        const auto qkv = up(ctx, x);      // (2, 5, 48)
        const auto mixed = mlp(ctx, ht::self_attention<roles>(ctx, qkv, 4, {.mask = ht::attention_mask::causal}),
                               ht::cast<float>(ctx, x));
        const auto table = ht::reshape(ctx, ht::as_variable(ctx, mlp.up.weight), ht::shape<2>{16, 40});
        const auto scores = ht::matmul(ctx, mixed, ht::cast<ht::bfloat16>(ctx, table));  // (2, 5, 40)
        const auto again = ht::matmul(ht::autocast<ht::amp_fp16>(tape), mixed, table);
        const auto weights = ht::softmax(ctx, scores, 2.0f), logarithms = ht::log_softmax(ctx, scores);
        const auto halves = ht::mul(ctx, weights, ht::cast<float>(ctx, ht::gelu(ctx, again)));
        const auto moved =
            ht::add(ctx, halves, ht::as_variable<typename decltype(mlp.up.bias)::compute>(ctx, mlp.up.bias));
        const auto own = ht::apply<magnified>(ctx, ht::cast<float>(ctx, x), norm.gain);
        const auto means = ht::add(ctx, ht::mean(ctx, ht::dropout(ctx, moved, {.p = 0.25f})),
                                   ht::mean(ctx, ht::mul(ctx, logarithms, logarithms)));
        return ht::add(ctx, means, ht::cast<float>(ctx, ht::mean(ctx, own)));
    }
};

TEST_CASE_TEMPLATE("shadow: free operations, casts, regions and dropout differ only by rounding", P,
                   ht::amp_bf16, ht::amp_fp16, split_perceptron) {
    ht::cpu device{{.threads = 1}};
    all_kinds<P> model{device};
    ht::shadow_twin<all_kinds<P>> twin{device};
    const auto input = support::random(2).normals<float>(2 * 5 * 16);
    const auto step = [&](auto& tape, const auto& m) {
        return m(tape, tape.leaf(ht::const_view<float, 3>(input.data(), {2, 5, 16}))) * 4096;
    };
    const auto report = ht::shadow_run(device, model, twin, step);
    std::ostringstream table;
    report.print(table);
    CAPTURE(table.str());
    CHECK(first_of(report) == "");
    CHECK(report.rows.size() > 40);
}

/// Free operations read a layer's parameters in fp32, from the masters; the twin has the values of the copies.
template <class P>
struct read_wider : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit read_wider(ht::cpu& device) : model(device), fc(parameters(), 8, 4) {
        commit(*this, 3);
        // The product is small compared with the bias, so that the bound is that of the bias.
        support::set(fc.weight, std::vector<float>(32, 0x1p-12f));
        support::set(fc.bias, support::random(5).normals<float>(4));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }

    auto operator()(auto& tape, const auto& input) const {
        const auto y = ht::linear<float>(tape, input, fc.weight, fc.bias);
        const auto z = ht::linear(ht::autocast<P>(tape), input, fc.weight, fc.bias);
        const auto both = ht::matmul(ht::autocast<ht::with_weight_grad<P, float>>(tape),
                                     ht::reshape(tape, y, ht::shape<2>{4, 5}), ht::cast<float>(tape, z));
        return ht::sum<float>(tape, ht::mul(tape, both, both));
    }
};

TEST_CASE_TEMPLATE("shadow: a bias read from its master differs from the twin's only by the rounding of the copy", P,
                   ht::amp_bf16, ht::amp_fp16) {
    ht::cpu device{{.threads = 1}};
    read_wider<P> model{device};
    ht::shadow_twin<read_wider<P>> twin{device};
    const auto input = support::random(2).normals<float>(5 * 8);
    const auto report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        return m(tape, tape.leaf(ht::const_view<float, 2>(input.data(), {5, 8}))) * 1024;
    });
    std::ostringstream table;
    report.print(table);
    CAPTURE(table.str());
    CHECK(first_of(report) == "");
    CHECK(report.rows.size() > 8);
}

TEST_CASE("shadow: with dropout, MLPs in eight bits have as many operations as in fp32") {
    ht::cpu device{{.threads = 1}};
    overflow_checks::loop<ht::fp8_hybrid, ht::cpu> l(device);
    ht::nn::gpt_config config = overflow_checks::config;
    config.dropout = 0.25f;
    ht::nn::gpt<ht::fp8_hybrid> model{device, config};
    ht::shadow_twin<ht::nn::gpt<ht::fp8_hybrid>> twin{device, config};
    const auto report =
        ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) { return m.loss(tape, l.whole()) * 1024; });
    CHECK(first_of(report) == "");
    CHECK(report.rows.size() > 40);
}

TEST_CASE("shadow: values that a stale scale saturates or rounds to zero are reported with the layer") {
    using P = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<>>;
    ht::cpu device{{.threads = 1}};
    overflow_checks::loop<P, ht::cpu> trained(device), fresh(device);
    ht::shadow_twin<ht::nn::gpt<P>> twin{device, overflow_checks::config};
    const auto first = [&](auto& l) {
        return first_of(ht::shadow_run(
            device, l.model, twin, [&](auto& tape, const auto& m) { return l.scaler.scale(m.loss(tape, l.whole())); }));
    };
    for (int i = 0; i < 3; ++i) trained.step(trained.whole());
    CHECK(first(trained) == "");
    trained.scale_weight("h.1.mlp.up.weight", 64);
    CHECK(first(trained) == "h.1.mlp mlp forward value");
    for (int i = 0; i < 2; ++i) trained.step(trained.whole());
    CHECK(first(trained) == "");
    // Before the first step scales are 1, and half of the smallest number is 2^-10.
    fresh.scale_weight("h.1.attn.qkv.weight", 0x1p-8f);
    CHECK(first(fresh) == "h.1.attn.qkv linear forward value");
}

}  // namespace train_shadow_tests
