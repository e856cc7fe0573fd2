// SPDX-License-Identifier: MIT
/// \file
/// Losses that are means over labels that count, class weights, another ignore_index, or something of the user's own: on two ranks, with
/// each ZeRO stage, they are those of PyTorch's one batch.
#include <halftone/ranks/threads.hpp>
#include <halftone/train/ranks.hpp>
#include <halftone/train/sharded_ranks.hpp>

#include "train/divisors.hpp"

namespace ranks_divisors_tests {

using namespace divisors;

TEST_CASE(
    "divisors: trainers of 1 and 2 ranks give PyTorch's loss and gradient of one batch, and its loss in evaluation") {
    for_each_case([](const golden& want, const auto& how, const auto& rows) {
        for (const int ranks : {1, 2}) {
            for (const extent accumulation : {1, 2, 4}) {
                CAPTURE(ranks);
                CAPTURE(accumulation);
                ht::run_ranks(ranks, [&](ht::communicator& comm) {
                    ht::cpu device{{.threads = 1}};
                    scorer model{device, how};
                    const std::vector<float> before = model.values();
                    auto data = rows;
                    ht::trainer trainer{device, model, one_step(accumulation, ranks, 3), by_sgd};
                    ht::join(trainer, comm);
                    check_loss(want, trainer.evaluate(data).loss);
                    check_loss(want, trainer.train(data).train_loss);
                    check_gradients(want, before, model.values());
                });
            }
        }
    });
}

TEST_CASE(
    "divisors: trainers of 2 ranks with ZeRO 1, 2 and 3 have PyTorch's loss of one batch before and after a step") {
    for_each_case([](const golden& want, const auto& how, const auto& rows) {
        std::vector<double> after;  // the loss that the step leads to, without ranks and by stages
        {
            ht::cpu device{{.threads = 1}};
            scorer model{device, how};
            auto data = rows;
            ht::trainer trainer{device, model, one_step(1), by_sgd};
            trainer.train(data);
            after.push_back(trainer.evaluate(data).loss);
        }
        for (const int stage : {1, 2, 3}) {
            CAPTURE(stage);
            double of_stage = 0;
            ht::run_ranks(2, [&](ht::communicator& comm) {
                ht::cpu device{{.threads = 1}};
                scorer model{device, how};
                ht::shard sharded{device, model, comm, ht::zero(stage, {}), {.micro_batches = 2}};
                auto data = rows;
                ht::trainer trainer{device, model, one_step(2, 2, 3), by_sgd};
                ht::join(trainer, sharded);
                check_loss(want, trainer.evaluate(data).loss);
                check_loss(want, trainer.train(data).train_loss);
                const double loss = trainer.evaluate(data).loss;
                if (comm.rank() == 0) of_stage = loss;
            });
            CHECK(of_stage == doctest::Approx(after[0]).epsilon(1e-4));
        }
    });
}

/// A step of the user's own on two ranks of four rows each, in `parts` micro-batches; `ranks` says how shares are computed.
template <class Ranks, class Loss, class Data>
void own_step(const golden& want, ht::cpu& device, scorer<Loss>& model, auto& acc, const Ranks& ranks, int rank,
              extent parts, const Data& rows, ht::communicator& comm) {
    ht::tape tape{device};
    ht::loss_meter losses{device};
    const auto mine = rows.all().part(4 * rank, 4);
    for (const auto& micro : mine.split(parts)) {
        const auto loss =
            model.loss(tape, micro) * ranks.share_of(tape, ht::divisor_of(model, micro), ht::divisor_of(model, mine));
        losses.add(loss);
        tape.backward(loss, acc);
    }
    ht::add_up(comm, losses);
    losses.end_step();
    check_loss(want, losses.mean());
}

TEST_CASE("divisors: loops of the user's own on 2 ranks, with ht::data_parallel and with ht::shard") {
    for_each_case([](const golden& want, const auto& how, const auto& rows) {
        for (const int parts : {1, 2, 4}) {
            CAPTURE(parts);
            ht::run_ranks(2, [&](ht::communicator& comm) {
                ht::cpu device{{.threads = 1}};
                scorer model{device, how};
                const std::vector<float> before = model.values();
                ht::sgd optimizer{device, model, by_sgd};
                ht::accumulator acc{model, ht::unscaled};
                ht::data_parallel parallel{device, comm, acc, {.micro_batches = parts}};
                own_step(want, device, model, acc, parallel, comm.rank(), parts, rows, comm);
                optimizer.step(acc.take());
                check_gradients(want, before, model.values());
            });
            ht::run_ranks(2, [&](ht::communicator& comm) {
                ht::cpu device{{.threads = 1}};
                scorer model{device, how};
                const std::vector<float> before = model.values();
                ht::shard sharded{device, model, comm, ht::zero2{}, {.micro_batches = parts}};
                ht::sgd optimizer{device, sharded, by_sgd};
                ht::accumulator acc{sharded, ht::unscaled};
                own_step(want, device, model, acc, sharded, comm.rank(), parts, rows, comm);
                optimizer.step(acc.take());
                check_gradients(want, before, model.values());
            });
        }
    });
}

}  // namespace ranks_divisors_tests
