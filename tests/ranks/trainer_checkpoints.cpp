// SPDX-License-Identifier: MIT
/// \file
/// Runs of trainers that train together are saved and resumed, with the same bits on as many ranks, and from any number of them;
/// what their arguments say about checkpoints is done, and a rank that cannot write does not end the training.
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/ranks/threads.hpp>
#include <halftone/train/checkpoints_of_ranks.hpp>
#include <halftone/train/early_stopping.hpp>
#include <halftone/train/ranks.hpp>
#include <halftone/train/sharded_ranks.hpp>

#include "support/temporary_folder.hpp"
#include "train/small_gpt.hpp"

namespace ranks_trainer_checkpoints_tests {

namespace ht = halftone;
namespace fs = std::filesystem;
using model_type = ht::nn::gpt<ht::amp_fp16>;
using trainer_type = ht::trainer<ht::cpu, model_type>;

const std::string corpus = small::text();

ht::training_arguments arguments_in(const fs::path& folder) {
    return {.per_device_train_batch_size = 2,
            .per_device_eval_batch_size = 64,
            .gradient_accumulation_steps = 2,
            .max_steps = 6,
            .learning_rate = 3e-3,
            .weight_decay = 0.1,
            .logging_steps = 4,
            .eval_steps = 3,
            .output_dir = folder.string(),
            .save_steps = 6,
            .scaler = {.init_scale = 0x1p23f, .growth_interval = 3, .outlier_factor = 20, .outlier_window = 4}};
}
ht::nn::gpt_config config_with_dropout() {
    ht::nn::gpt_config c = small::config;
    c.dropout = 0.1f;  // random numbers of each rank are resumed, too
    return c;
}

/// What rank 0 is told: "step 4 LOSS", "eval 3 LOSS", "save 3", "failed 3 WHY", in order.
struct teller : ht::trainer_callback {
    std::vector<std::string> lines;
    void add(const char* what, std::int64_t step, double loss) {
        char text[64];
        std::snprintf(text, sizeof text, "%s %lld %a", what, static_cast<long long>(step), loss);
        lines.push_back(text);
    }
    void on_step(const ht::trainer_state& s) override { add("step", s.step, s.step_loss); }
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& r) override { add("eval", s.step, r.loss); }
    void on_save(const ht::trainer_state& s) override { lines.push_back("save " + std::to_string(s.step)); }
    void on_save_failed(const ht::trainer_state& s, const std::string& why) override {
        lines.push_back("failed " + std::to_string(s.step) + ' ' + why);
    }
};
/// Those that begin with a word.
std::vector<std::string> lines_of(const std::vector<std::string>& lines, const std::string& word) {
    std::vector<std::string> some;
    for (const std::string& line : lines) {
        if (line.rfind(word + ' ', 0) == 0) some.push_back(line);
    }
    return some;
}

