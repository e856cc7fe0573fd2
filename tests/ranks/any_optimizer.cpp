// SPDX-License-Identifier: MIT
/// \file
/// Trainers of any optimizer on several ranks: of a divided model they have the bits of data parallel ones.
#include <mutex>

#include <doctest/doctest.h>

#include <halftone/ranks/threads.hpp>
#include <halftone/train/sharded_ranks.hpp>

#include "train/any_optimizer.hpp"

namespace ranks_any_optimizer_tests {

namespace ht = halftone;

struct of_run {
    std::vector<float> up;
    double loss = 0;
};

/// Trains with two ranks; stage -1: data parallel.
template <class Options>
of_run trained(int stage) {
    of_run result;
    ht::run_ranks(2, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        any::net<any::policy> model{device};
        any::rows_data data;
        std::optional<ht::shard<ht::cpu, any::net<any::policy>, ht::zero>> sharded;
        if (stage >= 0) sharded.emplace(device, model, comm, ht::zero(stage, {}), ht::shard_options{.micro_batches = 2});
        ht::trainer trainer{device, model, any::arguments, any::options<Options>()};
        if (sharded) {
            ht::join(trainer, *sharded);
        } else {
            ht::join(trainer, comm);
        }
        const double loss = trainer.train(data).train_loss;
        const auto read = [&] {
            if (sharded) return sharded->read(model.up.weight);
            ht::check_equal(comm, model);
            const auto w = model.up.weight.master();
            return std::vector<float>(w.data(), w.data() + w.size());
        };
        const std::vector<float> up = read();
        if (comm.rank() == 0) result = {up, loss};
    });
    return result;
}

TEST_CASE_TEMPLATE("trainer of any optimizer: ZeRO 2 has the bits of data parallel ranks", Options, own::ademamix_options,
                   ht::lion_options, ht::sgd_options) {
    const of_run whole = trained<Options>(-1), divided = trained<Options>(2);
    CHECK(whole.loss == divided.loss);
    CHECK(whole.up.size() == 64 * 64);
    CHECK(whole.up == divided.up);
}

TEST_CASE("trainer of any optimizer: Muon on two ranks; of a divided model it is refused") {
    const of_run first = trained<ht::muon_options>(-1), second = trained<ht::muon_options>(-1);
    CHECK(first.up == second.up);
    CHECK_THROWS_WITH_AS(trained<ht::muon_options>(2),
                         doctest::Contains("muon: its steps need whole matrices, and this model is sharded"), ht::state_error);
}

}  // namespace ranks_any_optimizer_tests
