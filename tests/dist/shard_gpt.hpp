// SPDX-License-Identifier: MIT
/// \file
/// A small GPT that ranks train together, its parameters divided by any strategy, and what each rank saw.
///
///     const auto got = shard_gpt::train<ht::amp_bf16>(4, {.stage = 3, .units = {"h.*"}});
///     got[1].losses, got[1].logits                            // of rank 1
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/dist/data_parallel.hpp>
#include <halftone/dist/shard.hpp>
#include <halftone/dist/threads.hpp>
#include <halftone/kernel.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/optim/adamw_8bit.hpp>

namespace shard_gpt {

namespace ht = halftone;

struct options {
    int stage = 0;                   ///< of ZeRO; -1: ht::data_parallel
    std::vector<std::string> units{};
    int steps = 3;
    int micro_batches = 1;
    bool told = true;                ///< whether the division is told their number
    float clip = 0;                  ///< 0: no clipping
    bool eight_bit = false;          ///< ht::adamw_8bit
    int checkpointing = 0;
    const char* frozen = nullptr;
    bool scales = false;             ///< a scaler, whose scale begins so high that the first steps overflow
    ht::delivery delivery = ht::delivery::prompt;
};

/// What a rank saw.
struct seen {
    std::vector<float> losses;       ///< its own
    std::vector<float> norms;        ///< of gradients, the same on all ranks
    std::vector<float> logits;       ///< of the trained model
    std::vector<int> skips;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

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
    return {.vocabulary = 64, .context = 16, .layers = 3, .heads = 2, .width = 32, .checkpointing = o.checkpointing};
}

/// `look(rank, device, model)`: called in each rank after training.
template <class P, class Optimizer, class Look>
void train_rank(ht::communicator& comm, const options& o, ht::cpu& device, model<P>& m, Optimizer& optimizer, seen& all,
                const Look& look) {
    ht::accumulator acc{m};
    std::optional<ht::data_parallel<ht::cpu, decltype(acc)>> plain;
    if (o.stage < 0) plain.emplace(device, comm, acc, ht::data_parallel_options{.micro_batches = o.micro_batches});
    ht::tape tape{device};
    ht::grad_scaler scaler{device, {.init_scale = o.scales ? 0x1p24f : 1024.0f, .growth_interval = 2}};
    for (int step = 0; step < o.steps; ++step) {
        for (int micro = 0; micro < o.micro_batches; ++micro) {
            const rows r(comm.rank(), step, micro);
            const auto loss = m.loss(tape, r.batch());
            all.losses.push_back(static_cast<float>(*loss.view().data()));
            const double share = 1.0 / (comm.size() * o.micro_batches);
            tape.backward(scaler.scale(ht::rank_loss<decltype(loss * share)>{loss * share, comm.size()}), acc);
        }
        auto grads = scaler.unscale(acc.take());
        if (o.clip > 0) all.norms.push_back(ht::clip_grad_norm(grads, o.clip).value());
        all.skips.push_back(optimizer.step(grads).skipped() ? 1 : 0);
        scaler.update();
    }
    ht::inference eval{device};
    const rows r(0, 100, 0);
    const auto logits = m.logits(eval, r.batch().tokens);
    const auto host = ht::to_host(device, logits.view());
    for (ht::extent i = 0; i < logits.size(); ++i) all.logits.push_back(static_cast<float>(host.data()[i]));
    look(comm, device, m);
}

template <class P, class Look>
std::vector<seen> train(int ranks, const options& o, const Look& look) {
    std::vector<seen> all(static_cast<std::size_t>(ranks));
    ht::run_ranks(
        ranks,
        [&](ht::communicator& comm) {
            ht::cpu device{{.threads = 1}};
            model<P> m{device, config_of(o), 7};
            if (o.frozen != nullptr) m.parameters().freeze(o.frozen);
            std::optional<ht::shard<ht::cpu, model<P>, ht::zero>> sharded;
            if (o.stage >= 0)
                sharded.emplace(device, m, comm, ht::zero(o.stage, o.units),
                                ht::shard_options{.micro_batches = o.told ? o.micro_batches : 0});
            seen& mine = all[static_cast<std::size_t>(comm.rank())];
            if (o.eight_bit) {
                ht::adamw_8bit optimizer{device, m, {.lr = 0.01, .min_8bit_size = 256}};
                train_rank<P>(comm, o, device, m, optimizer, mine, look);
            } else {
                ht::adamw optimizer{device, m, {.lr = 0.01}};
                train_rank<P>(comm, o, device, m, optimizer, mine, look);
            }
        },
        {.delivery = o.delivery});
    return all;
}
template <class P>
std::vector<seen> train(int ranks, const options& o) {
    return train<P>(ranks, o, [](auto&&...) {});
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
            const auto got = train<P>(ranks, o);
            for (std::size_t r = 0; r < got.size(); ++r) {
                CAPTURE(r);
                CHECK(same_bits(got[r].losses, plain[r].losses));
                CHECK(same_bits(got[r].norms, plain[r].norms));
                CHECK(same_bits(got[r].logits, plain[r].logits));
                CHECK(got[r].skips == plain[r].skips);
            }
        }
    }
}

}  // namespace shard_gpt