/// One of several ranks; stage -1: data parallel.
struct rank_of_run {
    ht::cpu device{{.threads = 1}};
    model_type model{device, config_with_dropout(), 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    std::optional<ht::shard<ht::cpu, model_type, ht::zero>> sharded;
    trainer_type trainer;
    teller told;

    rank_of_run(ht::communicator& comm, int stage, const ht::training_arguments& a)
        : sharded(), trainer((divide(comm, stage, a), device), model, a) {
        trainer.add_callback(told);
        if (sharded) {
            ht::join(trainer, *sharded);
        } else {
            ht::join(trainer, comm);
        }
    }

  private:
    void divide(ht::communicator& comm, int stage, const ht::training_arguments& a) {
        if (stage < 0) return;
        sharded.emplace(device, model, comm, ht::zero(stage, {"h.*"}),
                        ht::shard_options{.micro_batches = static_cast<int>(a.gradient_accumulation_steps)});
    }
};

/// Stops all ranks after a step, by a call on one of them.
struct stopper : ht::trainer_callback {
    trainer_type* trainer;
    std::int64_t step;
    int on_rank;
    stopper(trainer_type& t, std::int64_t s, int r) : trainer(&t), step(s), on_rank(r) { t.add_callback(*this); }
    bool is_of_all_ranks() const override { return true; }
    void on_step(const ht::trainer_state& s) override {
        if (s.step == step && trainer->rank() == on_rank) trainer->stop();
    }
};

/// Trains on some ranks, to a step or to the end; returns what rank 0 was told.
std::vector<std::string> train(int ranks, int stage, const ht::training_arguments& a, std::int64_t stop_after = -1) {
    std::vector<std::string> told;
    ht::run_ranks(ranks, [&](ht::communicator& comm) {
        rank_of_run r(comm, stage, a);
        ht::trainer_checkpoints checkpoints(r.trainer, comm);
        stopper stop(r.trainer, stop_after, ranks - 1);
        const ht::training_result result = r.trainer.train(r.data);
        CHECK(result.steps == (stop_after < 0 ? 6 : stop_after));
        if (comm.rank() == 0) told = r.told.lines;
        CHECK(r.told.lines.empty() == (comm.rank() != 0));
    });
    return told;
}

/// Parameters and moments of a checkpoint, whole, by name.
std::map<std::string, std::vector<std::byte>> contents_of(const fs::path& checkpoint) {
    std::map<std::string, std::vector<std::byte>> all;
    for (const char* const part : {"model", "optimizer"}) {
        const auto joined = ht::detail::join_shards(checkpoint, ht::detail::read_manifest(checkpoint), part);
        for (const ht::tensor_info& t : joined.header.tensors)
            all[std::string(part) + "/" + t.name] = {joined.at(t), joined.at(t) + t.bytes};
    }
    return all;
}
std::string steps_in(const fs::path& folder) {
    std::string text;
    for (const auto& c : ht::list_checkpoints(folder)) text += std::to_string(c.step) + ' ';
    return text;
}
template <class F>
std::string message_of(const F& f) {
    try {
        f();
    } catch (const ht::error& e) {
        return e.what();
    }
    return "";
}

TEST_CASE("checkpoints of joined trainers: a resumed run has the bits of one that was not interrupted, under each strategy") {
    const support::temporary_folder folder;
    std::vector<std::string> whole;
    for (const int stage : {-1, 0, 1, 2, 3}) {
        CAPTURE(stage);
        const fs::path straight = folder.path() / ("straight" + std::to_string(stage)), stopped = folder.path() / ("stopped" + std::to_string(stage));
        const std::vector<std::string> lines = train(2, stage, arguments_in(straight));
        if (whole.empty()) whole = lines;
        CHECK(lines == whole);
        CHECK(steps_in(straight) == "6 ");
        ht::training_arguments a = arguments_in(stopped);
        std::vector<std::string> joined = train(2, stage, a, 3 + stage % 3);
        CHECK(joined.back() == "save " + std::to_string(3 + stage % 3));
        joined.pop_back();
        a.resume_from_checkpoint = "newest";
        // From another stage, whose bits are the same.
        for (const std::string& line : train(2, stage == 1 ? 3 : stage, a)) joined.push_back(line);
        CHECK(joined == whole);
        CHECK(contents_of(stopped / "checkpoint-6") == contents_of(straight / "checkpoint-6"));
        CHECK(!ht::detail::read_manifest(stopped / "checkpoint-6").contains("of_ranks"));
    }
}

TEST_CASE("checkpoints of joined trainers: another number of ranks goes on, and a trainer alone") {
    const support::temporary_folder folder;
    ht::training_arguments a = arguments_in(folder.path());
    a.gradient_accumulation_steps = 1;
    train(4, 3, a, 3);
    const auto saved = contents_of(folder.path() / "checkpoint-3");
    a.resume_from_checkpoint = (folder.path() / "checkpoint-3").string();
    for (const int ranks : {3, 2, 1}) {
        CAPTURE(ranks);
        const fs::path again = folder.path() / std::to_string(ranks);
        a.output_dir = again.string();
        a.gradient_accumulation_steps = 4 / ranks;
        ht::run_ranks(ranks, [&](ht::communicator& comm) {
            rank_of_run r(comm, ranks - 2, a);
            ht::trainer_checkpoints checkpoints(r.trainer, comm);
            CHECK(checkpoints.resumed().value().step == 3);
            checkpoints.save_now();
            if (comm.rank() == 0) CHECK(contents_of(again / "checkpoint-3") == saved);
            comm.barrier("compared");
            CHECK(r.trainer.train(r.data).steps == 6);
        });
        CHECK(steps_in(again) == "6 3 ");
    }
    ht::cpu device{{.threads = 1}};
    model_type model{device, config_with_dropout(), 2};
    ht::language_data data{ht::token_view{corpus}, small::options};
    a.output_dir = (folder.path() / "alone").string();
    trainer_type trainer{device, model, a};
    ht::trainer_checkpoints checkpoints{trainer};
    checkpoints.save_now();
    CHECK(contents_of(folder.path() / "alone" / "checkpoint-3") == saved);
    CHECK(trainer.train(data).steps == 6);
    // And back.
    a.resume_from_checkpoint = (folder.path() / "alone" / "checkpoint-3").string();
    a.gradient_accumulation_steps = 2;
    a.output_dir = (folder.path() / "back").string();
    CHECK(lines_of(train(2, 2, a), "step").size() == 3);
}

/// A table of which each rank has a half, and one rank's disk is full in some steps.
struct full_disk {
    ht::communicator* comm;
    trainer_type* trainer;
    std::int64_t first, last;
    void visit_ranges(auto&& f) {
        const auto rank = static_cast<std::size_t>(comm->rank());
        const auto read = [this](std::byte* to, std::size_t, std::size_t bytes) {
            const std::int64_t step = trainer->state().step;
            if (comm->rank() == 1 && step >= first && step <= last) throw ht::io_error("no space left");
            std::fill(to, to + bytes, std::byte{0});
        };
        f("model", ht::shard_range{"table", ht::dtype::f32, {8}, 4 * rank, 4, read, [](const std::byte*) {}});
    }
};

TEST_CASE("checkpoints of joined trainers: a rank that cannot write is told once, and training goes on") {
    const support::temporary_folder folder;
    ht::training_arguments a = arguments_in(folder.path());
    a.save_steps = 1;
    for (const std::int64_t last : {4, 6}) {
        CAPTURE(last);
        a.output_dir = (folder.path() / std::to_string(last)).string();
        std::atomic<int> thrown = 0;
        std::vector<std::string> told;
        ht::run_ranks(2, [&](ht::communicator& comm) {
            rank_of_run r(comm, 2, a);
            full_disk disk{&comm, &r.trainer, 3, last};
            ht::trainer_checkpoints checkpoints(r.trainer, comm, disk);
            try {
                r.trainer.train(r.data);
            } catch (const ht::io_error&) {
                ++thrown;
            }
            CHECK(r.trainer.state().step == 6);
            if (comm.rank() == 0) told = r.told.lines;
        });
        CHECK(lines_of(told, "failed") == std::vector<std::string>{"failed 3 checkpoint: rank 1: no space left"});
        CHECK(steps_in(a.output_dir) == (last == 4 ? "6 5 2 1 " : "2 1 "));
        CHECK(thrown == (last == 4 ? 0 : 2));  // the last one is missing
        CHECK(!fs::exists(fs::path(a.output_dir) / "checkpoint-3.part"));
    }
}

TEST_CASE("checkpoints of joined trainers: the best model is rank 0's choice, and all ranks get it") {
    const support::temporary_folder folder;
    ht::training_arguments a = arguments_in(folder.path());
    a.save_steps = 2, a.eval_steps = 2;
    a.save_total_limit = 1;
    a.load_best_model_at_end = true;
    a.metric_for_best_model = "score";
    a.greater_is_better = true;
    for (const int stage : {-1, 3}) {
        CAPTURE(stage);
        a.output_dir = (folder.path() / std::to_string(stage)).string();
        ht::run_ranks(2, [&](ht::communicator& comm) {
            rank_of_run r(comm, stage, a);
            ht::trainer_checkpoints checkpoints(r.trainer, comm);
            struct : ht::trainer_callback {
                std::function<void(double)> report;
                std::map<std::int64_t, double> losses;
                void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& e) override {
                    report(s.step == 4 ? 0.9 : 0.1), losses[s.step] = e.loss;
                }
            } scorer;
            scorer.report = [&](double score) { checkpoints.report("score", score); };
            r.trainer.add_callback(scorer);
            r.trainer.train(r.data);
            CHECK(checkpoints.best().step == 4);
            const double loss = r.trainer.evaluate(r.data).loss;
            if (comm.rank() == 0) CHECK(loss == scorer.losses[4]);
            if (comm.rank() == 0) CHECK(loss != scorer.losses[6]);
        });
        CHECK(steps_in(a.output_dir) == "6 4 ");
    }
}

