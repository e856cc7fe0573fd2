// SPDX-License-Identifier: MIT
/// \file
/// A trainer that is saved and resumed reports and trains the same bits as one that was not; what its arguments say about
/// checkpoints is done.
#include <cmath>
#include <limits>
#include <map>

#include <doctest/doctest.h>

#include <halftone/train/checkpoints.hpp>
#include <halftone/train/early_stopping.hpp>

#include "support/temporary_folder.hpp"
#include "train/small_gpt.hpp"

namespace io_trainer_tests {

namespace ht = halftone;
namespace fs = std::filesystem;

const std::string corpus = small::text();

ht::training_arguments arguments_in(const fs::path& folder) {
    return {.per_device_train_batch_size = 4,
            .per_device_eval_batch_size = 64,
            .gradient_accumulation_steps = 2,
            .max_steps = 9,
            .learning_rate = 3e-3,
            .weight_decay = 0.1,
            .lr_scheduler_type = ht::cosine,
            .warmup_steps = 2,
            .logging_steps = 4,
            .eval_steps = 3,
            .output_dir = folder.string(),
            .save_steps = 3,
            .scaler = {.init_scale = 0x1p23f, .growth_interval = 3, .outlier_factor = 20, .outlier_window = 4}};
}

/// What a run tells: "log 4 LOSS", "eval 3 LOSS", "save 3", in order.
struct teller : ht::trainer_callback {
    std::vector<std::string> lines;
    void add(const char* what, std::int64_t step, double loss) {
        char text[64];
        std::snprintf(text, sizeof text, "%s %lld %a", what, static_cast<long long>(step), loss);
        lines.push_back(text);
    }
    void on_log(const ht::trainer_state& s) override { add("log", s.step, s.loss); }
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& r) override { add("eval", s.step, r.loss); }
    void on_save(const ht::trainer_state& s) override { add("save", s.step, 0); }
    void on_save_failed(const ht::trainer_state& s, const std::string&) override { add("failed", s.step, 0); }
};

using policy = ht::amp_fp16;
using gpt = ht::nn::gpt<policy>;

