// SPDX-License-Identifier: MIT
/// \file
/// The recording of a memory history (observe/memory/history.hpp): every block of memory with its size, kind, origin and
/// lifetime, as plain data.
///
///     const ht::memory_snapshot snapshot = history.snapshot();
///     std::cout << snapshot.peak_bytes << " bytes at event " << snapshot.peak_event << '\n';
///     for (const ht::memory_allocation& a : snapshot.outliving(2)) std::cout << a.text() << '\n';
///
/// Time is counted in events: a block is allocated or released, a block is taken from the system or returned, a step
/// begins or ends, a request fails. A block is in use from event `began` on, until event `ended`.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <halftone/exec/ranges.hpp>
#include <halftone/memory/usage.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A parameter's part of a block.
struct memory_part {
    std::string parameter;   ///< its path, "h.0.mlp.up.weight"
    std::size_t offset = 0;  ///< bytes from the block's first one
    std::size_t bytes = 0;   ///< with the padding behind it
};

/// One block of memory, from its allocation to its release. Names live as long as a snapshot or its history.
struct memory_allocation {
    const void* address = nullptr;
    std::size_t bytes = 0;
    memory_kind kind = memory_kind::other;
    const char* operation = "";  ///< the operation that allocated it; empty: none, or not recorded
    pass of_pass = pass::forward;
    const char* layer = "";                   ///< "h.0.attn.qkv"; empty: none, or the tape is not watched
    std::int64_t step = 0;                    ///< the step that made it; 0: outside of steps, or not recorded
    std::int64_t began = -1;                  ///< its first event; -1: before the recording
    std::int64_t ended = -1;                  ///< the event that released it; -1: it is still in use
    std::int64_t began_at = 0, ended_at = 0;  ///< when it began and ended, in nanoseconds since the recording began
    std::vector<memory_part> parts{};         ///< of a slab: its parameters, by offset

    /// Whether it is in use between event `event` and the next one.
    bool is_live_at(std::int64_t event) const { return began <= event && (ended < 0 || ended > event); }
    /// "6144 bytes, activation, linear (forward) of h.0.mlp.up in step 3".
    std::string text() const {
        std::string t = std::to_string(bytes) + " bytes, " + name(kind);
        if (*operation != 0) t += std::string(", ") + operation + " (" + name(of_pass) + ")";
        if (*layer != 0) t += std::string(*operation != 0 ? " of " : ", ") + layer;
        if (step != 0) t += " in step " + std::to_string(step);
        return t;
    }
};

/// A block taken from the system.
struct memory_segment {
    const void* address = nullptr;
    std::size_t bytes = 0;
    std::int64_t began = -1, ended = -1;  ///< as of an allocation
};

/// A training step.
struct memory_step {
    std::int64_t step = 0;
    std::int64_t began = -1;  ///< the event of its beginning; -1: before the window
    std::int64_t ended = -1;  ///< the event of its end; -1: it has not ended
};

/// One change of the bytes in use.
struct memory_change {
    std::int64_t event = 0;
    std::size_t allocation = 0;  ///< an index into memory_snapshot::allocations
    bool is_end = false;
};

/// The events that a history still has, and the blocks and steps to which they belong.
struct memory_snapshot {
    using by_kind = std::array<std::size_t, memory_kinds>;

    std::vector<memory_allocation>
        allocations;                       ///< all that were in use in the window, in the order of allocation
    std::vector<memory_change> changes;    ///< those of the window, in order
    std::vector<memory_segment> segments;  ///< in the order in which they were taken from the system
    std::vector<memory_step> steps;
    std::vector<memory_allocation> refused;  ///< requests that failed: `began` is the event

    std::int64_t first_event = 0;  ///< the window's first event: earlier ones were dropped
    std::int64_t events = 0;       ///< one more than the number of the window's last event
    std::int64_t dropped = 0;      ///< number of earlier events, which a history of limited length has dropped
    by_kind unrecorded{};          ///< bytes of blocks from before the recording that were in use throughout

    std::int64_t peak_event = -1;  ///< the first event after which the most bytes are in use; if less than first_event,
                                   ///< the peak is at the window's beginning
    std::size_t peak_bytes = 0;    ///< bytes in use at the peak
    by_kind bytes_at_peak{};       ///< the bytes of each kind at the peak

    std::shared_ptr<const std::set<std::string>> names;  ///< keeps the names of operations and layers

    std::int64_t first_step_ended = -1;  ///< the event that ended the first step of the recording; -1: none has ended

    /// The allocations that were made in this step and were still in use when it ended, the largest first: caches that
    /// are kept for the next steps, or leaks.
    std::vector<memory_allocation> outliving(std::int64_t step) const {
        return chosen([&](const memory_allocation& a) { return a.step == step && outlives_its_step(a); });
    }
    /// The allocations that outlived their step, of all steps after the first one, without workspaces, which contexts
    /// keep for later steps: a training loop that leaks nothing has none.
    std::vector<memory_allocation> outliving() const {
        return chosen([&](const memory_allocation& a) { return is_leak(a); });
    }
    /// Whether an allocation is among outliving().
    bool is_leak(const memory_allocation& a) const {
        return a.kind != memory_kind::workspace && a.began > first_step_ended && outlives_its_step(a);
    }
    /// The event that ended the step of an allocation, or the last event before the window if the step ended earlier.
    std::int64_t end_of_step(const memory_allocation& a) const {
        const memory_step* const s = step_of(a);
        return s == nullptr ? first_event - 1 : s->ended;
    }
    /// The step in which the allocation was made; nullptr if there is none, or if its events were dropped.
    const memory_step* step_of(const memory_allocation& a) const {
        if (a.step == 0) return nullptr;
        const auto after = std::upper_bound(steps.begin(), steps.end(), a.began,
                                            [](std::int64_t event, const memory_step& s) { return event < s.began; });
        return after == steps.begin() || (after - 1)->step != a.step ? nullptr : &*(after - 1);
    }

    /// Bytes in use of each kind after an event.
    by_kind live_at(std::int64_t event) const {
        by_kind live = unrecorded;
        for (const memory_allocation& a : allocations) {
            if (a.is_live_at(event)) live[static_cast<std::size_t>(a.kind)] += a.bytes;
        }
        return live;
    }
    /// The allocations in use after an event, the largest first.
    std::vector<memory_allocation> allocations_at(std::int64_t event) const {
        return chosen([&](const memory_allocation& a) { return a.is_live_at(event); });
    }

  private:
    bool outlives_its_step(const memory_allocation& a) const {
        if (a.step == 0) return false;
        const memory_step* const s = step_of(a);
        if (s == nullptr) return a.began < first_event;  // the step ended before the window, the allocation did not
        return s->ended >= 0 && (a.ended < 0 || a.ended > s->ended);
    }
    template <class Choose>
    std::vector<memory_allocation> chosen(const Choose& choose) const {
        std::vector<memory_allocation> all;
        for (const memory_allocation& a : allocations) {
            if (choose(a)) all.push_back(a);
        }
        std::stable_sort(all.begin(), all.end(),
                         [](const memory_allocation& a, const memory_allocation& b) { return a.bytes > b.bytes; });
        return all;
    }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
