// SPDX-License-Identifier: MIT
/// \file
/// A small GPT that ranks train together, against one rank with the same micro-batches: its tied table is claimed by two
/// operations, and its targets are distributed unevenly.
///
///     parallel_gpt::check_gradients<ht::amp_bf16>(3, 4);      // ranks, micro-batches of each
///     parallel_gpt::check_training<ht::amp_fp16>(3, 4, ...);
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/ranks/data_parallel.hpp>
#include <halftone/ranks/threads.hpp>
#include <halftone/train/loss_meter.hpp>

#include "support/random.hpp"
#include "support/store_bytes.hpp"

namespace parallel_gpt {

namespace ht = halftone;

inline constexpr ht::nn::gpt_config config{.vocabulary = 32, .context = 8, .layers = 2, .heads = 2, .width = 32};

/// `rows` rows, of which some targets, and all of some rows, are -100.
struct masked_rows {
    std::vector<std::int32_t> tokens, targets;
    ht::extent rows;

    masked_rows(ht::extent count, unsigned seed) : rows(count) {
        const auto n = static_cast<std::size_t>(count * config.context);
        tokens = support::random(seed).indices(n, static_cast<int>(config.vocabulary));
        targets = support::random(seed + 1).indices(n, static_cast<int>(config.vocabulary));
        for (std::size_t i = 0; i < n; ++i) {
            const std::size_t row = i / static_cast<std::size_t>(config.context);
            if (row % 5 == 3 || i % 7 < row % 3) targets[i] = -100;
        }
    }
    ht::language_batch whole() const {
        const ht::shape<2> s{rows, config.context};
        return {{tokens.data(), s}, {targets.data(), s}};
    }
};

/// The gradients of all slabs after take(), as doubles.
template <class P>
std::vector<double> slabs_of(ht::store& parameters, const ht::gradient_slabs& slabs) {
    std::vector<double> all;
    const auto add = [&]<class Storage>(ht::types<Storage>) {
        const std::size_t group = parameters.find_group<Storage>();
        if (group == ht::store::nowhere) return;
        const auto values = slabs.group<Storage>(group);
        for (ht::extent i = 0; i < values.size(); ++i) all.push_back(static_cast<double>(values(i)));
    };
    const auto add_all = [&]<class... Storages>(ht::types<Storages...>) { (add(ht::types<Storages>{}), ...); };
    add_all(ht::signatures_of<ht::nn::gpt<P>>{});
    return all;
}

/// Ranks' sums against the sums, in double, of what each rank would have without the others: only additions over ranks round.
/// (A program that accumulates all micro-batches in one window adds the terms of a tied table one by one, and rounds more often.)
template <class P>
void check_gradients(int ranks, int accumulation) {
    const int all = ranks * accumulation;
    const masked_rows data(2 * all, 3);
    const auto batch = data.whole();
    std::vector<double> alone, magnitudes;
    {
        ht::cpu device{{.threads = 1}};
        ht::nn::gpt<P> model{device, config, 1};
        ht::accumulator acc{model, ht::unscaled};
        ht::tape tape{device};
        int micros = 0;
        for (const auto& micro : batch.split(all)) {
            tape.backward(model.loss(tape, micro) * ht::share_of(tape, micro, batch), acc);
            if (++micros % accumulation != 0) continue;
            const auto taken = acc.take();
            const std::vector<double> g = slabs_of<P>(model.parameters(), taken.slabs(model.parameters()));
            alone.resize(g.size()), magnitudes.resize(g.size());
            for (std::size_t i = 0; i < g.size(); ++i) alone[i] += g[i], magnitudes[i] += std::fabs(g[i]);
        }
    }
    std::vector<std::vector<double>> got(static_cast<std::size_t>(ranks));
    ht::run_ranks(ranks, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        ht::nn::gpt<P> model{device, config, 1 + static_cast<std::uint64_t>(comm.rank())};  // rank 0's is copied
        ht::accumulator acc{model, ht::unscaled};
        ht::data_parallel parallel{device, comm, acc, {.micro_batches = accumulation, .bucket_bytes = 4096}};
        ht::tape tape{device};
        const auto mine = batch.part(comm.rank() * 2 * accumulation, 2 * accumulation);
        for (int window = 0; window < 2; ++window) {  // in the second one, buckets go while the pass does
            for (const auto& micro : mine.split(accumulation)) {
                const auto loss = model.loss(tape, micro);
                if (window == 0) {
                    tape.backward(loss * parallel.share_of(tape, micro, mine), acc);
                } else {
                    tape.backward(loss * parallel.share_of_whole(tape, micro, batch), acc);
                }
            }
            const auto taken = acc.take();
            const auto sums = slabs_of<P>(model.parameters(), taken.slabs(model.parameters()));
            auto& own = got[static_cast<std::size_t>(comm.rank())];
            if (window != 0) CHECK(sums == own);
            own = sums;
        }
        if (comm.size() > 1) CHECK(parallel.counts().overlapped == parallel.counts().buckets / 2);
    });
    for (const auto& of_rank : got) CHECK(of_rank == got[0]);
    // A rank's gradient passes through at most ranks - 1 additions.
    const double error = (ranks - 1) * 0x1p-24 / (1 - (ranks - 1) * 0x1p-24);
    int off = 0;
    double largest = 0;
    REQUIRE(got[0].size() == alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
        off += std::fabs(got[0][i] - alone[i]) <= error * magnitudes[i] ? 0 : 1;
        largest = std::max(largest, magnitudes[i]);
    }
    CHECK(off == 0);
    CHECK(largest > 0);
    if (ranks == 1) CHECK(got[0] == alone);
}

