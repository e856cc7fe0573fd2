// SPDX-License-Identifier: MIT
/// \file
/// Who decides what when a run is resumed, the program or the checkpoint: each line of the table of docs/checkpoints.md.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>
#include <halftone/ranks/checkpoint.hpp>
#include <halftone/ranks/threads.hpp>
#include <halftone/train/checkpoints.hpp>
#include <halftone/train/trainer.hpp>

#include "io/run.hpp"
#include "support/temporary_folder.hpp"

namespace io_who_decides_tests {

namespace ht = halftone;
using net = keeping::net<ht::amp_bf16>;
using groups = std::vector<ht::parameter_group>;

/// Optimizers of this rate and decay.
struct adamw {
    static auto make(ht::cpu& device, net& model, double lr, double decay, const groups& g = {}) {
        return ht::adamw<ht::cpu, net>(device, model, {.lr = lr, .weight_decay = decay}, g);
    }
};
struct adamw_8bit {
    static auto make(ht::cpu& device, net& model, double lr, double decay, const groups& g = {}) {
        return ht::adamw_8bit<ht::cpu, net>(device, model, {.lr = lr, .weight_decay = decay, .min_8bit_size = 20}, g);
    }
};
struct sgd {
    static auto make(ht::cpu& device, net& model, double lr, double decay, const groups& g = {}) {
        return ht::sgd<ht::cpu, net>(device, model, {.lr = lr, .momentum = 0.9, .weight_decay = decay}, g);
    }
};
struct lion {
    static auto make(ht::cpu& device, net& model, double lr, double decay, const groups& g = {}) {
        return ht::lion<ht::cpu, net>(device, model, {.lr = lr, .weight_decay = decay}, g);
    }
};
struct adafactor {
    static auto make(ht::cpu& device, net& model, double lr, double decay, const groups& g = {}) {
        return ht::adafactor<ht::cpu, net>(device, model, {.lr = lr, .weight_decay = decay}, g);
    }
};
struct muon {
    static auto make(ht::cpu& device, net& model, double lr, double decay, const groups& g = {}) {
        return ht::muon<ht::cpu, net>(device, model, {.hidden = {"up", "down"}, .lr = lr, .weight_decay = decay, .adamw = {.lr = 1e-2}}, g);
    }
};

/// A model and its optimizer, which saves and loads.
template <class Kind>
struct run {
    ht::cpu device{{.threads = 1}};
    net model{device};
    decltype(Kind::make(device, model, 1, 0)) optimizer;

    explicit run(double lr = 1e-3, double decay = 0.1, const groups& g = {}) : optimizer(Kind::make(device, model, lr, decay, g)) {}
    void save(const support::temporary_folder& folder) { ht::save_checkpoint(folder.path(), {.step = 1}, model, optimizer); }
    ht::checkpoint_info load(const support::temporary_folder& folder, ht::resume_arguments who = ht::saved_arguments) {
        return ht::load_checkpoint(folder.path() / "checkpoint-1", {.resume_with = who}, model, optimizer);
    }
    /// The sentence with which a load is refused; empty: it is not.
    std::string refusal(const support::temporary_folder& folder) {
        try {
            load(folder);
        } catch (const ht::checkpoint_error& e) {
            return e.what();
        }
        return {};
    }
};
std::string sentence(const std::string& terms) {
    return "checkpoint: the optimizer was made with other arguments: " + terms +
           "; give the program the checkpoint's, or load it with .resume_with = ht::program_arguments";
}

TEST_CASE_TEMPLATE("resume: another rate or weight decay is refused, or the program's is taken", Kind, adamw, adamw_8bit, sgd, lion,
                   adafactor, muon) {
    const support::temporary_folder folder;
    run<Kind> before;
    before.save(folder);
    run<Kind> same;
    CHECK(same.load(folder).notes.empty());
    run<Kind> other(1e-4);
    const std::string why = other.refusal(folder);
    CHECK(why.find("lr was 0.001 there, and is 0.0001 here") != std::string::npos);
    CHECK(other.optimizer.lr() == 1e-4);
    const auto notes = other.load(folder, ht::program_arguments).notes;
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find("the program's arguments: ") == 0);
    CHECK(other.optimizer.lr() == 1e-4);
    run<Kind> decays(1e-3, 0.2);
    CHECK(decays.refusal(folder) == sentence("weight_decay was 0.1 there, and is 0.2 here"));
    CHECK(decays.load(folder, ht::program_arguments).notes.size() == 1);
    CHECK(decays.optimizer.lr() == 1e-3);
    // And of some parameters alone.
    run<Kind> grouped(1e-3, 0.1, {{"down.bias", {.weight_decay = 0}}});
    CHECK(grouped.refusal(folder).find("down.bias: weight_decay was ") != std::string::npos);
    run<Kind> scaled(1e-3, 0.1, {{"up.weight", {.lr_scale = 0.5}}});
    CHECK(scaled.refusal(folder).find("up.weight: lr_scale was the optimizer's there, and is 0.5 here") != std::string::npos);
    run<Kind> fixed(1e-3, 0.1, {{"up.weight", {.lr = 0.5}}});
    CHECK(fixed.refusal(folder).find("up.weight: lr was the optimizer's there, and is 0.5 here") != std::string::npos);
}

