// SPDX-License-Identifier: MIT
/// \file
/// Each field of ht::training_arguments does something: a run with another value of it is another run, in its bits, its figures, its
/// memory, what it tells or what it saves. A field that is not in the table fails the count.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/train/checkpoints.hpp>

#include "support/temporary_folder.hpp"
#include "train/small_gpt.hpp"

namespace train_every_field_tests {

namespace ht = halftone;
namespace fs = std::filesystem;
using arguments = ht::training_arguments;
using model_type = ht::nn::gpt<ht::amp_fp16>;

const std::string corpus = small::text();

/// The number of fields of an aggregate.
struct anything {
    template <class T>
    operator T() const;
};
template <class T, class... Fields>
constexpr std::size_t fields_of() {
    if constexpr (requires { T{Fields{}..., anything{}}; }) {
        return fields_of<T, Fields..., anything>();
    } else {
        return sizeof...(Fields);
    }
}

inline ht::nn::gpt_config with_dropout() {
    ht::nn::gpt_config c = small::config;
    c.dropout = 0.1f;
    return c;
}

/// A GPT that notes the rows it is given.
struct noted_gpt : model_type {
    std::string* rows;
    template <class Device>
    noted_gpt(Device& device, std::string* notes) : model_type(device, with_dropout(), 1), rows(notes) {}
    template <class Context>
    auto loss(Context&& context, const ht::language_batch& batch) const {
        *rows += std::to_string(batch.rows()) + ' ';
        return model_type::loss(context, batch);
    }
};

/// Writes what a run tells.
struct teller : ht::trainer_callback {
    std::string told;
    template <class... Parts>
    void tell(const Parts&... parts) {
        told += ht::detail::sentence(parts...) + '\n';
    }
    void on_step(const ht::trainer_state& s) override {
        tell("step ", s.step, " of ", s.max_steps, ", ", s.epoch, " epochs: ", s.step_loss, ' ', s.grad_norm, ' ', s.learning_rate, ' ',
             s.loss_scale, ' ', s.skipped);
    }
    void on_log(const ht::trainer_state& s) override { tell("log ", s.step); }
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& r) override { tell("evaluation ", s.step, ' ', r.loss); }
    void on_overflow(const ht::trainer_state&, const ht::overflow&) override { tell("overflow"); }
    void on_numerics(const ht::trainer_state& s, const ht::numerics_view&) override { tell("numerics ", s.step); }
    void on_out_of_memory(const ht::trainer_state&, ht::extent rows, const char*) override { tell("out of memory: ", rows); }
};

/// Tells a metric that is best at the first evaluation.
template <class Checkpoints>
struct scorer : ht::trainer_callback {
    Checkpoints* to;
    explicit scorer(Checkpoints& checkpoints) : to(&checkpoints) {}
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result&) override { to->report("score", 10.0 - static_cast<double>(s.step)); }
};

/// All that can be seen of a run whose files are in a folder.
std::string seen(arguments a, const fs::path& folder) {
    if (!a.output_dir.empty()) a.output_dir = (folder / a.output_dir).string();
    if (!a.memory.history.empty()) a.memory.history = (folder / a.memory.history).string();
    ht::cpu device{{.threads = 1}};
    teller t;
    std::string rows;
    const std::string text = corpus.substr(0, 500);
    ht::language_data data{ht::token_view{text}, small::options};
    const auto run = [&](auto kind) {
        noted_gpt model{device, &rows};
        ht::trainer trainer{device, model, a, kind};
        ht::trainer_checkpoints checkpoints{trainer};
        scorer<decltype(checkpoints)> score{checkpoints};
        trainer.add_callback(t), trainer.add_callback(score);
        const ht::training_result result = trainer.train(data);
        t.tell("peak ", result.peak_bytes, ", scale ", result.loss_scale, ", optimizer ", trainer.optimizer().name(), ", best ",
               checkpoints.best().step, ", rows ", rows);
        for (const std::byte b : small::masters(model.parameters())) t.told += static_cast<char>(b);
    };
    if (a.diagnosis.find_overflow == ht::overflow_search::on || a.diagnosis.numerics_steps != 0) {
        run(ht::watched);
    } else {
        run(ht::plain_tape{});
    }
    std::vector<std::string> files;
    for (const auto& there : fs::recursive_directory_iterator(folder)) files.push_back(there.path().lexically_relative(folder).string());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) t.tell(file);
    return t.told;
}

