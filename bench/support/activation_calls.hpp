// SPDX-License-Identifier: MIT
/// \file
/// The allocations of a training step, recorded on a planning device, which computes nothing, and replayed on any
/// allocator.
///
///     const auto steps = calls::of_lengths(device, config, 1, lengths);         // one forward and backward pass each
///     calls::replayed on(arena);
///     on.run(steps[0]);
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/observe/memory/plan.hpp>

namespace calls {

namespace ht = halftone;

/// Allocates `bytes`; if that is 0, frees the block with this number, counted by allocations.
struct call {
    std::size_t bytes;
    std::int32_t block;
};
using sequence = std::vector<call>;

/// Records the calls for activations.
class recorder final : public ht::memory_listener {
  public:
    void on_allocate(const void* block, std::size_t bytes, ht::memory_kind kind) override {
        if (kind != ht::memory_kind::activation) return;
        numbers_[block] = next_;
        calls_.push_back({bytes, next_++});
    }
    void on_free(const void* block, std::size_t, ht::memory_kind kind) override {
        if (kind == ht::memory_kind::activation) calls_.push_back({0, numbers_.at(block)});
    }
    /// The calls since the last call of this function.
    sequence take() {
        next_ = 0;
        return std::exchange(calls_, {});
    }

  private:
    std::unordered_map<const void*, std::int32_t> numbers_;
    std::int32_t next_ = 0;
    sequence calls_;
};

/// The calls of one forward and backward pass of a GPT for each of these lengths, with `batch` rows.
template <class Policy, class Device>
std::vector<sequence> of_lengths(Device& device, const ht::nn::gpt_config& config, ht::extent batch,
                                 const std::vector<ht::extent>& lengths, int checkpointing = 0) {
    std::vector<sequence> all;
    ht::plan(device, [&](auto& d) {
        recorder records;
        ht::nn::gpt<Policy> model{d, config};
        if (checkpointing != 0) model.checkpoint_every(checkpointing);
        ht::accumulator acc{model};
        ht::tape tape{d};
        ht::grad_scaler scaler{d};
        d.memory().usage().listen(&records);
        for (const ht::extent length : lengths) {
            const std::vector<std::int32_t> ids(static_cast<std::size_t>(batch * length));
            const ht::const_view<std::int32_t, 2> view{ids.data(), {batch, length}};
            {
                auto loss = model.loss(tape, ht::language_batch{view, view});
                tape.backward(scaler.scale(loss), acc);
            }
            acc.discard();
            all.push_back(records.take());
        }
        d.memory().usage().listen(nullptr);
    });
    return all;
}

/// The largest sum of bytes in use at one time.
inline std::size_t peak_of(const sequence& s) {
    std::vector<std::size_t> sizes;
    std::size_t live = 0, peak = 0;
    for (const call& c : s) {
        if (c.bytes != 0) {
            sizes.push_back(c.bytes);
            live += c.bytes;
            peak = live > peak ? live : peak;
        } else {
            live -= sizes[static_cast<std::size_t>(c.block)];
        }
    }
    return peak;
}

/// Replays sequences on an allocator, which has allocate(bytes) and deallocate(block, bytes).
template <class Allocator>
class replayed {
  public:
    explicit replayed(Allocator& on) : on_(&on) {}
    /// `after` is called after each call.
    template <class After>
    void run(const sequence& s, const After& after) {
        blocks_.clear();
        for (const call& c : s) {
            if (c.bytes != 0) {
                blocks_.push_back({on_->allocate(c.bytes), c.bytes});
            } else {
                const auto& [data, bytes] = blocks_[static_cast<std::size_t>(c.block)];
                on_->deallocate(data, bytes);
            }
            after();
        }
    }
    void run(const sequence& s) {
        run(s, [] {});
    }

  private:
    Allocator* on_;
    std::vector<std::pair<std::byte*, std::size_t>> blocks_;
};

}  // namespace calls