TEST_CASE_TEMPLATE("resume: a schedule of fewer steps than are done is refused, whoever decides", Kind, adamw, adamw_8bit, sgd, lion, adafactor,
                   muon) {
    const support::temporary_folder folder;
    run<Kind> before;
    auto done = before.optimizer.state();
    done.steps = 7;
    before.optimizer.load(done);
    before.optimizer.set_schedule({.shape = ht::cosine, .total_steps = 20, .warmup_steps = 2});
    before.save(folder);
    for (const std::int64_t total : {6, 7, 40}) {
        run<Kind> r;
        r.optimizer.set_schedule({.shape = ht::cosine, .total_steps = total, .warmup_steps = 2});
        for (const auto who : {ht::saved_arguments, ht::program_arguments}) {
            std::string why;
            try {
                r.load(folder, who);
            } catch (const ht::checkpoint_error& e) {
                why = e.what();
            }
            CHECK(why == std::string(total < 7 ? "checkpoint: 7 steps are done there, and the schedule here has total_steps of 6" : ""));
        }
        CHECK(r.optimizer.state().steps == (total < 7 ? 0 : 7));
    }
}

TEST_CASE("resume: another rate of Muon's AdamW is refused") {
    const support::temporary_folder folder;
    run<muon> before;
    before.save(folder);
    ht::cpu device{{.threads = 1}};
    net model{device};
    ht::muon<ht::cpu, net> other{device, model, {.hidden = {"up", "down"}, .lr = 1e-3, .weight_decay = 0.1, .adamw = {.lr = 2e-2}}};
    CHECK_THROWS_AS(ht::load_checkpoint(folder.path() / "checkpoint-1", {}, model, other), ht::checkpoint_error);
}

TEST_CASE("resume: a rate that the run has set is the checkpoint's; under program_arguments it is the program's") {
    const support::temporary_folder folder;
    run<adamw> before;
    before.optimizer.set_lr(5e-4);
    before.save(folder);
    run<adamw> after;
    CHECK(after.load(folder).notes.empty());
    CHECK(after.optimizer.lr() == 5e-4);
    CHECK(after.optimizer.made_with_lr() == 1e-3);
    after.save(folder);  // once more
    run<adamw> again;
    again.load(folder);
    CHECK(again.optimizer.lr() == 5e-4);
    run<adamw> own;
    own.load(folder, ht::program_arguments);
    CHECK(own.optimizer.lr() == 1e-3);
}

