// SPDX-License-Identifier: MIT
/// \file
/// Models that inherit the policy of a region, trained without a loss scale: optimizers and trainers report gradients that pass
/// through fp16.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/optim/sgd.hpp>

#include "train/small_gpt.hpp"

namespace train_regions_tests {

namespace ht = halftone;

const std::string corpus = small::text();
const ht::training_arguments arguments{
    .per_device_train_batch_size = 4, .max_steps = 2, .learning_rate = 3e-3, .logging_steps = 5};

constexpr const char* told =
    "sgd: these gradients passed through fp16, in a region of autocast or an operation of that type, where they "
    "underflow, and were not unscaled by a scaler: declare ht::accumulator acc{model}, scale the loss, and take "
    "scaler.unscale(acc.take())";

/// A model that inherits the region's policy.
struct net : ht::nn::model {
    using policy = ht::inherit;
    ht::nn::linear<ht::at<policy, "fc">> fc;
    explicit net(ht::cpu& device) : model{device}, fc{parameters(), 2, 2} { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

struct loop {
    ht::cpu device{{.threads = 1}};
    net model{device};
    ht::sgd<ht::cpu, net> optimizer{device, model};
    std::vector<float> data{1, 2};
    std::vector<ht::float16> narrow_data{ht::float16(1.0f), ht::float16(2.0f)};
    const ht::view<float, 2> rows{data.data(), {1, 2}};

    /// A step with ht::unscaled; the loss is the sum of f(tape).
    template <class F>
    void step(const F& f) {
        ht::tape tape{device};
        step(tape, f);
    }
    template <class Tape, class F>
    void step(Tape& tape, const F& f) {
        ht::accumulator acc{model, ht::unscaled};
        tape.backward(ht::sum<float>(tape, f(tape)), acc);
        CHECK(acc.has_narrow_gradients() == false);
        const auto before = optimizer.steps();
        optimizer.step(acc.take());
        CHECK(optimizer.steps() == before + 1);
    }
    /// A step that is refused with ht::unscaled, and accepted with a scaler.
    template <class F>
    void refused(const F& f) {
        ht::tape tape{device};
        refused(tape, f);
    }
    template <class Tape, class F>
    void refused(Tape& tape, const F& f) {
        ht::accumulator acc{model, ht::unscaled};
        tape.backward(ht::sum<float>(tape, f(tape)), acc);
        CHECK(acc.has_narrow_gradients());
        CHECK_THROWS_WITH_AS(optimizer.step(acc.take()), told, ht::state_error);
        // The next window is judged independently.
        tape.backward(ht::sum<float>(tape, model.fc(tape, tape.constant(rows))), acc);
        optimizer.step(acc.take());
        // With a scaler these gradients are accepted.
        ht::grad_scaler scaler{device};
        ht::accumulator scaled{model};
        tape.backward(scaler.scale(ht::sum<float>(tape, f(tape))), scaled);
        optimizer.step(scaler.unscale(scaled.take()));
    }
};

TEST_CASE("regions: gradients of fp16 that no scaler scales are refused by the step") {
    loop l;
    const auto in = [&]<class P>(ht::types<P>) {
        return [&](auto& tape) { return l.model.fc(ht::autocast<P>(tape), tape.leaf(l.rows)); };
    };
    l.refused(in(ht::types<ht::amp_fp16>{}));
    l.refused(in(ht::types<ht::with_output<ht::amp_fp16, float>>{}));  // its products read gradients as fp16
    l.refused(in(ht::types<ht::with_weight_grad<ht::full_fp32, ht::float16>>{}));
    l.step(in(ht::types<ht::amp_bf16>{}));
    l.step(in(ht::types<ht::fp8_hybrid>{}));  // its gradients have scales in the policy
    l.step(in(ht::types<ht::with_compute<ht::full_fp32, ht::float16>>{}));
    // The same for free operations.
    l.refused([&](auto& tape) {
        return ht::matmul(ht::autocast<ht::amp_fp16>(tape), l.model.fc(tape, tape.constant(l.rows)),
                          ht::reshape(tape, tape.constant(l.rows), ht::shape<2>{2, 1}));
    });
    l.refused([&](auto& tape) { return ht::cast<ht::float16>(tape, l.model.fc(tape, tape.constant(l.rows))); });
    ht::tape twice{l.device, ht::double_backward};
    l.refused(twice, in(ht::types<ht::amp_fp16>{}));
    ht::tape watched{l.device, ht::watched};
    l.refused(watched, in(ht::types<ht::amp_fp16>{}));
    // Allowed: fp16 results without a gradient, and fp16 leaves, at which the gradient ends.
    l.step([&](auto& tape) {
        in(ht::types<ht::amp_fp16>{})(tape);
        return l.model.fc(tape, tape.leaf(ht::view<ht::float16, 2>(l.narrow_data.data(), {1, 2})));
    });
}

/// A GPT whose loss is computed in a region.
template <class Region>
struct in_region : ht::nn::gpt<ht::inherit> {
    using gpt::gpt;
    template <class Context, class Batch>
    auto loss(Context&& ctx, const Batch& batch) const {
        return gpt::loss(ht::autocast<Region>(ctx), batch);
    }
};
struct stated : in_region<ht::amp_fp16> {
    using policy = ht::amp_fp16;
    using in_region<ht::amp_fp16>::in_region;
};

template <class Model>
struct run {
    ht::cpu device{{.threads = 1}};
    Model model{device, small::config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer<ht::cpu, Model> trainer{device, model, arguments};
};

TEST_CASE("regions: a trainer that scales no loss refuses a model whose gradients are fp16") {
    run<in_region<ht::amp_fp16>> fp16;
    const auto before = small::masters(fp16.model.parameters());
    CHECK_THROWS_WITH_AS(fp16.trainer.train(fp16.data),
                         "trainer: gradients pass through fp16 in a region of autocast, where they underflow, and no "
                         "policy of this model says that its loss needs a scale: give it one that does, using policy = "
                         "ht::amp_fp16, or open a region of bfloat16",
                         ht::state_error);
    CHECK(small::masters(fp16.model.parameters()) == before);
    run<in_region<ht::amp_bf16>> bf16;
    CHECK(bf16.trainer.train(bf16.data).steps == 2);
    // The remedy that the message names.
    static_assert(ht::model_needs_scaling<stated>);
    run<stated> scaled;
    const auto result = scaled.trainer.train(scaled.data);
    CHECK(result.steps == 2);
    CHECK(result.loss_scale > 1);
}

}  // namespace train_regions_tests