struct run {
    ht::cpu device{{.threads = 1}};
    gpt model{device, small::config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer<ht::cpu, gpt> trainer;
    teller told;

    explicit run(const ht::training_arguments& a) : trainer(device, model, a) { trainer.add_callback(told); }
};

/// Stops a trainer after a step.
template <class Trainer>
struct stopper : ht::trainer_callback {
    Trainer* trainer;
    std::int64_t step;
    stopper(Trainer& t, std::int64_t s) : trainer(&t), step(s) { t.add_callback(*this); }
    void on_step(const ht::trainer_state& s) override {
        if (s.step == step) trainer->stop();
    }
};

std::string steps_in(const fs::path& folder) {
    std::string text;
    for (const auto& c : ht::list_checkpoints(folder)) text += std::to_string(c.step) + ' ';
    return text;
}

TEST_CASE("trainer: a resumed run has the losses, the figures and the weights of one that was not interrupted") {
    const support::temporary_folder folder;
    const ht::training_arguments a = arguments_in(folder.path() / "straight");
    run straight(a);
    ht::trainer_checkpoints kept(straight.trainer);
    const auto whole = straight.trainer.train(straight.data);
    CHECK(steps_in(folder.path() / "straight") == "9 6 3 ");
    CHECK(whole.skipped_steps > 0);  // the scale is part of what is restored
    CHECK(whole.skipped_steps < 6);
    CHECK(!kept.resumed());

    for (const std::int64_t at : {1, 3, 4, 5, 6, 8}) {  // at the steps of saves and logs, and between them
        CAPTURE(at);
        ht::training_arguments b = arguments_in(folder.path() / std::to_string(at));
        run first(b);
        {
            ht::trainer_checkpoints saves(first.trainer);
            const stopper stop(first.trainer, at);
            CHECK(first.trainer.train(first.data).end == ht::training_end::stopped);
        }
        b.resume_from_checkpoint = "newest";
        run second(b);
        ht::trainer_checkpoints saves(second.trainer);
        REQUIRE(saves.resumed());
        CHECK(saves.resumed()->step == at);
        const auto rest = second.trainer.train(second.data);
        CHECK(small::masters(second.model.parameters()) == small::masters(straight.model.parameters()));
        CHECK(rest.train_loss == whole.train_loss);
        CHECK(rest.loss_scale == whole.loss_scale);
        CHECK(rest.skipped_steps == whole.skipped_steps);
        CHECK(rest.steps == whole.steps);
        CHECK(second.trainer.evaluate(second.data).loss == straight.trainer.evaluate(straight.data).loss);
        // The lines of both join: but for the extra log of a stop, and the save at it.
        std::vector<std::string> joined;
        for (const auto* lines : {&first.told.lines, &second.told.lines}) {
            for (const std::string& line : *lines) {
                const bool is_extra = lines == &first.told.lines && at % 4 != 0 && line.rfind("log " + std::to_string(at), 0) == 0;
                if (!is_extra && line.rfind("save", 0) != 0) joined.push_back(line);
            }
        }
        std::vector<std::string> expected;
        for (const std::string& line : straight.told.lines) {
            if (line.rfind("save", 0) != 0) expected.push_back(line);
        }
        CHECK(joined == expected);
    }
    // A run that has ended is resumed at its end.
    ht::training_arguments c = a;
    c.resume_from_checkpoint = (folder.path() / "straight" / "checkpoint-9").string();
    run ended(c);
    ht::trainer_checkpoints last(ended.trainer);
    const auto again = ended.trainer.train(ended.data);
    CHECK(again.steps == 9);
    CHECK(again.train_loss == whole.train_loss);
    CHECK(ended.told.lines.empty());
}

TEST_CASE("trainer: steps of another size go on with windows drawn at random, and are refused in an epoch") {
    const auto refusal = [](bool by_epochs, ht::extent accumulation, std::uint64_t seed) -> std::string {
        const support::temporary_folder folder;
        ht::training_arguments a = arguments_in(folder.path());
        a.eval_steps = 0;
        if (by_epochs) a.max_steps = -1, a.num_train_epochs = 0.2;
        {
            run first(a);
            ht::trainer_checkpoints saves(first.trainer);
            const stopper stop(first.trainer, 2);
            first.trainer.train(first.data);
        }
        a.resume_from_checkpoint = "newest";
        a.gradient_accumulation_steps = accumulation;
        run second(a);
        ht::trainer_checkpoints saves(second.trainer);
        REQUIRE(saves.resumed());
        ht::language_options o = small::options;
        o.seed = seed;
        ht::language_data data{ht::token_view{corpus}, o};
        try {
            second.trainer.train(data);
        } catch (const ht::argument_error& e) {
            CHECK_THROWS_AS(second.trainer.train(data), ht::argument_error);  // nor later
            return e.what();
        }
        return {};
    };
    CHECK(refusal(false, 1, 5).empty());
    CHECK(refusal(true, 2, 5).empty());
    const std::string end = ": some rows would come twice, and others not at all; expected the same, or .resume_with = "
                            "ht::program_arguments";
    const std::string begin = "trainer: the run that is resumed had 8 rows a step of 449 windows of 8 tokens, seed 5, and here are ";
    CHECK(refusal(true, 1, 5) == begin + "4 rows a step of 449 windows of 8 tokens, seed 5" + end);
    CHECK(refusal(true, 2, 6) == begin + "8 rows a step of 449 windows of 8 tokens, seed 6" + end);
}

/// Windows of some text, of which a trainer does not know in which order they come.
template <bool IsRandom>
struct own_windows {
    ht::language_data inner{ht::token_view{corpus}, small::options};
    ht::language_batch sample(std::uint32_t step, ht::extent rows) { return inner.sample(step, rows); }
};
template <>
struct own_windows<true> {
    static constexpr bool draws_at_random = true;
    ht::language_data inner{ht::token_view{corpus}, small::options};
    ht::language_batch sample(std::uint32_t step, ht::extent rows) { return inner.sample(step, rows); }
};

TEST_CASE("trainer: what it does not know of the program's own data it does not claim, when a run is resumed") {
    const support::temporary_folder folder;
    const auto resume = [&]<bool IsRandom>(std::bool_constant<IsRandom>) -> std::string {
        ht::training_arguments a = arguments_in(folder.path() / (IsRandom ? "random" : "unknown"));
        a.save_steps = 2;
        a.gradient_accumulation_steps = 2;
        a.eval_steps = 0;
        own_windows<IsRandom> data;
        {
            run first(a);
            ht::trainer_checkpoints saves(first.trainer);
            const stopper stop(first.trainer, 2);
            first.trainer.train(data);
        }
        a.resume_from_checkpoint = "newest";
        a.gradient_accumulation_steps = 1;
        run second(a);
        ht::trainer_checkpoints saves(second.trainer);
        REQUIRE(saves.resumed());
        try {
            second.trainer.train(data);
        } catch (const ht::argument_error& e) {
            return e.what();
        }
        return {};
    };
    CHECK(resume(std::true_type{}).empty());
    CHECK(resume(std::false_type{}) ==
          "trainer: the run that is resumed had 8 rows a step, and here are 4 rows a step: unless the data draws rows at random, some "
          "would come twice, and others not at all; expected the same, data with `static constexpr bool draws_at_random = true` "
          "(train/training_data.hpp), or .resume_with = ht::program_arguments");
}

TEST_CASE("trainer: limits, the best model, and other metrics") {
    const support::temporary_folder folder;
    ht::training_arguments a = arguments_in(folder.path());
    a.save_total_limit = 1;
    a.load_best_model_at_end = true;
    a.metric_for_best_model = "score";
    a.greater_is_better = true;
    run r(a);
    ht::trainer_checkpoints checkpoints(r.trainer);
    std::map<std::int64_t, std::vector<std::byte>> weights;
    struct : ht::trainer_callback {
        decltype(checkpoints)* to = nullptr;
        run* r = nullptr;
        std::map<std::int64_t, std::vector<std::byte>>* weights = nullptr;
        void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result&) override {
            to->report("score", s.step == 3 ? 0.9 : 0.1);
            (*weights)[s.step] = small::masters(r->model.parameters());
        }
    } scorer;
    scorer.to = &checkpoints, scorer.r = &r, scorer.weights = &weights;
    r.trainer.add_callback(scorer);
    r.trainer.train(r.data);
    CHECK(steps_in(folder.path()) == "9 3 ");
    CHECK(checkpoints.best().step == 3);
    CHECK(checkpoints.best().value == 0.9);
    CHECK(small::masters(r.model.parameters()) == weights[3]);
    CHECK(small::masters(r.model.parameters()) != weights[9]);
    CHECK(ht::read_checkpoint_info(folder.path() / "checkpoint-3").metrics.at("score") == 0.9);
    CHECK(ht::read_checkpoint_info(folder.path() / "checkpoint-3").metrics.count("eval_loss") == 1);
}