TEST_CASE("resume: another schedule is refused, or the program's is taken; its number of steps is the program's") {
    const support::temporary_folder folder;
    run<adamw> before;
    before.optimizer.set_schedule({.shape = ht::cosine, .total_steps = 20, .warmup_steps = 2});
    before.save(folder);
    const auto refusal = [&](const ht::schedule_options& s) {
        run<adamw> r;
        r.optimizer.set_schedule(s);
        const std::string why = r.refusal(folder);
        if (!why.empty()) CHECK(r.load(folder, ht::program_arguments).notes.size() == 1);
        CHECK(r.optimizer.schedule().shape == s.shape);
        CHECK(r.optimizer.schedule().total_steps == s.total_steps);
        return why;
    };
    CHECK(refusal({.shape = ht::cosine, .total_steps = 40, .warmup_steps = 2}).empty());
    CHECK(refusal({.shape = ht::cosine, .total_steps = 20, .warmup_steps = 3}) ==
          sentence("warmup_steps was 2 there, and is 3 here"));
    CHECK(refusal({.shape = ht::schedule::linear, .total_steps = 20, .warmup_steps = 2}) ==
          sentence("schedule was cosine there, and is linear here"));
    CHECK(refusal({.shape = ht::cosine, .total_steps = 20, .warmup_ratio = 0.1}) ==
          sentence("warmup_ratio was none there, and is 0.1 here, warmup_steps was 2 there, and is none here"));
    CHECK(refusal({.shape = ht::cosine, .total_steps = 20, .warmup_steps = 2, .final_ratio = 0.1}) ==
          sentence("final_ratio was 0.0 there, and is 0.1 here"));
    CHECK(refusal({.shape = ht::schedule::polynomial, .total_steps = 20, .warmup_steps = 2, .power = 2}).find("power") !=
          std::string::npos);
    CHECK(refusal({.shape = ht::schedule::warmup_stable_decay, .total_steps = 20, .warmup_steps = 2, .decay_steps = 3})
              .find("decay_steps was none there, and is 3 here") != std::string::npos);
    CHECK(refusal({}).find("schedule was cosine there, and is constant here") != std::string::npos);
}

TEST_CASE("resume: other betas are the program's") {
    const support::temporary_folder folder;
    run<adamw> before;
    before.save(folder);
    ht::cpu device{{.threads = 1}};
    net model{device};
    ht::adamw<ht::cpu, net> other{device, model, {.lr = 1e-3, .beta1 = 0.5, .weight_decay = 0.1}};
    ht::load_checkpoint(folder.path() / "checkpoint-1", {}, model, other);
    CHECK(other.options().beta1 == 0.5);
}

TEST_CASE("resume: scale, its rules, a guard's window and the seed of dropout are the checkpoint's; a guard's factor is the program's") {
    const support::temporary_folder folder;
    struct parts {
        ht::cpu device{{.threads = 1}};
        ht::grad_scaler<ht::cpu> scaler;
        ht::outlier_guard<ht::cpu> guard;
        ht::tape<ht::cpu> tape{device};
        parts(float scale, int interval, double factor, std::uint64_t seed)
            : scaler(device, {.init_scale = scale, .growth_interval = interval}), guard(device, {.factor = factor, .window = 4, .warm_up = 2}) {
            tape.seed(seed);
        }
    } before(1024, 3, 7, 5), after(2048, 9, 8, 6);
    before.guard.load({{1, 2}, {3, 4}, 0, 1});
    ht::save_checkpoint(folder.path(), {.step = 1}, before.scaler, before.guard, before.tape);
    ht::load_checkpoint(folder.path() / "checkpoint-1", {.resume_with = ht::program_arguments}, after.scaler, after.guard, after.tape);
    CHECK(after.scaler.get_scale() == 1024);
    CHECK(after.scaler.options().growth_interval == 3);
    CHECK(after.guard.state().norms == std::vector<float>{1, 2});
    CHECK(after.guard.options().factor == 8);
    CHECK(after.tape.random_state() == ht::random_state{5, 0});
}

