// SPDX-License-Identifier: MIT
/// \file
/// Trainers that join the ranks of a run: the same bits on all of them, figures of all ranks, callbacks on the first.
#include <atomic>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/ranks/threads.hpp>
#include <halftone/train/ranks.hpp>
#include <halftone/train/sharded_ranks.hpp>

#include "train/small_gpt.hpp"

namespace ranks_parallel_trainer_tests {

namespace ht = halftone;
using model_type = ht::nn::gpt<ht::amp_fp16>;

const std::string corpus = small::text();

const ht::training_arguments arguments{.per_device_train_batch_size = 2,
                                       .per_device_eval_batch_size = 16,
                                       .gradient_accumulation_steps = 2,
                                       .max_steps = 8,
                                       .learning_rate = 3e-3,
                                       .weight_decay = 0.1,
                                       .logging_steps = 5,
                                       .eval_steps = 4,
                                       .scaler = {.init_scale = 0x1p22f, .outlier_factor = 6}};

struct one {
    ht::cpu device{{.threads = 1}};
    model_type model{device, small::config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer<ht::cpu, model_type> trainer;

    explicit one(const ht::training_arguments& a = arguments) : trainer(device, model, a) {}
};

struct keeper : ht::trainer_callback {
    std::vector<double> losses, evaluations;
    int logs = 0;
    std::int64_t stops_at = -1;
    ht::trainer<ht::cpu, model_type>* trainer = nullptr;
    void on_step(const ht::trainer_state& s) override {
        losses.push_back(s.step_loss);
        if (s.step == stops_at) trainer->stop();
    }
    void on_log(const ht::trainer_state&) override { ++logs; }
    void on_evaluate(const ht::trainer_state&, const ht::evaluation_result& r) override { evaluations.push_back(r.loss); }
};

struct run {
    std::vector<double> losses, evaluations;
    ht::training_result result;
    std::vector<std::byte> masters;
};

/// Trains with n ranks, each of which has `accumulation` micro-batches in a step.
run train(int n, ht::extent accumulation, const ht::thread_options& how = {}) {
    run of_first;
    ht::run_ranks(
        n,
        [&](ht::communicator& comm) {
            ht::training_arguments a = arguments;
            a.gradient_accumulation_steps = accumulation;
            one r{a};
            keeper kept;
            r.trainer.add_callback(kept);
            ht::join(r.trainer, comm);
            const ht::training_result result = r.trainer.train(r.data);
            ht::check_equal(comm, r.model);
            CHECK(result.steps == 8);
            CHECK(kept.losses.size() == (comm.rank() == 0 ? 8 : 0));
            CHECK(kept.logs == (comm.rank() == 0 ? 2 : 0));
            const auto is_same = [&](const auto& value) {
                const auto all = ht::gather_values(comm, "a figure", value);
                for (const auto& other : all) CHECK(other == all[0]);
            };
            is_same(r.trainer.state().loss), is_same(r.trainer.state().grad_norm), is_same(result.loss_scale);
            is_same(result.skipped_steps), is_same(result.train_loss), is_same(r.trainer.evaluate(r.data).loss);
            if (comm.rank() == 0) of_first = {kept.losses, kept.evaluations, result, small::masters(r.model.parameters())};
        },
        how);
    return of_first;
}

TEST_CASE("trainer: one rank trains as without ranks") {
    one alone;
    keeper kept;
    alone.trainer.add_callback(kept);
    alone.trainer.train(alone.data);
    const run joined = train(1, 2);
    CHECK(joined.losses == kept.losses);
    CHECK(joined.evaluations == kept.evaluations);
    CHECK(joined.masters == small::masters(alone.model.parameters()));
}

TEST_CASE("trainer: the batch of a step is the same whatever the number of ranks; figures are of all ranks") {
    const run alone = train(1, 6), two = train(2, 3), three = train(3, 2);
    for (const run* r : {&two, &three}) {
        // The first step's six micro-batches have the same losses: these are added in doubles, in another order.
        CHECK(std::fabs(r->losses[0] - alone.losses[0]) <= 8 * 0x1p-53 * alone.losses[0]);
        CHECK(r->result.skipped_steps == alone.result.skipped_steps);
        CHECK(r->result.skipped_steps > 0);
        CHECK(r->result.loss_scale == alone.result.loss_scale);
        CHECK(r->evaluations.size() == 2);
    }
    CHECK(train(3, 2, {.delivery = ht::delivery::late}).masters == three.masters);
}

TEST_CASE("trainer: stop() on the first rank stops all, and training goes on") {
    std::atomic<int> stopped{0};
    ht::run_ranks(2, [&](ht::communicator& comm) {
        one r;
        keeper kept;
        kept.stops_at = 3;
        kept.trainer = &r.trainer;
        r.trainer.add_callback(kept);
        ht::join(r.trainer, comm);
        const auto first = r.trainer.train(r.data);
        CHECK(first.steps == 3);
        if (first.end == ht::training_end::stopped) ++stopped;
        CHECK(r.trainer.train(r.data).steps == 8);
        ht::check_equal(comm, r.model);
        CHECK_THROWS_AS(ht::join(r.trainer, comm), ht::state_error);
        ht::training_arguments a = arguments;
        a.auto_find_batch_size = true;
        one adapting{a};
        CHECK_THROWS_AS(ht::join(adapting.trainer, comm), ht::argument_error);
    });
    CHECK(stopped == 2);
}

TEST_CASE("trainer: a divided model trains as whole ones, and ranks evaluate together") {
    const run whole = train(3, 2);
    for (const int stage : {1, 3}) {
        CAPTURE(stage);
        run of_first;
        ht::run_ranks(3, [&](ht::communicator& comm) {
            ht::cpu device{{.threads = 1}};
            model_type model{device, small::config, 1};
            ht::shard sharded{device, model, comm, ht::zero(stage, {"h.*"}), {.micro_batches = 2}};
            ht::language_data data{ht::token_view{corpus}, small::options};
            ht::trainer<ht::cpu, model_type> trainer{device, model, arguments};
            keeper kept;
            trainer.add_callback(kept);
            ht::join(trainer, sharded);
            const ht::training_result result = trainer.train(data);
            if (comm.rank() == 0) of_first = {kept.losses, kept.evaluations, result, {}};
        });
        CHECK(of_first.losses == whole.losses);
        CHECK(of_first.evaluations == whole.evaluations);
        CHECK(of_first.result.skipped_steps == whole.result.skipped_steps);
    }
}

}  // namespace ranks_parallel_trainer_tests