TEST_CASE("trainer: saves after better evaluations alone, and stops when they no longer come") {
    const support::temporary_folder folder;
    ht::training_arguments a = arguments_in(folder.path());
    a.save_steps = 0;
    a.save_strategy = ht::save_strategy::best;
    a.eval_steps = 1;
    a.learning_rate = 1e-3;
    run r(a);
    ht::early_stopping stopping(r.trainer, {.early_stopping_patience = 2, .early_stopping_threshold = 1e3});
    ht::trainer_checkpoints checkpoints(r.trainer, stopping);
    CHECK(r.trainer.train(r.data).end == ht::training_end::stopped);  // nothing is better by 1,000 nats
    CHECK(r.trainer.state().step == 3);
    CHECK(stopping.state().evaluations == 3);
    CHECK(stopping.state().not_better == 2);
    for (const auto& c : ht::list_checkpoints(folder.path())) CHECK(ht::read_checkpoint_info(c.path).metrics.count("eval_loss") == 1);
    ht::early_stopping_state first{};
    // Its count is part of the checkpoint.
    a.resume_from_checkpoint = (folder.path() / "checkpoint-1").string();
    run again(a);
    ht::early_stopping more(again.trainer, {.early_stopping_patience = 2, .early_stopping_threshold = 1e3});
    ht::trainer_checkpoints resumed(again.trainer, more);
    CHECK(more.state().evaluations == 1);
    CHECK(more.state().best != first.best);
    CHECK_THROWS_WITH_AS(ht::early_stopping(again.trainer, {.early_stopping_patience = 0}),
                         "early_stopping: early_stopping_patience is 0; expected 1 or more", ht::argument_error);
}

TEST_CASE("early stopping: a loss that is not a number is never the best one") {
    const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
    const support::temporary_folder folder;
    run r(arguments_in(folder.path()));
    const auto after = [&](const std::vector<double>& losses) {
        ht::early_stopping stopping(r.trainer, {.early_stopping_patience = 100});
        for (const double loss : losses) stopping.on_evaluate({}, {.loss = loss});
        return std::pair{stopping.state().best, stopping.state().not_better};
    };
    CHECK(after({nan, 4, 3, 2, 1}) == std::pair{1.0, std::int64_t{0}});
    CHECK(after({4, nan, nan, 3, nan}) == std::pair{3.0, std::int64_t{1}});
    CHECK(after({inf, 4, 5}) == std::pair{4.0, std::int64_t{1}});
    CHECK(after({nan, nan}).second == 2);
    CHECK(after({nan, inf}) == std::pair{inf, std::int64_t{0}});
    CHECK(after({2, 2, -inf, -inf}) == std::pair{-inf, std::int64_t{1}});
}