TEST_CASE("resume: parameters, moments and step counts are the checkpoint's") {
    const support::temporary_folder folder;
    run<adamw> before, after;
    before.model.up.weight.assign(std::vector<float>(95, 2.0f));
    before.optimizer.load({.steps = 3, .skipped = 1, .lr = 1e-3});
    before.save(folder);
    after.load(folder, ht::program_arguments);
    CHECK(after.model.up.weight.master()(3, 2) == 2);
    CHECK(after.optimizer.steps() == 3);
    CHECK(after.optimizer.skipped_steps() == 1);
}

TEST_CASE("resume: a checkpoint that does not say what its optimizer was made with is refused") {
    run<adamw> r;
    const auto here = ht::detail::terms_of(r.optimizer);
    CHECK(ht::detail::differing_terms(here, here).count == 0);
    for (const char* text : {"[]", "3", R"({"lr": [1]})", R"({"lr": null})"})
        CHECK_THROWS_AS(ht::detail::differing_terms(nlohmann::json::parse(text), here), ht::checkpoint_error);
    auto parts = ht::detail::parts_of(r.optimizer);
    nlohmann::json saved = parts[0].state();
    saved.erase("made_with");
    ht::detail::load_request request;
    CHECK_THROWS_WITH_AS(static_cast<void>(parts[0].prepare(saved, request)), "checkpoint: the state of the optimizer has no made_with",
                         ht::checkpoint_error);
}

TEST_CASE("resume: of several ranks, one with another rate makes all refuse; program_arguments takes the ranks' own") {
    const support::temporary_folder folder;
    ht::run_ranks(2, [&](ht::communicator& comm) {
        run<adamw> before;
        ht::save_checkpoint(comm, folder.path(), {.step = 1}, before.model, before.optimizer);
        run<adamw> other(comm.rank() == 1 ? 1e-4 : 1e-3);
        const auto path = folder.path() / "checkpoint-1";
        CHECK_THROWS_AS(ht::load_checkpoint(comm, path, {}, other.model, other.optimizer), ht::checkpoint_error);
        run<adamw> all(1e-4);
        CHECK_THROWS_AS(ht::load_newest_checkpoint(comm, folder.path(), {}, all.model, all.optimizer), ht::checkpoint_error);
        ht::load_checkpoint(comm, path, {.resume_with = ht::program_arguments}, all.model, all.optimizer);
        CHECK(all.optimizer.lr() == 1e-4);
    });
}

using changes = std::function<void(ht::training_arguments&)>;

ht::training_arguments arguments_in(const support::temporary_folder& folder) {
    return {.per_device_train_batch_size = 3, .max_steps = 4, .learning_rate = 1e-2, .weight_decay = 0.1, .lr_scheduler_type = ht::cosine,
            .warmup_steps = 1, .output_dir = folder.path().string(), .save_steps = 2};
}
/// Trains; returns the rate at its end.
double train(ht::training_arguments a, const ht::trainer_checkpoint_options& o = {}) {
    ht::cpu device{{.threads = 1}};
    net model{device};
    struct {
        ht::batch_memory memory;
        keeping::row_batch sample(std::uint32_t step, ht::extent rows) {
            memory.reset();
            std::vector<keeping::row> all;
            for (ht::extent r = 0; r < rows; ++r) all.push_back(keeping::row_of(step + static_cast<std::uint64_t>(r) + 1));
            return keeping::collate(all, memory);
        }
    } data;
    ht::trainer trainer{device, model, a};
    ht::trainer_checkpoints checkpoints{trainer, o};
    trainer.train(data);
    return trainer.optimizer().last_lr();
}

