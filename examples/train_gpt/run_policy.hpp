// SPDX-License-Identifier: MIT
/// \file
/// The definitions of run() and run_llama(), which each policy's and device's file includes to instantiate one of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/io/gpt2.hpp>
#include <halftone/train/checkpoints_of_ranks.hpp>
#include <halftone/train/ranks.hpp>
#include <halftone/train/sharded_ranks.hpp>
#include <halftone/train/trainer.hpp>
#include <iostream>
#if defined(TRAIN_GPT_MORE)
#include <halftone/nn/llama.hpp>
#include <halftone/observe/shadow/shadow.hpp>
#endif

#include "run.hpp"

namespace ht = halftone;

namespace {

/// `count` bytes that continue `prompt`, by the model's generate(), which has a key-value cache. When the model's context is
/// full, its second half is the prompt of the next piece. Deterministic for given weights and seed.
template <class Device, class Model>
std::string write_text(Device& device, const Model& model, const std::string& prompt, std::int64_t count,
                       std::uint64_t seed) {
    ht::inference eval{device};
    const ht::extent context = model.context(), most = std::max<ht::extent>(1, context / 2);
    std::vector<std::int32_t> tokens;
    for (const char byte : prompt) tokens.push_back(static_cast<unsigned char>(byte));
    std::string text;
    for (ht::extent piece = 0; static_cast<std::int64_t>(text.size()) < count; ++piece) {
        const auto kept = std::min<ht::extent>(static_cast<ht::extent>(tokens.size()), most);
        const auto more = std::min<ht::extent>(count - static_cast<ht::extent>(text.size()), context - kept);
        if (more == 0) break;  // a context of one byte has no room for another one
        const std::vector<std::int32_t> prompts[] = {{tokens.end() - kept, tokens.end()}};
        const auto written = model.generate(
            eval, prompts, {.max_new_tokens = more, .temperature = 0.8, .seed = seed, .first_sequence = piece});
        for (const std::int32_t token : written[0]) tokens.push_back(token), text += static_cast<char>(token);
    }
    return text;
}

/// Multiplies the weights of a layer for one step, so that its results overflow in float16.
class planter final : public ht::trainer_callback {
  public:
    planter(ht::store& parameters, const std::string& layer, std::int64_t step)
        : parameters_(&parameters), layer_(layer), step_(step) {
        if (layer_.empty()) return;
        if (!spoil(1)) throw exit_with(2, "--plant: no layer '" + layer_ + "' has weights");
        if (step_ == 1) spoil(factor);
    }
    void on_step(const ht::trainer_state& s) override {
        if (layer_.empty()) return;
        if (s.step == step_) spoil(1 / factor);
        if (s.step + 1 == step_) spoil(factor);
    }

  private:
    // A power of two, so that the weights are restored exactly.
    static constexpr float factor = 0x1p19f;

    /// Multiplies the weights; false if there are none.
    bool spoil(float times) {
        bool found = false;
        const auto& entries = parameters_->entries();
        for (std::size_t i = 0; i < entries.size(); ++i) {
            const ht::store::entry& e = entries[i];
            if (e.path.rfind(layer_ + ".", 0) != 0 || e.path.find(".weight") == std::string::npos) continue;
            std::byte* const at = parameters_->groups()[e.group].master.data() + e.master * sizeof(float);
            std::vector<float> values(e.count);
            parameters_->await_readers();  // of a checkpoint that is being saved
            parameters_->memory().read(values.data(), at, e.count * sizeof(float));
            for (float& v : values) v *= times;
            parameters_->memory().write(at, values.data(), e.count * sizeof(float));
            parameters_->refresh(i);
            found = true;
        }
        return found;
    }

