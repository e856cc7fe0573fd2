// SPDX-License-Identifier: MIT
/// \file
/// A small GPT that ranks train together, its parameters divided by any strategy, and what each rank saw.
///
///     const auto got = shard_gpt::train<ht::amp_bf16>(4, {.stage = 3, .units = {"h.*"}});
///     got[1].losses, got[1].logits                            // of rank 1
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <halftone/data/batches.hpp>
#include <halftone/kernel.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/optim/adamw_8bit.hpp>

#include "ranks/rank_loop.hpp"

namespace shard_gpt {

namespace ht = halftone;
using rank_loop::options, rank_loop::seen, rank_loop::same_bits, rank_loop::on_cpu;

/// Rows of 16 tokens and the tokens that follow, different ones on each rank.
struct rows {
    std::vector<std::int32_t> tokens, targets;
    rows(int rank, int step, int micro) {
        unsigned state = 977u * static_cast<unsigned>(rank) + 131u * static_cast<unsigned>(step) +
                         17u * static_cast<unsigned>(micro) + 5u;
        for (int i = 0; i < 2 * 16; ++i) {
            state = state * 1664525u + 1013904223u;
            tokens.push_back(static_cast<std::int32_t>(state >> 26));
            targets.push_back(static_cast<std::int32_t>((state >> 20) & 63u));
        }
    }
    ht::language_batch batch() const {
        const ht::shape<2> shape{2, 16};
        return {{tokens.data(), shape}, {targets.data(), shape}};
    }
};

template <class P>
using model = ht::nn::gpt<P>;

inline ht::nn::gpt_config config_of(const options& o) {
    return {.vocabulary = 64, .context = 16, .layers = o.layers, .heads = 2, .width = 32, .checkpointing = o.checkpointing};
}

/// `look(rank, device, model)`: called in each rank after training.
template <class P, class Machine, class Optimizer, class Look>
void train_rank(Machine& machine, const options& o, model<P>& m, Optimizer& optimizer, seen& all, const Look& look) {
    rank_loop::train(
        machine, o, m, optimizer, all, [&](int step, int micro) { return rows(machine.comm.rank(), step, micro); },
        [&](auto& tape, const rows& r) { return m.loss(tape, r.batch()); }, [](int) {});
    ht::inference eval{machine.device};
    const rows r(0, 100, 0);
    const auto logits = m.logits(eval, r.batch().tokens);
    const auto host = ht::to_host(machine.device, logits.view());
    for (ht::extent i = 0; i < logits.size(); ++i) all.logits.push_back(static_cast<float>(host.data()[i]));
    look(machine.comm, machine.device, m);
}

template <class P, class Machine = on_cpu, class Look>
std::vector<seen> train(int ranks, const options& o, const Look& look, const typename Machine::options& how = {}) {
    return rank_loop::run(ranks, {.delivery = o.delivery}, [&](ht::communicator& host, seen& mine) {
        using device_type = typename Machine::device_type;
        Machine machine(host, how);
        device_type& device = machine.device;
        model<P> m{device, config_of(o), 7};
        if (o.frozen != nullptr) m.parameters().freeze(o.frozen);
        std::optional<ht::shard<device_type, model<P>, ht::zero>> sharded;
        rank_loop::divide(sharded, o, device, m, machine.comm);
        if (o.eight_bit) {
            ht::adamw_8bit optimizer{device, m, {.lr = 0.01, .min_8bit_size = 256}};
            train_rank<P>(machine, o, m, optimizer, mine, look);
        } else {
            ht::adamw optimizer{device, m, {.lr = 0.01}};
            train_rank<P>(machine, o, m, optimizer, mine, look);
        }
    });
}
template <class P, class Machine = on_cpu>
std::vector<seen> train(int ranks, const options& o) {
    return train<P, Machine>(ranks, o, [](auto&&...) {});
}

/// Checks that all strategies give the bits of data parallel training.
template <class P>
void check_strategies(int ranks, options o) {
    CAPTURE(ranks);
    o.stage = -1;
    const auto plain = train<P>(ranks, o);
    for (const seen& each : plain) CHECK(same_bits(each.logits, plain[0].logits));
    for (int stage = 0; stage <= 3; ++stage) {
        for (const bool has_units : {false, true}) {
            CAPTURE(stage);
            CAPTURE(has_units);
            o.stage = stage;
            o.units = has_units ? std::vector<std::string>{"h.*"} : std::vector<std::string>{};
            rank_loop::check_same(train<P>(ranks, o), plain);
        }
    }
}

}  // namespace shard_gpt