TEST_CASE("resume: a trainer with another rate, schedule or decay is refused, or goes on with the program's") {
    const support::temporary_folder folder;
    train(arguments_in(folder));
    const auto resumed = [&](const changes& change, ht::resume_arguments who) {
        ht::training_arguments a = arguments_in(folder);
        a.resume_from_checkpoint = (folder.path() / "checkpoint-2").string();
        change(a);
        return train(a, {.resume_with = who});
    };
    const changes all[] = {[](auto& a) { a.learning_rate = 1e-3; }, [](auto& a) { a.weight_decay = 0; },
                           [](auto& a) { a.lr_scheduler_type = ht::schedule::linear; }, [](auto& a) { a.warmup_steps = 0; },
                           [](auto& a) { a.final_lr_ratio = 0.5; }};
    for (const changes& change : all) {
        CHECK_THROWS_AS(resumed(change, ht::saved_arguments), ht::checkpoint_error);
        CHECK_NOTHROW(resumed(change, ht::program_arguments));
    }
    const double rate = resumed([](auto&) {}, ht::saved_arguments);
    CHECK(resumed(all[0], ht::program_arguments) == doctest::Approx(rate / 10).epsilon(1e-12));
    // More steps are the program's to decide.
    CHECK(resumed([](auto& a) { a.max_steps = 8; }, ht::saved_arguments) < rate);
    CHECK_THROWS_AS(resumed([](auto& a) { a.max_steps = 1; }, ht::saved_arguments), ht::checkpoint_error);
}

/// A trainer of a loader, which is saved after step 2 and resumed with other options: the rows that its steps have had.
struct noted {
    std::vector<float> rows;  ///< the first number of each
    std::string error;
};
noted train_on_loader(const support::temporary_folder& folder, const ht::loader_options& o, double epochs, bool is_resumed,
                      ht::resume_arguments who = ht::saved_arguments) {
    ht::cpu device{{.threads = 1}};
    net model{device};
    const keeping::rows_source rows{12};
    noted n;
    const auto collate = [&](std::span<const keeping::row> given, ht::batch_memory& memory) {
        for (const keeping::row& r : given) n.rows.push_back(static_cast<float>(r[0]));
        return keeping::collate(given, memory);
    };
    ht::data_loader loader{device, rows, o, collate};
    ht::training_arguments a = arguments_in(folder);
    a.per_device_train_batch_size = o.batch_size;
    a.max_steps = epochs == 0 ? (is_resumed ? 24 / o.batch_size : 2) : -1;
    a.num_train_epochs = epochs == 0 ? 3 : epochs;
    if (is_resumed) a.resume_from_checkpoint = (folder.path() / "checkpoint-2").string();
    try {
        ht::trainer trainer{device, model, a};
        ht::trainer_checkpoints checkpoints{trainer, ht::trainer_checkpoint_options{.resume_with = who}};
        trainer.train(loader);
    } catch (const ht::error& e) {
        n.error = e.what();
    }
    return n;
}

TEST_CASE("resume: a trainer's steps of other sizes, or of a loader of another order, are refused") {
    const ht::loader_options begun{.batch_size = 4, .seed = 3};
    const support::temporary_folder folder;
    std::vector<float> all = train_on_loader(folder, begun, 0, false).rows;
    CHECK(all.size() == 8);
    const noted same = train_on_loader(folder, begun, 0, true);
    CHECK(same.error.empty());
    all.insert(all.end(), same.rows.begin(), same.rows.begin() + 4);
    std::sort(all.begin(), all.end());
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());  // 12 rows, each once
    for (const ht::loader_options& o : {ht::loader_options{.batch_size = 2, .seed = 3}, ht::loader_options{.batch_size = 4, .seed = 4},
                                        ht::loader_options{.batch_size = 4, .order = ht::row_order::in_order, .seed = 3}}) {
        const noted other = train_on_loader(folder, o, 0, true);
        CHECK(other.rows.empty());
        CHECK(other.error.find("trainer: the run that is resumed had 4 rows a step of 12 samples, shuffled, seed 3, and here are ") == 0);
        CHECK(train_on_loader(folder, o, 0, true, ht::program_arguments).error.empty());
    }
}

}  // namespace io_who_decides_tests