struct field {
    const char* name;
    void (*change)(arguments&);                     ///< gives it another value
    void (*base)(arguments&) = [](arguments&) {};   ///< what must be so for the field to count
};
/// A field whose test needs more than a run: the file that has it.
struct elsewhere {
    const char* name;
    const char* file;
};

void saves(arguments& a) { a.output_dir = "run", a.save_steps = 2, a.eval_steps = 1; }

std::vector<field> own_fields() {
    return {
        {"per_device_train_batch_size", [](arguments& a) { a.per_device_train_batch_size = 2; }},
        {"per_device_eval_batch_size", [](arguments& a) { a.per_device_eval_batch_size = 2; }, [](arguments& a) { a.eval_steps = 2; }},
        {"gradient_accumulation_steps", [](arguments& a) { a.gradient_accumulation_steps = 1; }},
        {"gradient_checkpointing", [](arguments& a) { a.gradient_checkpointing = true; }},
        {"num_train_epochs", [](arguments& a) { a.num_train_epochs = 0.5; }, [](arguments& a) { a.max_steps = -1, a.num_train_epochs = 0.9; }},
        {"max_steps", [](arguments& a) { a.max_steps = 5; }},
        {"optim", [](arguments& a) { a.optim = "adamw_8bit"; }},
        {"learning_rate", [](arguments& a) { a.learning_rate = 2e-3; }},
        {"weight_decay", [](arguments& a) { a.weight_decay = 0.5; }},
        {"adam_beta1", [](arguments& a) { a.adam_beta1 = 0.5; }},
        {"adam_beta2", [](arguments& a) { a.adam_beta2 = 0.9; }},
        {"adam_epsilon", [](arguments& a) { a.adam_epsilon = 1e-2; }},
        {"max_grad_norm", [](arguments& a) { a.max_grad_norm = 0.1; }},
        {"lr_scheduler_type", [](arguments& a) { a.lr_scheduler_type = ht::cosine; }},
        {"warmup_ratio", [](arguments& a) { a.warmup_ratio = 0.5; }},
        {"warmup_steps", [](arguments& a) { a.warmup_steps = 3; }},
        {"final_lr_ratio", [](arguments& a) { a.final_lr_ratio = 0.5; }},
        {"logging_steps", [](arguments& a) { a.logging_steps = 2; }},
        {"eval_steps", [](arguments& a) { a.eval_steps = 3; }},
        {"output_dir", [](arguments& a) { a.output_dir = "another"; }, saves},
        {"save_steps", [](arguments& a) { a.save_steps = 3; }, saves},
        {"save_strategy", [](arguments& a) { a.save_strategy = ht::save_strategy::best; }, saves},
        {"save_total_limit", [](arguments& a) { a.save_total_limit = 1; }, saves},
        {"load_best_model_at_end", [](arguments& a) { a.load_best_model_at_end = true; },
         [](arguments& a) { saves(a), a.metric_for_best_model = "score", a.greater_is_better = true; }},
        {"metric_for_best_model", [](arguments& a) { a.metric_for_best_model = "score", a.greater_is_better = true; }, saves},
        {"greater_is_better", [](arguments& a) { a.greater_is_better = true; }, saves},
        {"seed", [](arguments& a) { a.seed = 7; }},
    };
}
const std::vector<elsewhere> own_elsewhere{{"auto_find_batch_size", "train/out_of_memory.cpp"},
                                           {"capture_steps", "emulator/models/captured_step.cpp"},
                                           {"resume_from_checkpoint", "io/trainer.cpp"}};

std::vector<field> memory_fields() {
    return {
        {"checkpoint_every", [](arguments& a) { a.memory.checkpoint_every = 2; }, [](arguments& a) { a.gradient_checkpointing = true; }},
        {"history", [](arguments& a) { a.memory.history = "history.json"; }},
    };
}
const std::vector<elsewhere> memory_elsewhere{{"budget", "train/memory_budget.cpp"}, {"measures", "train/memory_budget.cpp"}};
const std::vector<elsewhere> measures_elsewhere{{"micro_batches", "train/memory_budget.cpp"},
                                                {"recomputation", "train/memory_budget.cpp"},
                                                {"logits", "train/memory_budget.cpp"},
                                                {"eight_bit_moments", "train/memory_budget.cpp"}};

