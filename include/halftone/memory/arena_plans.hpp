// SPDX-License-Identifier: MIT
/// \file
/// The plans of planned arenas (memory/planned_blocks.hpp), found by the size of their first block.
///
/// A device and the twin on which ht::plan runs a program share them, so that a planned run follows the plan from its
/// first step on. Arenas in several threads may add plans at the same time; plans never change and stay where they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <halftone/memory/slab_plan.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class arena_plans {
  public:
    /// A plan whose first block has `bytes`; nullptr if there is none.
    const slab_plan* beginning_with(std::size_t bytes) {
        const std::lock_guard<std::mutex> alone(mutex_);
        const auto found = all_.find(bytes);
        return found == all_.end() ? nullptr : &found->second.front();
    }
    /// The plan of this sequence, an earlier one if there is one. nullptr if there are `most` others that begin with a
    /// block of the same size.
    const slab_plan* plan_of(const std::vector<slab_plan::event>& events, const std::vector<std::size_t>& sizes) {
        const std::lock_guard<std::mutex> alone(mutex_);
        std::deque<slab_plan>& same = all_[sizes.front()];
        for (const slab_plan& p : same) {
            if (p.events == events && std::equal(sizes.begin(), sizes.end(), p.blocks.begin(), p.blocks.end(),
                                                 [](std::size_t s, const slab_plan::block& b) { return s == b.bytes; }))
                return &p;
        }
        if (same.size() == most) return nullptr;
        same.push_back(slab_plan::of(events, sizes));
        ++size_;
        return &same.back();
    }
    /// The number of plans.
    std::size_t size() const {
        const std::lock_guard<std::mutex> alone(mutex_);
        return size_;
    }

  private:
    static constexpr std::size_t most = 8;

    mutable std::mutex mutex_;
    std::unordered_map<std::size_t, std::deque<slab_plan>> all_;
    std::size_t size_ = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