TEST_CASE("trainer: a metric that is never a number loses neither the run's result nor the sentence") {
    const support::temporary_folder folder;
    ht::training_arguments a = arguments_in(folder.path());
    a.load_best_model_at_end = true;
    a.metric_for_best_model = "score";
    run r(a);
    std::vector<std::string> notes;
    ht::trainer_checkpoints checkpoints(r.trainer, {.on_note = [&](const std::string& line) { notes.push_back(line); }});
    struct : ht::trainer_callback {
        decltype(checkpoints)* to = nullptr;
        void on_evaluate(const ht::trainer_state&, const ht::evaluation_result&) override { to->report("score", std::nan("")); }
    } score;
    score.to = &checkpoints;
    r.trainer.add_callback(score);
    const ht::training_result result = r.trainer.train(r.data);
    CHECK(result.steps == 9);
    CHECK(result.notes == "trainer_checkpoints: load_best_model_at_end, but no evaluation has told a number as score; the model has the "
                          "weights of the last step");
    CHECK(notes == std::vector{result.notes});
    CHECK(r.trainer.train(r.data).notes == result.notes);  // told again, not twice
}

TEST_CASE("trainer: a disk that fails does not end the training, and is told once") {
    const support::temporary_folder folder;
    folder.write("run", "no folder");
    ht::training_arguments a = arguments_in(folder.path() / "run");
    a.save_steps = 1;
    run r(a);
    ht::trainer_checkpoints checkpoints(r.trainer);
    CHECK_THROWS_AS(r.trainer.train(r.data), ht::io_error);  // at its end, since nothing was saved
    CHECK(r.trainer.state().step == 9);
    CHECK(std::count_if(r.told.lines.begin(), r.told.lines.end(), [](const std::string& l) { return l.rfind("failed", 0) == 0; }) == 1);
    fs::remove(folder.path() / "run");
    checkpoints.save_now();
    CHECK(steps_in(folder.path() / "run") == "9 ");

    // One that works again after a while.
    ht::training_arguments b = arguments_in(folder.path() / "other");
    b.save_steps = 1;
    folder.write("other", "no folder");
    run s(b);
    ht::trainer_checkpoints others(s.trainer, {.saving = ht::saving::before_next_step});
    struct : ht::trainer_callback {
        fs::path path;
        void on_step(const ht::trainer_state& state) override {
            if (state.step == 5) fs::remove(path);
        }
    } repair;
    repair.path = folder.path() / "other";
    s.trainer.add_callback(repair);
    s.trainer.train(s.data);
    CHECK(steps_in(folder.path() / "other") == "9 8 7 6 5 ");
}

TEST_CASE("trainer: arguments of checkpoints are checked") {
    const support::temporary_folder folder;
    const auto refused = [&](const char* sentence, auto&& change) {
        ht::training_arguments a = arguments_in(folder.path());
        change(a);
        CHECK_THROWS_WITH_AS(ht::check_arguments(a), sentence, ht::argument_error);
    };
    using args = ht::training_arguments;
    refused("training_arguments: save_steps is -1; expected 0 or more", [](args& a) { a.save_steps = -1; });
    refused("training_arguments: save_total_limit is -1; expected 0 or more", [](args& a) { a.save_total_limit = -1; });
    refused("training_arguments: checkpoints need an output_dir", [](args& a) { a.output_dir.clear(); });
    refused("training_arguments: metric_for_best_model is empty", [](args& a) { a.metric_for_best_model.clear(); });
    refused("training_arguments: load_best_model_at_end needs save_steps", [](args& a) { a.load_best_model_at_end = true, a.save_steps = 0; });
    refused("training_arguments: load_best_model_at_end: save_steps is 4; expected a multiple of eval_steps, 3",
            [](args& a) { a.load_best_model_at_end = true, a.save_steps = 4; });
    run r(arguments_in(folder.path()));
    CHECK_THROWS_WITH_AS(r.trainer.train(r.data),
                         "trainer: its arguments ask for checkpoints; include <halftone/train/checkpoints.hpp> and make "
                         "ht::trainer_checkpoints checkpoints{trainer} before train()", ht::state_error);
    ht::training_arguments a = arguments_in(folder.path());
    a.resume_from_checkpoint = (folder.path() / "none").string();
    run s(a);
    CHECK_THROWS_AS(ht::trainer_checkpoints{s.trainer}, ht::io_error);
    folder.write("checkpoint-7/checkpoint.json", "");
    run u(arguments_in(folder.path()));
    CHECK_THROWS_WITH_AS(ht::trainer_checkpoints{u.trainer},
                         ("training_arguments: output_dir " + folder.path().string() + " has checkpoints of an earlier run, the newest "
                          "of step 7; set resume_from_checkpoint, or name another folder").c_str(), ht::argument_error);
    a.resume_from_checkpoint = "newest";
    run t(a);
    CHECK(!ht::trainer_checkpoints(t.trainer).resumed());
}