std::vector<field> diagnosis_fields() {
    return {
        {"find_overflow", [](arguments& a) { a.diagnosis.find_overflow = ht::overflow_search::on; },
         [](arguments& a) { a.diagnosis.numerics_steps = 2, a.scaler.init_scale = 1e30f; }},
        {"numerics_steps", [](arguments& a) { a.diagnosis.numerics_steps = 3; }, [](arguments& a) { a.diagnosis.numerics_steps = 2; }},
    };
}

std::vector<field> scaler_fields() {
    const auto overflows = [](arguments& a) { a.scaler.init_scale = 1e30f; };
    return {
        {"init_scale", [](arguments& a) { a.scaler.init_scale = 1024; }},
        {"growth_interval", [](arguments& a) { a.scaler.growth_interval = 2; }},
        {"min_scale", [](arguments& a) { a.scaler.min_scale = 5e29f; }, overflows},
        {"max_scale", [](arguments& a) { a.scaler.max_scale = 131072; }, [](arguments& a) { a.scaler.growth_interval = 1; }},
        {"hysteresis", [](arguments& a) { a.scaler.hysteresis = 3; }, overflows},
        {"outlier_factor", [](arguments& a) { a.scaler.outlier_factor = 1e-3; },
         [](arguments& a) { a.learning_rate = 0, a.scaler.outlier_window = 4; }},
        {"outlier_window", [](arguments& a) { a.scaler.outlier_window = 8; },
         [](arguments& a) { a.learning_rate = 0, a.scaler.outlier_window = 4, a.scaler.outlier_factor = 1e-3; }},
    };
}

std::vector<field> schedule_fields() {
    const auto by_polynomial = [](arguments& a) { a.lr_scheduler_type = ht::schedule::polynomial; };
    const auto stays = [](arguments& a) {
        a.lr_scheduler_type = ht::schedule::warmup_stable_decay;
        a.warmup_steps = 3, a.lr_scheduler_kwargs.num_decay_steps = 3;
    };
    return {
        {"lr_end", [](arguments& a) { a.lr_scheduler_kwargs.lr_end = 1e-4; }, by_polynomial},
        {"power", [](arguments& a) { a.lr_scheduler_kwargs.power = 2; }, by_polynomial},
        {"num_decay_steps", [](arguments& a) { a.lr_scheduler_kwargs.num_decay_steps = 2; }, stays},
        {"warmup_type", [](arguments& a) { a.lr_scheduler_kwargs.warmup_type = ht::rate_curve::cosine; }, stays},
        {"decay_type", [](arguments& a) { a.lr_scheduler_kwargs.decay_type = ht::rate_curve::linear; }, stays},
        {"min_lr_ratio", [](arguments& a) { a.lr_scheduler_kwargs.min_lr_ratio = 0.25; }, stays},
    };
}

void check(const std::vector<field>& fields, const std::vector<elsewhere>& others, std::size_t count) {
    CHECK_MESSAGE(fields.size() + others.size() == count, "a field without a row");
    for (const field& f : fields) {
        arguments a{.per_device_train_batch_size = 4, .gradient_accumulation_steps = 2, .max_steps = 6, .learning_rate = 1e-3};
        f.base(a);
        const support::temporary_folder as_it_is, changed;
        const std::string before = seen(a, as_it_is.path());
        f.change(a);
        const bool differs = seen(a, changed.path()) != before;
        CHECK_MESSAGE(differs, std::string(f.name) << " changes nothing");
    }
    for (const elsewhere& other : others) {
        std::ifstream file(std::string(HALFTONE_TEST_DATA "/../") + other.file);
        const std::string text(std::istreambuf_iterator<char>(file), {});
        CHECK_MESSAGE(text.find(other.name) != std::string::npos, std::string(other.file) << " says nothing of " << std::string(other.name));
    }
}

TEST_CASE("arguments: each field changes a run") {
    const support::temporary_folder one, other;
    const arguments equal{.max_steps = 3, .eval_steps = 2};
    const bool same = seen(equal, one.path()) == seen(equal, other.path());
    CHECK_MESSAGE(same, "two equal runs differ");
    check(own_fields(), own_elsewhere, fields_of<arguments>() - 4);  // without the four structs, whose fields follow
    check(memory_fields(), memory_elsewhere, fields_of<ht::memory_arguments>());
    check({}, measures_elsewhere, fields_of<ht::memory_measures>());
    check(diagnosis_fields(), {}, fields_of<ht::diagnosis_arguments>());
    check(scaler_fields(), {}, fields_of<ht::scaler_arguments>());
    check(schedule_fields(), {}, fields_of<ht::lr_scheduler_arguments>());
}

}  // namespace train_every_field_tests
