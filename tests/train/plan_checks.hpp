// SPDX-License-Identifier: MIT
/// \file
/// Training runs of many configurations whose plan is what they need, to the byte, on any device: policies, models,
/// optimizers, packed documents, checkpoints, evaluations.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/nn/classifier.hpp>
#include <halftone/nn/llama.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "nn/pack.hpp"
#include "train/small_gpt.hpp"

namespace plan_checks {

namespace ht = halftone;

/// Expects of program(device, steps) the bytes of its plan, which has two steps.
template <class Device, class Program>
void expect_exact(const char* name, Device& device, int steps, const Program& program) {
    CAPTURE(name);
    const ht::memory_plan plan = ht::plan(device, [&](auto& twin) { program(twin, 2); });
    device.memory().release_cached();
    REQUIRE(device.memory().usage().live() == 0);
    device.memory().usage().reset_peaks();
    program(device, steps);
    const ht::memory_usage& usage = device.memory().usage();
    CHECK(plan.peak_bytes == usage.peak());
    for (int k = 0; k < ht::memory_kinds; ++k) {
        const auto kind = static_cast<ht::memory_kind>(k);
        CAPTURE(ht::name(kind));
        CHECK(plan.peak_of(kind) == usage.peak(kind));
    }
}

/// A GPT, by a loop written out, with the optimizer that make(device, model) gives, two micro-batches a step.
template <class P, class Make>
auto with_optimizer(const Make& make) {
    return [make](auto& device, int steps) {
        using device_type = std::remove_reference_t<decltype(device)>;
        using model_type = ht::nn::gpt<P>;
        static const std::string corpus = small::text();
        model_type model{device, small::config, 1};
        auto optimizer = make(device, model);
        ht::grad_scaler<device_type> scaler{device, {.init_scale = 1024, .enabled = ht::model_needs_scaling<model_type>}};
        ht::accumulator acc{model};
        ht::tape tape{device};
        ht::language_data data{ht::token_view{corpus}, small::options};
        for (int step = 0; step < steps; ++step) {
            for (const auto& micro : data.sample(static_cast<std::uint32_t>(step), 6).split(2))
                tape.backward(scaler.scale(model.loss(tape, micro) / 2), acc);
            auto gradients = scaler.unscale(acc.take());
            ht::clip_grad_norm(gradients, 1.0f);
            optimizer.step(gradients);
            scaler.update();
        }
    };
}

/// A model made of a configuration, trained by the trainer on batches that data gives.
template <class Model, class Config, class Data>
auto by_trainer(const Config& config, ht::training_arguments arguments, const Data& make_data) {
    return [=](auto& device, int steps) {
        Model model{device, config, 1};
        auto data = make_data(device);
        ht::training_arguments now = arguments;
        now.max_steps = steps;
        now.learning_rate = 1e-3;
        ht::trainer trainer{device, model, now};
        trainer.train(data);
    };
}
/// The small text, in rows of the small context.
inline auto text_data() {
    return [](auto&) {
        static const std::string corpus = small::text();
        return ht::language_data{ht::token_view{corpus}, small::options};
    };
}

/// Batches of documents in one row, of equal shapes.
struct packed_data {
    struct batch : ht::packed_batch {
        struct alone {
            const batch* only;
            const batch* begin() const { return only; }
            const batch* end() const { return only + 1; }
        };
        alone split(ht::extent) const { return {this}; }
        template <class Function>
        batch with_views(const Function& f) const {
            return {ht::packed_batch::with_views(f)};
        }
    };
    nn_test::pack docs{{5, 1, 8, 3, 8}, 32};
    batch sample(std::uint32_t, ht::extent) { return {docs.in_a_row()}; }
};

/// Rows of various lengths with labels, for a classifier, in the device's memory.
template <class Device>
struct labelled_data {
    struct batch {
        ht::const_view<std::int32_t, 2> tokens{};
        ht::const_view<std::int32_t, 1> labels{}, lengths{};
        ht::extent size() const { return tokens.size(); }
        struct alone {
            const batch* only;
            const batch* begin() const { return only; }
            const batch* end() const { return only + 1; }
        };
        alone split(ht::extent) const { return {this}; }
        template <class Function>
        batch with_views(const Function& f) const {
            return {f(tokens), f(labels), f(lengths)};
        }
    };
    ht::host_tensor<std::int32_t, 2> tokens{ht::shape<2>{4, 8}};
    ht::host_tensor<std::int32_t, 1> labels{ht::shape<1>{4}}, lengths{ht::shape<1>{4}};
    ht::tensor<std::int32_t, 2> tokens_there;
    ht::tensor<std::int32_t, 1> labels_there, lengths_there;

    explicit labelled_data(Device& device)
        : tokens_there((fill(), ht::to_device(device, tokens))),
          labels_there(ht::to_device(device, labels)),
          lengths_there(ht::to_device(device, lengths)) {}
    batch sample(std::uint32_t, ht::extent) { return {tokens_there.view(), labels_there.view(), lengths_there.view()}; }

