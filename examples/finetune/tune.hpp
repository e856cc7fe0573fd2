// SPDX-License-Identifier: MIT
/// \file
/// The definitions of a method's functions, which each method's source includes to instantiate them.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/io/peft.hpp>
#include <halftone/io/pretrained.hpp>
#include <halftone/io/pretrained/save_gguf.hpp>
#include <halftone/nn/generation.hpp>
#include <halftone/policy/lora.hpp>
#include <halftone/train/checkpoints.hpp>
#include <halftone/train/trainer.hpp>

#include "results.hpp"
#include "task.hpp"

namespace {

/// The adapters of a task, for models that are made while this exists; of methods without adapters nothing.
template <bool has_adapters>
struct adapters_of {
    adapters_of(ht::cpu& device, const task& t) {
        if constexpr (has_adapters) added.emplace(device, ht::adapter_options{.rank = t.rank, .alpha = t.alpha});
    }
    std::optional<ht::add_adapters> added;
};

ht::training_arguments arguments_of(const task& t, const std::filesystem::path& checkpoints = {},
                                    std::int64_t save_steps = 0) {
    return {.per_device_train_batch_size = t.batch,
            .per_device_eval_batch_size = 1,
            .max_steps = t.steps,
            .learning_rate = t.learning_rate,
            .lr_scheduler_type = ht::cosine,
            .warmup_ratio = 0.05,
            .logging_steps = std::max<std::int64_t>(1, t.steps / 20),
            .eval_steps = std::max<std::int64_t>(1, t.steps / 4),
            .output_dir = save_steps == 0 ? "" : checkpoints.string(),
            .save_steps = save_steps,
            .save_total_limit = save_steps == 0 ? 0 : 1,
            .resume_from_checkpoint = save_steps == 0 ? "" : "newest",
            .seed = t.seed + 1,
            .memory = {.budget = t.budget}};
}

/// Ends a run behind a step.
struct step_watcher final : ht::trainer_callback {
    std::function<bool(std::int64_t)> is_last;
    std::function<void()> stop;
    void on_step(const ht::trainer_state& s) override {
        if (is_last(s.step)) stop();
    }
};

/// What the model says to each question, greedily, as many tokens as the longest answer.
template <class Model>
std::vector<ids> answers_of(ht::cpu& device, const Model& model, const std::vector<question>& questions,
                            const ids& ends) {
    constexpr std::size_t at_once = 8;
    ht::inference eval{device};
    std::vector<ids> all;
    for (std::size_t first = 0; first < questions.size(); first += at_once) {
        std::vector<ids> prompts;
        std::size_t longest = 0;
        for (std::size_t i = first; i < std::min(first + at_once, questions.size()); ++i) {
            prompts.push_back(questions[i].prompt);
            longest = std::max(longest, questions[i].answer.size() + 8);
        }
        for (ids& said :
             ht::generate(eval, model, prompts, {.max_new_tokens = static_cast<ht::extent>(longest), .eos = ends}))
            all.push_back(std::move(said));
    }
    return all;
}

template <class Model, class Trainer>
held_out_result evaluated(ht::cpu& device, const Model& model, Trainer& trainer, tuning_data& held_out,
                          const std::vector<question>& questions, const ids& ends) {
    held_out_result r;
    r.loss = trainer.evaluate(held_out).loss;
    r.answers = answers_of(device, model, questions, ends);
    for (std::size_t i = 0; i < questions.size(); ++i)
        r.exact += is_exact(r.answers[i], questions[i].answer, ends) ? 1 : 0;
    return r;
}

/// The memory of training, and of the evaluations around it. Two steps have the peak of any number of them.
template <class Model, bool has_adapters>
memory_answer plan_model(ht::cpu& device, const task& t, tuning_data& data) {
    task unlimited = t;
    unlimited.budget = 0;
    memory_answer answer;
    answer.plan = ht::plan(device, [&](ht::cpu& twin) {
        const adapters_of<has_adapters> added(twin, t);
        Model model{twin, t.config};
        ht::trainer trainer{twin, model, arguments_of(unlimited)};
        step_watcher last;
        last.is_last = [](std::int64_t step) { return step == 2; };
        last.stop = [&] { trainer.stop(); };
        trainer.add_callback(last);
        static_cast<void>(trainer.evaluate(data));
        trainer.train(data);
        static_cast<void>(trainer.evaluate(data));
    });
    answer.peak_bytes = answer.plan.peak_bytes;
    if (t.budget == 0 || answer.peak_bytes <= t.budget) return answer;
    try {
        ht::plan(device, [&](ht::cpu& twin) {
            const adapters_of<has_adapters> added(twin, t);
            Model model{twin, t.config};
            ht::trainer trainer{twin, model, arguments_of(t)};
            const ht::memory_choice& way = trainer.fit_to_budget(data);
            answer.peak_bytes = way.peak_bytes, answer.way = way.text;
        });
    } catch (const ht::budget_error& e) {
        answer.fits = false, answer.peak_bytes = e.least_bytes;
    }
    return answer;
}

/// Reads the base, if there is one.
template <class Model, bool has_adapters>
std::unique_ptr<Model> load(ht::cpu& device, const task& t) {
    const adapters_of<has_adapters> added(device, t);
    if (t.folder.empty()) return std::make_unique<Model>(device, t.config, t.seed);
    const ht::defer_parameters until_loaded{device};
    auto model = std::make_unique<Model>(device, t.config);
    ht::load_pretrained(*model, t.folder);
    return model;
}

/// Writes a model without adapters: a folder for transformers, and a file for llama.cpp.
template <class Model>
void write_model(const Model& model, const task& t, const std::filesystem::path& folder,
                 const std::filesystem::path& gguf) {
    ht::save_pretrained(model, folder, {.type = ht::dtype::bf16, .like = t.folder});
    if (t.folder.empty()) return;
    copy_tokenizer(t.folder, folder);
    try_gguf(gguf, [&] { ht::save_gguf(model, gguf, {.like = t.folder, .type = ht::ggml_type::bf16}); });
}

template <class Model, bool has_adapters>
tuning_result tune_model(ht::cpu& device, const task& t, tuning_data& data, tuning_data& held_out,
                         const std::vector<question>& questions, const surroundings& around) {
    tuning_result r;
    const auto model = load<Model, has_adapters>(device, t);
    ht::trainer trainer{device, *model, arguments_of(t, around.out / "checkpoints", around.save_steps)};
    step_watcher signals;
    signals.is_last = [&](std::int64_t) { return around.is_interrupted != nullptr && around.is_interrupted(); };
    signals.stop = [&] { trainer.stop(); };
    trainer.add_callback(around.observer);
    trainer.add_callback(signals);
    if (t.budget != 0) r.choice = trainer.fit_to_budget(data, held_out);
    r.before = evaluated(device, *model, trainer, held_out, questions, t.ends);
    std::optional<decltype(ht::trainer_checkpoints{trainer, ht::trainer_checkpoint_options{}})> checkpoints;
    if (around.save_steps != 0)
        checkpoints.emplace(trainer, ht::trainer_checkpoint_options{.arguments = around.arguments, .on_note = told});
    r.training = trainer.train(data, held_out);
    r.peak_bytes = device.memory().usage().peak();
    r.parameters = model->parameters().size();
    r.policies = ht::policies_of<Model>();
    if (r.training.end == ht::training_end::stopped) {
        r.is_stopped = true;
        return r;
    }
    r.after = evaluated(device, *model, trainer, held_out, questions, t.ends);
    if constexpr (has_adapters) {
        ht::save_peft(*model, around.out / "adapter", {.base = std::filesystem::absolute(t.folder).string()});
    } else {
        write_model(*model, t, around.out / "merged", around.out / "model.gguf");
    }
    return r;
}

/// The method that a policy makes.
template <class P, bool has_adapters>
constexpr method method_of(const char* name, const char* what) {
    return {name, what,
            [](ht::cpu& device, const task& t, tuning_data& data) {
                if (t.has_head_norms) return plan_model<ht::nn::qwen3<P>, has_adapters>(device, t, data);
                return plan_model<ht::nn::llama<P>, has_adapters>(device, t, data);
            },
            [](ht::cpu& device, const task& t, tuning_data& data, tuning_data& held_out,
               const std::vector<question>& questions, const surroundings& around) {
                if (t.has_head_norms)
                    return tune_model<ht::nn::qwen3<P>, has_adapters>(device, t, data, held_out, questions, around);
                return tune_model<ht::nn::llama<P>, has_adapters>(device, t, data, held_out, questions, around);
            }};
}

}  // namespace