TEST_CASE("checkpoints of joined trainers: those of better evaluations alone, and early stopping") {
    const support::temporary_folder folder;
    ht::training_arguments a = arguments_in(folder.path());
    a.save_steps = 0, a.eval_steps = 1;
    a.save_strategy = ht::save_strategy::best;
    ht::run_ranks(2, [&](ht::communicator& comm) {
        rank_of_run r(comm, 1, a);
        ht::early_stopping stopping(r.trainer, {.early_stopping_patience = 2, .early_stopping_threshold = 1e3});
        ht::trainer_checkpoints checkpoints(r.trainer, comm, stopping);
        CHECK(r.trainer.train(r.data).end == ht::training_end::stopped);  // nothing is better by 1,000 nats
        CHECK(r.trainer.state().step == 3);
        CHECK(checkpoints.best().step >= 1);
    });
    CHECK(!ht::list_checkpoints(folder.path()).empty());
    for (const auto& c : ht::list_checkpoints(folder.path())) CHECK(ht::read_checkpoint_info(c.path).metrics.count("eval_loss") == 1);
    // Its count is rank 0's, on any number of ranks.
    a.resume_from_checkpoint = (folder.path() / "checkpoint-1").string();
    ht::run_ranks(3, [&](ht::communicator& comm) {
        rank_of_run r(comm, 2, a);
        ht::early_stopping stopping(r.trainer, {.early_stopping_patience = 2});
        ht::trainer_checkpoints checkpoints(r.trainer, comm, stopping);
        CHECK(stopping.state().evaluations == 1);
    });
}