    ht::store* parameters_;
    std::string layer_;
    std::int64_t step_;
};

#if defined(TRAIN_GPT_MORE)
/// Before a step, runs its first micro-batch under the policy and in fp32.
template <class Device, class Model, class Trainer>
class shadower final : public ht::trainer_callback {
  public:
    shadower(Device& device, Model& model, Trainer& trainer, ht::language_data& data, const options& o, const surroundings& around)
        : device_(&device), model_(&model), trainer_(&trainer), data_(&data), o_(&o), around_(&around) {
        if (o.shadow_step == 1) look();
    }
    void on_step(const ht::trainer_state& s) override {
        if (s.step + 1 == o_->shadow_step) look();
    }

  private:
    void look() {
        const auto batch = data_->sample(static_cast<std::uint32_t>(o_->shadow_step - 1), o_->batch * o_->accumulation);
        const auto parts = batch.split(o_->accumulation);
        const auto micro = *parts.begin();
        ht::shadow_twin<Model> twin{*device_, model_->config()};
        const auto report = ht::shadow_run(*device_, *model_, twin, [&](auto& tape, const auto& m) {
            return trainer_->scaler().scale(m.loss(tape, micro) * ht::share_of(tape, micro, batch));
        });
        std::cout << "step " << o_->shadow_step << " compared with fp32:\n";
        report.print(std::cout);
        const ht::shadow_row* first = report.first();
        std::cout << (first == nullptr ? "no tensor is beyond its bound" : "first: " + first->text()) << std::endl;
        if (around_->on_shadow) around_->on_shadow(report);
    }

