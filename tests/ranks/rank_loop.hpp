// SPDX-License-Identifier: MIT
/// \file
/// A training loop of several ranks under any strategy, on any device, and what each rank saw of it.
///
///     rank_loop::train(machine, options, model, optimizer, seen, [&](int step, int micro) { return rows(rank, step, micro); },
///                      [&](auto& tape, const rows& r) { return model.loss(tape, r.batch()); }, [](int) {});
///     rank_loop::check_same(got, plain);                     // all that ranks saw, to the bit
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/ranks/data_parallel.hpp>
#include <halftone/ranks/shard.hpp>
#include <halftone/ranks/threads.hpp>

namespace rank_loop {

namespace ht = halftone;

struct options {
    int stage = 0;  ///< of ZeRO; -1: ht::data_parallel; -2: a program without ranks
    std::vector<std::string> units{};
    int steps = 3;
    int micro_batches = 1;
    bool told = true;        ///< whether the division is told their number
    float clip = 0;          ///< 0: no clipping
    bool eight_bit = false;  ///< ht::adamw_8bit
    int checkpointing = 0;
    const char* frozen = nullptr;
    float init_scale = 1024;  ///< of the loss; 2^24: the first steps overflow in fp16
    ht::delivery delivery = ht::delivery::prompt;
    int layers = 3;
    bool discards = false;  ///< a window before the last step
    std::size_t bucket_bytes = std::size_t{25} << 20;
};

/// What a rank saw.
struct seen {
    std::vector<float> losses;  ///< its own
    std::vector<float> norms;   ///< of gradients, the same on all ranks
    std::vector<float> logits;  ///< of the trained model, or its parameters after each step
    std::vector<int> skips;
};

/// What a rank computes on, and by what its bytes travel.
struct on_cpu {
    using device_type = ht::cpu;
    struct options {};

    on_cpu(ht::communicator& host, const options&) : comm(host) {}
    ht::cpu device{{.threads = 1}};
    ht::communicator& comm;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
inline bool same(const seen& a, const seen& b) {
    return same_bits(a.losses, b.losses) && same_bits(a.norms, b.norms) && same_bits(a.logits, b.logits) &&
           a.skips == b.skips;
}
/// Checks that each rank saw the same in two runs.
inline void check_same(const std::vector<seen>& got, const std::vector<seen>& want) {
    REQUIRE(got.size() == want.size());
    for (std::size_t r = 0; r < got.size(); ++r) {
        CAPTURE(r);
        CHECK(same_bits(got[r].losses, want[r].losses));
        CHECK(same_bits(got[r].norms, want[r].norms));
        CHECK(same_bits(got[r].logits, want[r].logits));
        CHECK(got[r].skips == want[r].skips);
    }
}

/// The windows of a rank. `rows_of(step, micro)`: this rank's rows; `loss_of(tape, rows)`: their loss. CPUs read rows where they are.
/// `after(step)` is called behind each step.
template <class Machine, class Model, class Optimizer, class RowsOf, class LossOf, class After>
void train(Machine& machine, const options& o, Model& m, Optimizer& optimizer, seen& all, const RowsOf& rows_of,
           const LossOf& loss_of, const After& after) {
    using device_type = typename Machine::device_type;
    device_type& device = machine.device;
    ht::communicator& comm = machine.comm;
    ht::accumulator acc{m};
    std::optional<ht::data_parallel<device_type, decltype(acc)>> plain;
    if (o.stage == -1)
        plain.emplace(
            device, comm, acc,
            ht::data_parallel_options{.micro_batches = o.told ? o.micro_batches : 0, .bucket_bytes = o.bucket_bytes});
    ht::tape tape{device};
    ht::grad_scaler scaler{device, {.init_scale = o.init_scale, .growth_interval = 2}};
    for (int step = 0; step < o.steps; ++step) {
        if (o.discards && step + 1 == o.steps) {
            const auto rows = rows_of(step + 100, 0);
            const auto loss = loss_of(tape, rows);
            tape.backward(scaler.scale(ht::rank_loss<decltype(loss * 1.0)>{loss * 1.0, comm.size()}), acc);
            acc.discard();
        }
        for (int micro = 0; micro < o.micro_batches; ++micro) {
            const auto rows = rows_of(step, micro);
            const auto loss = loss_of(tape, rows);
            all.losses.push_back(static_cast<float>(loss.item()));
            const double share = 1.0 / (comm.size() * o.micro_batches);
            tape.backward(scaler.scale(ht::rank_loss<decltype(loss * share)>{loss * share, comm.size()}), acc);
        }
        auto grads = scaler.unscale(acc.take());
        if (o.clip > 0) all.norms.push_back(ht::clip_grad_norm(grads, o.clip).value());
        all.skips.push_back(optimizer.step(grads).skipped() ? 1 : 0);
        scaler.update();
        after(step);
    }
}

/// Divides the model as the options say, if they do.
template <class Device, class Model>
void divide(std::optional<ht::shard<Device, Model, ht::zero>>& sharded, const options& o, Device& device, Model& m,
            ht::communicator& comm) {
    if (o.stage < 0) return;
    sharded.emplace(device, m, comm, ht::zero(o.stage, o.units),
                    ht::shard_options{.micro_batches = o.told ? o.micro_batches : 0, .bucket_bytes = o.bucket_bytes});
}

/// Calls rank(host, seen) on each of several ranks.
template <class Rank>
std::vector<seen> run(int ranks, const ht::thread_options& how, const Rank& rank) {
    std::vector<seen> all(static_cast<std::size_t>(ranks));
    ht::run_ranks(
        ranks, [&](ht::communicator& host) { rank(host, all[static_cast<std::size_t>(host.rank())]); }, how);
    return all;
}

}  // namespace rank_loop