/// What a rank's run of some steps gives.
struct outcome {
    std::vector<double> losses, scales;
    std::vector<float> norms, amaxes;
    std::vector<std::byte> parameters;
    std::int64_t skipped = 0;
};

struct training {
    int accumulation = 1;
    float init_scale = 65536;
    bool freezes_embeddings = false;
    int steps = 5;
    ht::extent rows = 24;
};

/// One rank's part of a run. A communicator of one rank is a run of one rank.
template <class P>
outcome train(ht::communicator& comm, const training& t) {
    using model_type = ht::nn::gpt<P>;
    ht::cpu device{{.threads = 1}};
    model_type model{device, config, 1};
    if (t.freezes_embeddings) model.parameters().freeze("embed");
    ht::adamw optimizer{device, model, {.lr = 1e-2, .weight_decay = 0.1}};
    ht::grad_scaler scaler{device, {.init_scale = t.init_scale, .growth_interval = 3, .enabled = ht::model_needs_scaling<model_type>}};
    ht::accumulator acc{model};
    ht::data_parallel parallel{device, comm, acc, {.micro_batches = t.accumulation, .bucket_bytes = 8192}};
    ht::tape tape{device};
    ht::loss_meter losses{device};
    outcome result;
    for (int step = 0; step < t.steps; ++step) {
        const masked_rows data(t.rows, 10 + static_cast<unsigned>(step));
        const ht::extent own = t.rows / comm.size();
        const auto mine = data.whole().part(comm.rank() * own, own);
        for (const auto& micro : mine.split(t.accumulation)) {
            const auto loss = model.loss(tape, micro) * parallel.share_of(tape, micro, mine);
            tape.backward(scaler.scale(loss), acc);
            losses.add(loss);
        }
        parallel.add_up(losses);
        losses.end_step();
        auto grads = scaler.unscale(acc.take());
        result.norms.push_back(ht::clip_grad_norm(grads, 0.5f).value());
        optimizer.step(grads);
        scaler.update();
        result.losses.push_back(losses.last());
        result.scales.push_back(static_cast<double>(scaler.get_scale()));
        ht::check_equal(comm, model);
    }
    result.skipped = optimizer.skipped_steps();
    for (const ht::amax_state& s : model.parameters().amaxes().read()) {  // of delayed scaling
        result.amaxes.push_back(s.scale);
        result.amaxes.insert(result.amaxes.end(), s.history.begin(), s.history.end());
    }
    result.parameters = support::bytes_of(model.parameters());
    return result;
}

/// All ranks have the same losses, norms, scales and parameters to the bit, however bytes arrive; the first loss is that of
/// one rank.
template <class P>
outcome check_training(int ranks, const training& t) {
    const auto run = [&](int n, const ht::thread_options& how) {
        std::vector<outcome> all(static_cast<std::size_t>(n));
        ht::run_ranks(n, [&](ht::communicator& comm) { all[static_cast<std::size_t>(comm.rank())] = train<P>(comm, t); }, how);
        for (const outcome& o : all) {
            CHECK(o.losses == all[0].losses);
            REQUIRE(o.norms.size() == all[0].norms.size());
            // By their bits, since that of gradients with a NaN is NaN.
            CHECK(std::memcmp(o.norms.data(), all[0].norms.data(), o.norms.size() * sizeof o.norms[0]) == 0);
            CHECK(o.amaxes == all[0].amaxes);
            CHECK(o.scales == all[0].scales);
            CHECK(o.skipped == all[0].skipped);
            CHECK(o.parameters == all[0].parameters);
        }
        return all[0];
    };
    const outcome prompt = run(ranks, {});
    const outcome shuffled = run(ranks, {.delivery = ht::delivery::shuffled, .seed = 5});
    CHECK(shuffled.losses == prompt.losses);
    CHECK(shuffled.parameters == prompt.parameters);
    return prompt;
}

}  // namespace parallel_gpt