    Device* device_;
    Model* model_;
    Trainer* trainer_;
    ht::language_data* data_;
    const options* o_;
    const surroundings* around_;
};
#endif

/// The run of a model of any kind. A Llama's shadow run is not compiled.
template <class Model, class Device>
run_result train_model(Device& device, Model& model, const options& o, const ht::token_view& corpus,
                       const surroundings& around) {
    ht::language_data data{corpus, {.context = o.context, .vocabulary = o.vocabulary, .most_windows = o.eval_windows, .seed = o.seed}};
    const bool computes_nothing = around.is_plan || around.chooses_budget;
    std::optional<ht::shard<Device, Model, ht::zero>> sharded;
    if (o.zero > 0 && around.ranks != nullptr) {
        sharded.emplace(device, model, *around.ranks, ht::zero(static_cast<int>(o.zero), o.units),
                        ht::shard_options{.micro_batches = static_cast<int>(o.accumulation)});
    }
    ht::trainer trainer{
        device,
        model,
        {.per_device_train_batch_size = o.batch,
         .per_device_eval_batch_size = o.eval_batch != 0 ? o.eval_batch : std::max<ht::extent>(o.batch, 4096 / o.context),
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
         .eval_steps = around.is_plan && o.eval_every <= o.steps ? std::min<std::int64_t>(o.eval_every, std::min<std::int64_t>(o.steps, 2)) : o.eval_every,
         .output_dir = around.checkpoints,
         .save_steps = computes_nothing ? 0 : o.save_steps,
         .save_total_limit = static_cast<int>(o.save_total_limit),
         .resume_from_checkpoint = o.resume && !computes_nothing ? "newest" : "",
         .seed = o.seed,
         .memory = {.budget = around.chooses_budget ? static_cast<std::size_t>(o.budget) : 0},
         .diagnosis = {.find_overflow = o.watch ? ht::overflow_search::on : ht::overflow_search::off,
                       .numerics_steps = o.numerics_every},
         // The usual 2,000 is for long runs; in a short one the scale would never change.
         .scaler = {.growth_interval = static_cast<int>(std::clamp<std::int64_t>(o.steps / 20, 10, 2000))}},
        ht::watched};

    struct stopper : ht::trainer_callback {
        decltype(trainer)* target = nullptr;
        bool (*is_interrupted)() = nullptr;
        bool is_plan = false;
        std::int64_t last_of_plan = 2;
        bool is_of_all_ranks() const override { return true; }  // a signal may come to any process
        void on_step(const ht::trainer_state& s) override {
            if ((is_plan && s.step == last_of_plan) || (is_interrupted != nullptr && is_interrupted())) target->stop();
        }
    } stop_when_interrupted;
    stop_when_interrupted.target = &trainer;
    stop_when_interrupted.is_interrupted = around.is_interrupted;
    stop_when_interrupted.is_plan = around.is_plan;
    if (o.eval_every != 0 && o.eval_every < o.steps) stop_when_interrupted.last_of_plan = 3;  // a step behind an evaluation
    trainer.add_callback(around.observer);
    trainer.add_callback(stop_when_interrupted);
    trainer.listen(around.listener);
    planter plant{model.parameters(), o.planted_layer, o.planted_step};
    trainer.add_callback(plant);
#if defined(TRAIN_GPT_MORE)
    auto shadow = [&] {
        if constexpr (std::is_same_v<Model, ht::nn::gpt<typename Model::policy>>) {
            return shadower{device, model, trainer, data, o, around};
        } else {
            return ht::trainer_callback{};
        }
    }();
    trainer.add_callback(shadow);  // after the planter
#endif

    const ht::trainer_checkpoint_options saving{.arguments = around.arguments, .on_note = [](const std::string& line) {
                                                    std::cerr << "train_gpt: " << line << std::endl;
                                                }};
    if (sharded) {
        ht::join(trainer, *sharded);
    } else if (around.ranks != nullptr) {
        ht::join(trainer, *around.ranks);
    }
    std::optional<decltype(ht::trainer_checkpoints(trainer, saving))> alone;
    std::optional<decltype(ht::trainer_checkpoints(trainer, *around.ranks, saving))> together;
    if (around.ranks == nullptr) {
        alone.emplace(trainer, saving);
    } else {
        together.emplace(trainer, *around.ranks, saving);
    }

    run_result result;
    result.parameters = model.parameters().size();
    result.policies = ht::policies_of<Model>();
    if (around.chooses_budget) {
        result.budget = trainer.fit_to_budget(data);
        return result;
    }
    if (around.counted != nullptr) around.counted->clear();
    result.training = trainer.train(data);
    if (around.counted != nullptr) result.collectives = run_collectives(*around.counted);
    if (result.training.end == ht::training_end::stopped || around.is_plan) return result;
    result.validation = trainer.evaluate(data);
    const bool writes = around.is_first_rank() || sharded;  // ranks call a divided model together
    if (o.write > 0 && o.tokens.empty() && writes && std::isfinite(result.validation->loss)) {
        std::string prompt;
        const ht::token_view held_out = data.validation();
        for (ht::extent i = 0; i < std::min<ht::extent>(held_out.size(), 16); ++i)
            prompt += static_cast<char>(held_out[i]);
        result.text = write_text(device, model, prompt, o.write, o.seed);
    }
    return result;
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
    if (!o.init.empty() && !around.is_plan && !around.chooses_budget) ht::load_gpt2(model, o.init);
    if (o.recomputed_blocks != 0) model.checkpoint_where([&o](int block) { return block < o.recomputed_blocks; });
    return train_model(device, model, o, corpus, around);
}

#if defined(TRAIN_GPT_MORE)
template <class Policy, class Device>
run_result run_llama(Device& device, const options& o, const ht::token_view& corpus, const surroundings& around) {
    ht::nn::llama<Policy> model{device,
                                {.vocab_size = o.vocabulary,
                                 .hidden_size = o.width,
                                 // Three matrices with as many elements as the GPT's two of four widths.
                                 .intermediate_size = (8 * o.width / 3 + 15) / 16 * 16,
                                 .num_hidden_layers = static_cast<int>(o.layers),
                                 .num_attention_heads = o.heads,
                                 .num_key_value_heads = o.kv_heads,
                                 .max_position_embeddings = o.context,
                                 .logits = o.keeps_logits ? ht::keep_logits::where_small : ht::keep_logits::never},
                                o.seed};
    model.checkpoint_every(static_cast<int>(o.checkpointing));
    if (o.recomputed_blocks != 0) model.checkpoint_where([&o](int block) { return block < o.recomputed_blocks; });
    return train_model(device, model, o, corpus, around);
}
#endif