TEST_CASE("trainer: a budget that would replace the optimizer whose moments a checkpoint gave is refused") {
    const support::temporary_folder folder;
    const auto arguments = [&](std::size_t budget) {
        return ht::training_arguments{
            .max_steps = 2,
            .output_dir = folder.path().string(),
            .save_steps = 1,
            .resume_from_checkpoint = "newest",
            .memory = {
                .budget = budget,
                .measures = {
                    .micro_batches = false, .recomputation = false, .logits = false, .eight_bit_moments = true}}};
    };
    std::size_t scarce = 1, roomy = std::size_t{1} << 30;
    try {
        run least(arguments(scarce));
        least.trainer.fit_to_budget(least.data);
    } catch (const ht::budget_error& e) {
        scarce = e.least_bytes;
    }
    {
        run first(arguments(scarce));
        ht::trainer_checkpoints saves(first.trainer);
        const stopper stop(first.trainer, 1);
        first.trainer.train(first.data);
        CHECK(first.trainer.arguments().optim == "adamw_8bit");
    }
    {
        run second(arguments(roomy));
        const ht::trainer_checkpoints saves(second.trainer);
        const auto masters = small::masters(second.model.parameters());
        CHECK_THROWS_WITH_AS(
            second.trainer.train(second.data),
            "trainer: the memory.budget takes adamw in place of adamw_8bit, which has taken 1 steps, and whose moments "
            "would be lost; call fit_to_budget(data) before a checkpoint is loaded, or give the budget of before",
            ht::state_error);
        CHECK((second.trainer.arguments().optim == "adamw_8bit" && second.trainer.optimizer().steps() == 1));
        CHECK(!second.trainer.budget());
    }
    run third(arguments(scarce));
    ht::trainer_checkpoints saves(third.trainer);
    third.trainer.train(third.data);
    CHECK(third.trainer.optimizer().steps() == 2);
}

TEST_CASE("trainer: the best checkpoint of a run that goes on in another folder is where it was saved") {
    const support::temporary_folder folder;
    struct told_steps : ht::trainer_callback {
        std::function<void(std::int64_t)> tell;
        void on_step(const ht::trainer_state& s) override { tell(s.step); }
    };
    std::vector<std::byte> best;
    // The metric is the step's number, so that the first checkpoint is the best one.
    const auto train = [&](const char* where, const fs::path& from, std::int64_t steps,
                           std::vector<std::string>& notes) {
        ht::training_arguments a = arguments_in(folder.path() / where);
        a.max_steps = steps, a.eval_steps = 0, a.save_steps = 1, a.lr_scheduler_type = ht::schedule::constant;
        a.load_best_model_at_end = true, a.metric_for_best_model = "number", a.resume_from_checkpoint = from.string();
        run r(a);
        told_steps told;
        r.trainer.add_callback(told);
        ht::trainer_checkpoints saves(r.trainer, {.on_note = [&](const std::string& line) { notes.push_back(line); }});
        told.tell = [&](std::int64_t step) {
            saves.report("number", static_cast<double>(step));
            if (steps == 2 && step == 1) best = small::masters(r.model.parameters());
        };
        r.trainer.train(r.data);
        return std::pair{saves.best().step, small::masters(r.model.parameters())};
    };
    std::vector<std::string> notes;
    const auto first = train("one", "", 2, notes),
               second = train("two", folder.path() / "one" / "checkpoint-2/", 3, notes);
    CHECK((first.first == 1 && first.second == best));
    CHECK((second.first == 1 && second.second == best));
    CHECK(notes.empty());
    // From there on in that folder, which does not have it: the best one since then.
    CHECK(train("two", "newest", 5, notes).first == 4);
    CHECK(notes ==
          std::vector<std::string>{"trainer_checkpoints: the best checkpoint so far, of step 1, is not in " +
                                   fs::canonical(folder.path() / "two").string() + "; only those from now on count"});
}

}  // namespace io_trainer_tests
