// SPDX-License-Identifier: MIT
/// \file
/// The definitions of run() and run_llama(), which each policy's and device's file includes to instantiate one of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/io/pretrained/gpt2.hpp>
#include <halftone/train/checkpoints_of_ranks.hpp>
#include <halftone/train/ranks.hpp>
#include <halftone/train/sharded_ranks.hpp>
#include <halftone/train/trainer.hpp>
#if defined(TRAIN_GPT_MORE)
#include <halftone/io/pretrained/llama.hpp>
#include <halftone/observe/shadow/shadow.hpp>
#endif

#include "run.hpp"

namespace {

/// `count` bytes that continue the first ones of `held_out`, by the model's generate(), which has a key-value cache. When the
/// model's context is full, its second half is the prompt of the next piece. Deterministic for given weights and seed.
template <class Device, class Model>
std::string write_text(Device& device, const Model& model, const ht::token_view& held_out, const options& o) {
    ht::inference eval{device};
    const ht::extent context = model.context(), most = std::max<ht::extent>(1, context / 2);
    std::vector<std::int32_t> tokens;
    for (ht::extent i = 0; i < std::min<ht::extent>(held_out.size(), 16); ++i) tokens.push_back(held_out[i]);
    std::string text;
    for (ht::extent piece = 0; static_cast<std::int64_t>(text.size()) < o.write; ++piece) {
        const auto kept = std::min<ht::extent>(static_cast<ht::extent>(tokens.size()), most);
        const auto more = std::min<ht::extent>(o.write - static_cast<ht::extent>(text.size()), context - kept);
        if (more == 0) break;  // a context of one byte has no room for another one
        const std::vector<std::int32_t> prompts[] = {{tokens.end() - kept, tokens.end()}};
        const auto written = model.generate(
            eval, prompts, {.max_new_tokens = more, .temperature = 0.8, .seed = o.seed, .first_sequence = piece});
        for (const std::int32_t token : written[0]) tokens.push_back(token), text += static_cast<char>(token);
    }
    return text;
}

#if defined(TRAIN_GPT_MORE)
/// Runs the first micro-batch of the options' shadow step under the policy and in fp32, and compares.
template <class Device, class Model, class Trainer>
void run_shadow(Device& device, Model& model, Trainer& trainer, ht::language_data& data, const options& o,
                const surroundings& around) {
    const auto batch = data.sample(static_cast<std::uint32_t>(o.shadow_step - 1), o.batch * o.accumulation);
    const auto parts = batch.split(o.accumulation);
    const auto micro = *parts.begin();
    ht::shadow_twin<Model> twin{device, model.config()};
    const auto report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        return trainer.scaler().scale(m.loss(tape, micro) * ht::share_of(tape, micro, batch));
    });
    std::cout << "step " << o.shadow_step << " compared with fp32:\n";
    report.print(std::cout);
    const ht::shadow_row* first = report.first();
    std::cout << (first == nullptr ? "no tensor is beyond its bound" : "first: " + first->text()) << std::endl;
    if (around.on_shadow) around.on_shadow(report);
}
#endif

ht::training_arguments arguments_of(const options& o, const surroundings& around) {
    const bool computes_nothing = around.is_plan || around.chooses_budget;
    const bool evaluates_in_plan = around.is_plan && o.eval_every <= o.steps;
    return {.per_device_train_batch_size = o.batch,
            .per_device_eval_batch_size =
                o.eval_batch != 0 ? o.eval_batch : std::max<ht::extent>(o.batch, 4096 / o.context),
            .gradient_accumulation_steps = o.accumulation,
            .max_steps = o.steps,
            .optim = o.optimizer,
            .learning_rate = o.learning_rate,
            .weight_decay = 0.1,
            .adam_beta2 = 0.95,
            .lr_scheduler_type = ht::cosine,
            .warmup_ratio = 0.1,
            .final_lr_ratio = 0.1,
            .logging_steps = std::max<std::int64_t>(1, o.steps / 20),
            .eval_steps = evaluates_in_plan ? std::min<std::int64_t>({o.eval_every, o.steps, 2}) : o.eval_every,
            .output_dir = around.checkpoints,
            .save_steps = computes_nothing ? 0 : o.save_steps,
            .save_total_limit = static_cast<int>(o.save_total_limit),
            .resume_from_checkpoint = o.resume && !computes_nothing ? "newest" : "",
            .seed = o.seed,
            .memory = {.budget = around.chooses_budget ? static_cast<std::size_t>(o.budget) : 0},
            .diagnosis = {.find_overflow = o.watch ? ht::overflow_search::on : ht::overflow_search::off,
                          .numerics_steps = o.numerics_every},
            // The usual 2,000 is for long runs; in a short one the scale would never change.
            .scaler = {.growth_interval = static_cast<int>(std::clamp<std::int64_t>(o.steps / 20, 10, 2000))}};
}

/// Called after every step, on every rank: a signal may come to any process.
struct at_each_step final : ht::trainer_callback {
    std::function<void(std::int64_t)> call;
    bool is_of_all_ranks() const override { return true; }
    void on_step(const ht::trainer_state& s) override { call(s.step); }
};