TEST_CASE("checkpoints of joined trainers: what does not fit is refused on all ranks") {
    const support::temporary_folder folder;
    ht::training_arguments a = arguments_in(folder.path());
    std::atomic<int> refused = 0;
    ht::run_ranks(2, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model_type model{device, small::config, 1};
        ht::language_data data{ht::token_view{corpus}, small::options};
        trainer_type trainer{device, model, a};
        const std::string before = message_of([&] { ht::trainer_checkpoints checkpoints(trainer, comm); });
        CHECK(before == "trainer_checkpoints: this is rank " + std::to_string(comm.rank()) +
                            " of 2, and its trainer is rank 0 of 1; call ht::join before");
        ht::trainer_checkpoints alone(trainer);
        ht::join(trainer, comm);
        const std::string advice = "trainer_checkpoints: 2 ranks train together; include <halftone/train/checkpoints_of_ranks.hpp> and make "
                                   "ht::trainer_checkpoints checkpoints{trainer, comm} after ht::join";
        CHECK(message_of([&] { trainer.train(data); }) == advice);
        CHECK(message_of([&] { ht::trainer_checkpoints{trainer}; }) == advice);
        if (comm.rank() == 0) folder.write("checkpoint-7/checkpoint.json", "");
        comm.barrier("there is one");
        const std::string earlier = message_of([&] { ht::trainer_checkpoints checkpoints(trainer, comm); });
        if (earlier.find("has checkpoints of an earlier run, the newest of step 7") != std::string::npos) ++refused;
    });
    CHECK(refused == 2);
    // A damaged one is skipped, which rank 0 is told.
    a.resume_from_checkpoint = "newest";
    std::atomic<int> notes = 0;
    ht::run_ranks(2, [&](ht::communicator& comm) {
        rank_of_run r(comm, 0, a);
        ht::trainer_checkpoints checkpoints(r.trainer, comm, {.on_note = [&](const std::string&) { ++notes; }});
        CHECK(!checkpoints.resumed());
    });
    CHECK(notes == 1);
}

}  // namespace ranks_trainer_checkpoints_tests