  private:
    int fill() {
        for (ht::extent r = 0; r < 4; ++r) {
            labels.view()(r) = static_cast<std::int32_t>(r % 2);
            lengths.view()(r) = static_cast<std::int32_t>(2 * r + 2);
            for (ht::extent t = 0; t < 8; ++t) tokens.view()(r, t) = static_cast<std::int32_t>((3 * r + t) % 32);
        }
        return 0;
    }
};

/// Optimizers, and rows of documents, with one policy.
template <class P, class Device>
void optimizers_and_rows(Device& device, int steps) {
    using gpt = ht::nn::gpt<P>;
    const auto expect = [&](const char* name, const auto& make) {
        expect_exact(name, device, steps, with_optimizer<P>(make));
    };
    expect("sgd", []<class D>(D& d, gpt& m) { return ht::sgd<D, gpt>(d, m, ht::sgd_options{.momentum = 0.9}, {}); });
    expect("lion", []<class D>(D& d, gpt& m) { return ht::lion<D, gpt>(d, m, ht::lion_options{}, {}); });
    expect("adafactor", []<class D>(D& d, gpt& m) { return ht::adafactor<D, gpt>(d, m, ht::adafactor_options{}, {}); });
    expect("muon", []<class D>(D& d, gpt& m) {
        return ht::muon<D, gpt>(d, m, ht::muon_options{.hidden = {"h.*.attn.*.weight", "h.*.mlp.*.weight"}},
                                std::vector<ht::parameter_group>{});
    });
    expect("adamw_8bit", []<class D>(D& d, gpt& m) {
        return ht::adamw_8bit<D, gpt>(d, m, ht::adamw_8bit_options{.min_8bit_size = 256}, {});
    });
    expect("adamw with an average", []<class D>(D& d, gpt& m) {
        return ht::adamw<D, gpt>(d, m, ht::adamw_options{.ema_decay = 0.9}, {});
    });

    expect_exact("packed rows", device, steps,
                 by_trainer<gpt>(small::config, {.per_device_train_batch_size = 1}, [](auto&) { return packed_data{}; }));
    ht::nn::gpt_config nested = small::config;
    nested.layers = 3, nested.dropout = 0.1f, nested.logits = ht::keep_logits::never;
    expect_exact("checkpoints, dropout, accumulation, logits computed again", device, steps,
                 by_trainer<gpt>(nested,
                                 {.per_device_train_batch_size = 2, .gradient_accumulation_steps = 3, .gradient_checkpointing = true, .memory = {.checkpoint_every = 2}},
                                 text_data()));
    nested.logits = ht::keep_logits::always;
    expect_exact("an evaluation that is larger than a step, logits kept", device, steps,
                 by_trainer<gpt>(nested,
                                 {.per_device_train_batch_size = 1, .per_device_eval_batch_size = 24, .eval_steps = 2},
                                 text_data()));
    expect_exact("an outlier guard and long logs", device, steps,
                 by_trainer<gpt>(small::config, {.logging_steps = 700, .scaler = {.outlier_factor = 6, .outlier_window = 64}}, text_data()));
}

/// A policy's GPT by the trainer, with accumulation and checkpoints.
template <class P, class Device>
void policy(const char* name, Device& device, int steps) {
    expect_exact(name, device, steps,
                 by_trainer<ht::nn::gpt<P>>(small::config,
                                            {.per_device_train_batch_size = 3, .gradient_accumulation_steps = 2, .gradient_checkpointing = true, .memory = {.checkpoint_every = 2}},
                                            text_data()));
}

/// Policies and models that take long to compile.
template <class Device>
void policies_and_models(Device& device, int steps) {
    policy<ht::fp8_hybrid>("fp8_hybrid", device, steps);
    policy<ht::with_split_master<ht::amp_bf16>>("split masters", device, steps);
    policy<ht::pure_bf16>("pure_bf16", device, steps);
    policy<ht::with_state<ht::with_accumulate<ht::pure_bf16, ht::bfloat16>, ht::bfloat16>>("bfloat16 throughout", device,
                                                                                           steps);
    policy<ht::tf32>("tf32", device, steps);
    expect_exact("llama", device, steps,
                 by_trainer<ht::nn::llama<ht::amp_bf16>>(
                     ht::nn::llama_config{.vocab_size = 32, .hidden_size = 32, .intermediate_size = 48,
                                          .num_hidden_layers = 2, .num_attention_heads = 4, .num_key_value_heads = 2,
                                          .max_position_embeddings = 8},
                     {.per_device_train_batch_size = 3, .gradient_accumulation_steps = 2, .gradient_checkpointing = true}, text_data()));
    expect_exact("qwen3 with tied embeddings, in fp16", device, steps,
                 by_trainer<ht::nn::qwen3<ht::amp_fp16>>(
                     ht::nn::llama_config{.vocab_size = 32, .hidden_size = 32, .intermediate_size = 48,
                                          .num_hidden_layers = 2, .num_attention_heads = 4,
                                          .max_position_embeddings = 8, .tie_word_embeddings = true},
                     {.per_device_train_batch_size = 3}, text_data()));
    expect_exact("encoder with lengths", device, steps,
                 by_trainer<ht::nn::classifier<ht::amp_bf16>>(
                     ht::nn::classifier_config{.encoder = {.vocab_size = 32, .hidden_size = 32, .num_hidden_layers = 2,
                                                           .num_attention_heads = 2, .intermediate_size = 64,
                                                           .max_position_embeddings = 8, .hidden_dropout_prob = 0.1f},
                                               .classifier_dropout = 0.1f},
                     {.per_device_train_batch_size = 4}, [](auto& d) {
                         return labelled_data<std::remove_reference_t<decltype(d)>>(d);
                     }));
}

}  // namespace plan_checks
