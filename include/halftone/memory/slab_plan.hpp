// SPDX-License-Identifier: MIT
/// \file
/// Places blocks with known lifetimes in one slab: blocks that are in use at the same time do not overlap.
///
///     const detail::slab_plan plan = detail::slab_plan::of(events, bytes);     // of a recorded step
///     std::byte* block = slab + plan.blocks[k].offset;
///
/// This is dynamic storage allocation, which is NP-hard. Blocks are placed one by one, each in the smallest gap between
/// those placed before that are in use at the same time: the greedy offset calculation of Pisarchyk and Lee 2020,
/// "Efficient Memory Management for Deep Neural Net Inference"; Sekiyama et al. 2018, "Profile-guided memory
/// optimization for deep neural networks", do so for training. Three orders are tried (by size; by size times lifetime;
/// by time of allocation), and the smallest slab is taken. The largest sum of bytes in use at one time bounds it from
/// below.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

struct slab_plan {
    struct block {
        std::size_t bytes;
        std::size_t offset;
        std::int32_t begin, end;  ///< the numbers of the events that allocate and free it
    };
    /// An event: allocates the next block, or frees the block with this number.
    using event = std::int32_t;
    static constexpr event allocates = -1;

    std::vector<event> events;
    std::vector<block> blocks;   ///< in the order in which they are allocated
    std::size_t bytes = 0;       ///< of the slab
    std::size_t peak_live = 0;   ///< the largest sum of blocks in use at one time

    /// The plan of a sequence of events that ends with no block in use; `sizes` are those of its blocks.
    static slab_plan of(std::vector<event> events, const std::vector<std::size_t>& sizes);

  private:
    std::size_t place(const std::vector<std::int32_t>& order);
};

inline slab_plan slab_plan::of(std::vector<event> events, const std::vector<std::size_t>& sizes) {
    slab_plan plan;
    plan.events = std::move(events);
    std::size_t live = 0;
    for (std::size_t i = 0; i < plan.events.size(); ++i) {
        const auto now = static_cast<std::int32_t>(i);
        if (plan.events[i] == allocates) {
            live += sizes[plan.blocks.size()];
            plan.blocks.push_back({sizes[plan.blocks.size()], 0, now, now});
            plan.peak_live = std::max(plan.peak_live, live);
        } else {
            block& b = plan.blocks[static_cast<std::size_t>(plan.events[i])];
            b.end = now;
            live -= b.bytes;
        }
    }
    std::vector<std::pair<std::size_t, std::int32_t>> by_weight(plan.blocks.size());
    std::vector<std::int32_t> order(plan.blocks.size());
    std::vector<block> best;
    const auto better_by = [&](const auto& weight) {
        if (!best.empty() && plan.bytes == plan.peak_live) return;
        // The heaviest first, equal ones as they are: pairs of one type are sorted by code that is compiled once.
        for (std::size_t i = 0; i < by_weight.size(); ++i)
            by_weight[i] = {~weight(plan.blocks[i]), static_cast<std::int32_t>(i)};
        std::sort(by_weight.begin(), by_weight.end());
        for (std::size_t i = 0; i < by_weight.size(); ++i) order[i] = by_weight[i].second;
        const std::size_t bytes = plan.place(order);
        if (best.empty() || bytes < plan.bytes) {
            best = plan.blocks;
            plan.bytes = bytes;
        }
    };
    better_by([](const block& b) { return b.bytes; });
    better_by([](const block& b) { return b.bytes * static_cast<std::size_t>(b.end - b.begin); });
    better_by([](const block& b) { return static_cast<std::size_t>(INT32_MAX - b.begin); });
    plan.blocks = std::move(best);
    return plan;
}

/// Sets the offsets of all blocks, in this order; returns the size of the slab.
inline std::size_t slab_plan::place(const std::vector<std::int32_t>& order) {
    std::vector<const block*> placed;  // sorted by offset
    placed.reserve(order.size());
    std::size_t all = 0;
    for (const std::int32_t which : order) {
        block& b = blocks[static_cast<std::size_t>(which)];
        std::size_t end = 0, best = 0, best_gap = static_cast<std::size_t>(-1);
        for (const block* other : placed) {
            if (other->end <= b.begin || other->begin >= b.end) continue;
            if (other->offset >= end + b.bytes && other->offset - end < best_gap) {
                best_gap = other->offset - end;
                best = end;
            }
            end = std::max(end, other->offset + other->bytes);
        }
        b.offset = best_gap == static_cast<std::size_t>(-1) ? end : best;
        all = std::max(all, b.offset + b.bytes);
        placed.insert(std::upper_bound(placed.begin(), placed.end(), &b,
                                       [](const block* x, const block* y) { return x->offset < y->offset; }),
                      &b);
    }
    return all;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