/// Trains, evaluates, exports the model and writes a text, as far as the run goes.
template <class Device, class Model, class Trainer>
void train_and_write(Device& device, Model& model, Trainer& trainer, ht::language_data& data, const options& o,
                     const surroundings& around, run_result& result) {
    if (around.counted != nullptr) around.counted->clear();
    result.training = trainer.train(data);
    if (const auto* c = around.counted; c != nullptr)
        result.collectives = {static_cast<double>(c->bytes()), c->seconds_under_way(), c->seconds_waited(),
                              c->hidden_share()};
    if (result.training.end == ht::training_end::stopped || around.is_plan) return;
    result.validation = trainer.evaluate(data);
    const bool writes =
        around.ranks == nullptr || around.ranks->rank() == 0 || o.zero > 0;  // ranks call a divided model together
    if (!o.export_to.empty() && writes)
        export_by(around, [&] { ht::save_pretrained(model, o.export_to, {.like = o.like}); });
    if (o.write > 0 && o.tokens.empty() && writes && std::isfinite(result.validation->loss))
        result.text = write_text(device, model, data.validation(), o);
}

/// The run of a model of any kind. A Llama's shadow run is not compiled.
template <class Model, class Device>
run_result train_model(Device& device, Model& model, const options& o, const ht::token_view& corpus,
                       const surroundings& around) {
    ht::language_data data{
        corpus, {.context = o.context, .vocabulary = o.vocabulary, .most_windows = o.eval_windows, .seed = o.seed}};
    std::optional<ht::shard<Device, Model, ht::zero>> sharded;
    if (o.zero > 0 && around.ranks != nullptr) {
        sharded.emplace(device, model, *around.ranks, ht::zero(static_cast<int>(o.zero), o.units),
                        ht::shard_options{.micro_batches = static_cast<int>(o.accumulation)});
    }
    ht::trainer trainer{device, model, arguments_of(o, around), ht::watched};

    const auto compare_with_fp32 = [&] {
#if defined(TRAIN_GPT_MORE)
        if constexpr (std::is_same_v<Model, ht::nn::gpt<typename Model::policy>>)
            run_shadow(device, model, trainer, data, o, around);
#endif
    };
    const std::int64_t last_of_plan =
        o.eval_every != 0 && o.eval_every < o.steps ? 3 : 2;  // a step behind an evaluation
    at_each_step each;
    each.call = [&](std::int64_t step) {
        if ((around.is_plan && step == last_of_plan) || (around.is_interrupted != nullptr && around.is_interrupted()))
            trainer.stop();
        if (step + 1 == o.shadow_step) compare_with_fp32();
    };
    trainer.add_callback(around.observer);
    trainer.add_callback(each);
    trainer.listen(around.listener);
    if (sharded)
        ht::join(trainer, *sharded);
    else if (around.ranks != nullptr)
        ht::join(trainer, *around.ranks);

    run_result result;
    result.parameters = model.parameters().size();
    result.policies = ht::policies_of<Model>();
    if (around.chooses_budget) {
        result.budget = trainer.fit_to_budget(data);
        return result;
    }
    if (o.shadow_step == 1) compare_with_fp32();
    const ht::trainer_checkpoint_options saving{.arguments = around.arguments, .on_note = [](const std::string& line) {
                                                    std::cerr << "train_gpt: " << line << std::endl;
                                                }};
    const auto saved = [&](auto&... ranks) {
        ht::trainer_checkpoints checkpoints{trainer, ranks..., saving};
        train_and_write(device, model, trainer, data, o, around, result);
    };
    if (around.ranks != nullptr)
        saved(*around.ranks);
    else
        saved();
    return result;
}

/// Reads the weights of --init, if there are any and the run computes something.
template <class Model>
void load_initial(Model& model, const options& o, const surroundings& around) {
    if (!o.init.empty() && !around.is_plan && !around.chooses_budget) ht::load_pretrained(model, o.init);
}

}  // namespace

template <class Policy, class Device>
run_result run(Device& device, const options& o, const ht::token_view& corpus, const surroundings& around) {
    ht::nn::gpt<Policy> model{device,
                              {.vocabulary = o.vocabulary,
                               .context = o.positions != 0 ? o.positions : o.context,
                               .layers = static_cast<int>(o.layers),
                               .heads = o.heads,
                               .width = o.width,
                               .logits = o.keeps_logits ? ht::keep_logits::where_small : ht::keep_logits::never,
                               .checkpointing = static_cast<int>(o.checkpointing)},
                              o.seed};
    load_initial(model, o, around);
    if (o.recomputed_blocks != 0) model.checkpoint_where([&o](int block) { return block < o.recomputed_blocks; });
    return train_model(device, model, o, corpus, around);
}

#if defined(TRAIN_GPT_MORE)
template <class Policy, class Device>
run_result run_llama(Device& device, const options& o, const ht::token_view& corpus, const surroundings& around) {
    ht::nn::llama_config c{.vocab_size = o.vocabulary,
                           .hidden_size = o.width,
                           // Three matrices with as many elements as the GPT's two of four widths.
                           .intermediate_size = (8 * o.width / 3 + 15) / 16 * 16,
                           .num_hidden_layers = static_cast<int>(o.layers),
                           .num_attention_heads = o.heads,
                           .num_key_value_heads = o.kv_heads,
                           .max_position_embeddings = o.context};
    if (o.llama) c = *o.llama;
    c.logits = o.keeps_logits ? ht::keep_logits::where_small : ht::keep_logits::never;
    ht::nn::llama<Policy> model{device, c, o.seed};
    load_initial(model, o, around);
    model.checkpoint_every(static_cast<int>(o.checkpointing));
    if (o.recomputed_blocks != 0) model.checkpoint_where([&o](int block) { return block < o.recomputed_blocks; });
    return train_model(device, model, o, corpus, around);
}
#endif
