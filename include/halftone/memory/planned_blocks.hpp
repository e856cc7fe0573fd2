// SPDX-License-Identifier: MIT
/// \file
/// Blocks at places that a plan of all their lifetimes gives them, in one slab.
///
/// A period begins with an allocation while no block is in use, and ends when the last block is freed: the forward and
/// backward pass of a micro-batch. The first period of a shape is recorded, and its blocks are taken by best fit
/// (memory/segment_blocks.hpp); its plan (memory/slab_plan.hpp) is found by the size of the first block from then on. A
/// period follows a plan call by call. At the first call that differs, the rest of the period is placed by best fit
/// around the blocks in use, and recorded as another sequence: a plan is never applied to lifetimes that it was not
/// made for. ht::plan records the periods of a program before it runs.
#pragma once

#include <algorithm>
#include <exception>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <halftone/memory/segment_blocks.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class planned_blocks final : public segment_blocks {
  public:
    using segment_blocks::segment_blocks;
    /// Leaves the plan of its last period for others: ht::plan of a single step suffices.
    ~planned_blocks() override {
        try {
            if (live() == 0) end_period();
        } catch (const std::exception&) {  // bad_alloc: there is no plan
        }
    }

    std::byte* allocate(std::size_t bytes) override {
        if (live() == 0 && planned_live_ == 0) begin_period(bytes);
        if (plan_ != nullptr) {
            if (expected() != slab_plan::allocates) {
                deviate(deviation::allocates);
            } else if (plan_->blocks[next_].bytes != bytes) {
                wanted_ = bytes;
                deviate(deviation::size);
            } else {
                std::byte* const block = segments().front().data + plan_->blocks[next_].offset;
                ++cursor_, ++next_, ++planned_live_;
                return block;
            }
        }
        std::byte* const block = take(bytes);
        if (is_recording_) record(block, bytes);
        return block;
    }
    void deallocate(std::byte* block, std::size_t bytes) noexcept override {
        if (plan_ != nullptr) {
            const slab_plan::event e = expected();
            if (e != slab_plan::allocates &&
                segments().front().data + plan_->blocks[static_cast<std::size_t>(e)].offset == block) {
                ++cursor_, --planned_live_;
                return;
            }
            deviate(deviation::frees);
        }
        segment_blocks::deallocate(block, bytes);
        if (is_recording_) {
            const auto found = numbers_.find(block);
            events_.push_back(found->second);
            numbers_.erase(found);
        }
    }
    bool settle() override {
        if (live() != 0 || planned_live_ != 0) return false;
        const bool grew = segments().size() > 1;
        end_period();
        if (grew || (most_ != 0 && reserved() != most_)) fit_slab();
        return grew;
    }
    void release_cached() override {
        if (planned_live_ != 0) return;  // all memory is the slab's
        if (live() == 0) {
            if (!sizes_.empty()) end_period();  // of a step that may have been given up: its plan is none that the slab has to hold
            most_ = 0;
        }
        segment_blocks::release_cached();
    }
    void note_refusal() override { note_scarcity(); }  // a slab, as large as its plan, is kept
    std::string reason() const override;

  private:
    enum class deviation : unsigned char { none, first_of_its_kind, size, allocates, frees, too_long };
    /// Longer sequences are not planned: recorded without end, when results outlive their step.
    static constexpr std::size_t most_blocks = 1 << 14;

    slab_plan::event expected() const { return plan_->events[cursor_]; }

    void begin_period(std::size_t first) {
        end_period();
        plan_ = nullptr;
        const auto found = last_.find(first);
        const slab_plan* const plan = found != last_.end() ? found->second : source().plans().beginning_with(first);
        if (plan != nullptr) most_ = std::max(most_, plan->bytes);
        if (segments().size() > 1 || (most_ != 0 && reserved() != most_)) fit_slab();
        shown_ = plan;
        deviation_ = plan == nullptr ? deviation::first_of_its_kind : deviation::none;
        wanted_ = first;
        cursor_ = next_ = 0;
        plan_ = plan;
        is_recording_ = plan == nullptr;
    }
    /// Makes the plan of a period that was recorded, all of whose blocks have been freed.
    void end_period() {
        if (!std::exchange(is_recording_, false)) return;
        if (!sizes_.empty()) {
            const slab_plan* const plan = source().plans().plan_of(events_, sizes_);
            if (plan != nullptr) {
                last_.insert_or_assign(sizes_.front(), plan);
                most_ = std::max(most_, plan->bytes);
            }
        }
        events_.clear(), sizes_.clear(), numbers_.clear();
    }
    /// One segment of the size of the largest plan so far. Where there is one already, it stays where it is, and so do
    /// captured steps: a sequence that is new may have needed more beside it, since best fit leaves gaps.
    void fit_slab() {
        if (!segments().empty() && segments().front().bytes == most_) {
            keep_first_segment();
        } else {
            consolidate(most_ != 0 ? most_ : reserved());
        }
    }

    void record(std::byte* block, std::size_t bytes) {
        if (sizes_.size() == most_blocks) {
            deviation_ = deviation::too_long;
            is_recording_ = false;
            events_.clear(), sizes_.clear(), numbers_.clear();
            return;
        }
        numbers_.insert_or_assign(block, static_cast<slab_plan::event>(sizes_.size()));
        sizes_.push_back(bytes);
        events_.push_back(slab_plan::allocates);
    }
    /// The calls from here on differ from the plan: the blocks in use stay where they are, and the period is recorded.
    void deviate(deviation why) {
        const slab_plan& plan = *std::exchange(plan_, nullptr);
        deviation_ = why;
        planned_live_ = 0;
        is_recording_ = true;
        for (std::size_t i = 0; i < cursor_; ++i) {
            const slab_plan::event e = plan.events[i];
            if (e != slab_plan::allocates) {
                events_.push_back(e);
                continue;
            }
            const slab_plan::block& b = plan.blocks[sizes_.size()];
            std::byte* const at = segments().front().data + b.offset;
            if (static_cast<std::size_t>(b.end) >= cursor_) {
                take_at(at, b.bytes);
                numbers_.insert_or_assign(at, static_cast<slab_plan::event>(sizes_.size()));
            }
            sizes_.push_back(b.bytes);
            events_.push_back(e);
        }
    }

    const slab_plan* plan_ = nullptr;  ///< that is followed now
    std::size_t cursor_ = 0, next_ = 0;  ///< the next event of the plan, and the next block
    std::size_t planned_live_ = 0;       ///< blocks in use that were placed by the plan
    std::size_t most_ = 0;               ///< bytes of the largest plan so far

    bool is_recording_ = false;
    std::vector<slab_plan::event> events_;
    std::vector<std::size_t> sizes_;
    std::unordered_map<const std::byte*, slab_plan::event> numbers_;  ///< of the blocks in use
    std::unordered_map<std::size_t, const slab_plan*> last_;          ///< the last sequence that began with this size

    const slab_plan* shown_ = nullptr;  ///< of reason()
    deviation deviation_ = deviation::none;
    std::size_t wanted_ = 0;
};

inline std::string planned_blocks::reason() const {
    const auto block = [this] { return sentence("not followed from block ", next_ + 1, " on: "); };
    switch (deviation_) {
        case deviation::first_of_its_kind:
            return wanted_ == 0 ? "planned: nothing was allocated yet"
                                : sentence("recorded: no plan begins with a block of ", wanted_, " bytes");
        case deviation::size:
            return sentence(block(), wanted_, " bytes, for which the plan has ", shown_->blocks[next_].bytes);
        case deviation::allocates: return block() + "allocated where the plan frees one";
        case deviation::frees: return block() + "another block is freed before it than in the plan";
        case deviation::too_long:
            return sentence("not planned: more than ", most_blocks, " blocks before all are freed");
        case deviation::none: break;
    }
    return shown_ == nullptr ? "planned: nothing was allocated yet"
                             : sentence("planned: ", shown_->blocks.size(), " blocks in ", shown_->bytes,
                                        " bytes, of which ", shown_->peak_live, " are in use at one time");
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
