// SPDX-License-Identifier: MIT
/// \file
/// Training on batches of nine lengths, on any device.
///
///     buckets::check_captures(device, ht::arena_kind::growable);
#pragma once

#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/data/length_buckets.hpp>
#include <halftone/train/trainer.hpp>

#include "support/random.hpp"

namespace buckets {

namespace ht = halftone;
using ht::extent;

inline constexpr ht::nn::gpt_config config{.vocabulary = 29, .context = 18, .layers = 1, .heads = 2, .width = 32};

/// 2, 4, ..., 18.
inline ht::length_buckets nine() { return ht::length_buckets::multiples_of(2, 18); }

/// Sequences for one bucket after another, the smallest first: the lengths of later steps are new ones.
class in_turn {
  public:
    in_turn() {
        for (const extent length : nine().lengths()) {
            ids_.push_back(support::random(static_cast<std::uint64_t>(length)).indices(static_cast<std::size_t>(length), 29));
        }
        for (const auto& ids : ids_) {
            const std::span<const std::int32_t> all(ids);
            each_.emplace_back(std::vector<ht::token_view>{ht::token_view(all)}, nine(), ht::bucketed_options{.vocabulary = 29});
        }
    }
    ht::language_batch sample(std::uint32_t step, extent rows) { return each_[step % 9].sample(step, rows); }
    ht::language_batch largest(extent rows) { return each_.back().largest(rows); }
    extent shapes() const { return 9; }

  private:
    std::vector<std::vector<std::int32_t>> ids_;
    std::vector<ht::bucketed_data> each_;
};

/// The reasons of a trainer's steps.
template <class Trainer>
struct reasons final : ht::trainer_callback {
    const Trainer* of = nullptr;
    std::vector<std::string> all;
    void on_step(const ht::trainer_state&) override {
        if (all.empty() || all.back() != of->captured().reason()) all.push_back(of->captured().reason());
    }
};

/// On a device that captures steps: each length is captured once, and all steps behind are replays. Returns the masters.
template <class Device>
std::vector<std::byte> check_captures(Device& device, ht::arena_kind kind) {
    CAPTURE(ht::name(kind));
    device.memory().set_arenas(kind);
    ht::nn::gpt<ht::amp_bf16> model{device, config, 1};
    in_turn data;
    ht::trainer trainer{device, model, {.per_device_train_batch_size = 2, .max_steps = 36, .learning_rate = 1e-3}};
    reasons<decltype(trainer)> told;
    told.of = &trainer;
    trainer.add_callback(told);
    trainer.train(data);
    CHECK(trainer.capture_refused().empty());
    CHECK(trainer.captured().captures() == 9);
    CHECK(trainer.captured().replays() >= 9);
    std::set<std::string> captured;
    for (const std::string& reason : told.all) {
        CAPTURE(reason);
        CHECK(reason.find("moved") == std::string::npos);
        if (reason.rfind("captured: ", 0) == 0) captured.insert(reason);
    }
    for (const extent length : nine().lengths()) {
        const std::string shape = "(2, " + std::to_string(length) + ")";
        CHECK(captured.count("captured: a step of " + shape + ", " + shape) == 1);
    }
    std::vector<std::byte> all;
    for (const ht::store::group& g : model.parameters().groups()) {
        all.resize(all.size() + g.master.bytes());
        device.memory().read(all.data() + all.size() - g.master.bytes(), g.master.data(), g.master.bytes());
    }
    return all;
}

}  // namespace buckets
