// SPDX-License-Identifier: MIT
/// \file
/// A memory snapshot as torch.cuda.memory._dump_snapshot() writes it, for torch/cuda/_memory_viz.py and the page
/// https://docs.pytorch.org/memory_viz: a pickle of {"segments": [...], "device_traces": [[...]]}.
///
///     python -m torch.cuda._memory_viz trace_plot memory.pickle -o memory.html
///
/// In place of PyTorch's call stack there is one frame: its file is the layer's path, its line the step, its name the
/// operation and the pass. The category is the kind of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <halftone/observe/memory/pickle.hpp>
#include <halftone/observe/memory/snapshot.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Writes a snapshot's parts under PyTorch's keys.
class snapshot_pickler {
  public:
    explicit snapshot_pickler(const memory_snapshot& s) : s_(&s) {}

    std::string write() {
        find_segments();
        p_.dict([&] {
            p_.text("segments");
            p_.list(segments_.size(), [&](std::size_t i) { segment(segments_[i]); });
            p_.text("device_traces");
            p_.list(1, [&](std::size_t) { trace(); });
        });
        return p_.finish();
    }

  private:
    struct block {
        std::uintptr_t address;
        std::size_t bytes;
        const memory_allocation* of;  ///< nullptr: from before the recording
        const char* kind;
    };
    struct segment_record {
        std::uintptr_t address;
        std::size_t bytes;
        std::vector<block> blocks;  ///< the blocks in use, by address
    };
    using range = std::pair<std::uintptr_t, std::uintptr_t>;  ///< the first address, and the one after the last
    static std::uintptr_t at(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

    /// The union of ranges: disjoint ones, by address.
    static std::vector<range> merged(std::vector<range> all) {
        std::sort(all.begin(), all.end());
        std::vector<range> made;
        for (const range& r : all) {
            if (made.empty() || r.first > made.back().second) {
                made.push_back(r);
            } else {
                made.back().second = std::max(made.back().second, r.second);
            }
        }
        return made;
    }

    /// The segments at the window's end, with the blocks in use. Blocks whose segment is unknown, since it was taken before
    /// the recording, are put into additional segments; bytes without an address into one at the beginning of memory.
    void find_segments() {
        std::vector<range> known, unknown;
        for (const memory_segment& s : s_->segments) {
            known.push_back({at(s.address), at(s.address) + s.bytes});
            if (s.ended < 0) segments_.push_back({at(s.address), s.bytes, {}});
        }
        known = merged(std::move(known));
        for (const memory_allocation& a : s_->allocations) {
            const auto behind = std::upper_bound(known.begin(), known.end(), range{at(a.address), UINTPTR_MAX});
            if (behind == known.begin() || (behind - 1)->second <= at(a.address))
                unknown.push_back({at(a.address), at(a.address) + a.bytes});
        }
        for (const range& r : merged(std::move(unknown))) segments_.push_back({r.first, r.second - r.first, {}});
        segment_record before{4096, 0, {}};
        for (int k = 0; k < memory_kinds; ++k) {
            const std::size_t bytes = s_->unrecorded[static_cast<std::size_t>(k)];
            if (bytes == 0) continue;
            before.blocks.push_back({before.address + before.bytes, bytes, nullptr, name(static_cast<memory_kind>(k))});
            before.bytes += bytes;
        }
        if (before.bytes != 0) segments_.push_back(before);
        std::sort(segments_.begin(), segments_.end(),
                  [](const segment_record& a, const segment_record& b) { return a.address < b.address; });
        for (const memory_allocation& a : s_->allocations) {
            if (a.ended >= 0) continue;
            const auto behind =
                std::upper_bound(segments_.begin(), segments_.end(), at(a.address),
                                 [](std::uintptr_t p, const segment_record& s) { return p < s.address; });
            if (behind != segments_.begin()) (behind - 1)->blocks.push_back({at(a.address), a.bytes, &a, name(a.kind)});
        }
        for (segment_record& s : segments_) {
            std::sort(s.blocks.begin(), s.blocks.end(),
                      [](const block& a, const block& b) { return a.address < b.address; });
        }
    }

    void put(const char* key, std::int64_t value) {
        p_.text(key);
        p_.integer(value);
    }
    void put(const char* key, std::size_t value) { put(key, static_cast<std::int64_t>(value)); }
    void put(const char* key, const char* value) {
        p_.text(key);
        p_.text(value);
    }
    void frames(const memory_allocation* a) {
        p_.text("frames");
        if (a == nullptr) return p_.list(0, [](std::size_t) {});
        const std::string operation =
            *a->operation == 0 ? "outside of operations" : std::string(a->operation) + " (" + name(a->of_pass) + ")";
        const std::string layer = *a->layer == 0 ? "halftone" : a->layer;
        p_.once(layer + '\n' + operation + '\n' + std::to_string(a->step), [&] {
            p_.list(1, [&](std::size_t) {
                p_.dict([&] {
                    put("filename", layer.c_str());
                    put("line", a->step);
                    put("name", operation.c_str());
                });
            });
        });
    }

    void segment(const segment_record& s) {
        std::size_t used = 0;
        for (const block& b : s.blocks) used += b.bytes;
        p_.dict([&] {
            put("device", std::int64_t{0});
            put("address", s.address);
            put("total_size", s.bytes);
            for (const char* key : {"allocated_size", "active_size", "requested_size"}) put(key, used);
            put("stream", std::int64_t{0});
            put("segment_type", "large");
            p_.text("segment_pool_id");
            p_.pair(0, 0);
            p_.text("is_expandable");
            p_.boolean(false);
            frames(nullptr);
            p_.text("blocks");
            blocks(s);
        });
    }
    /// The blocks in use, and the gaps.
    void blocks(const segment_record& s) {
        std::vector<block> all;
        std::uintptr_t end = s.address;
        for (const block& b : s.blocks) {
            if (b.address > end) all.push_back({end, b.address - end, nullptr, nullptr});
            all.push_back(b);
            end = b.address + b.bytes;
        }
        if (end < s.address + s.bytes) all.push_back({end, s.address + s.bytes - end, nullptr, nullptr});
        p_.list(all.size(), [&](std::size_t i) {
            p_.dict([&] {
                put("address", all[i].address);
                put("size", all[i].bytes);
                put("requested_size", all[i].kind == nullptr ? 0 : all[i].bytes);
                put("state", all[i].kind == nullptr ? "inactive" : "active_allocated");
                frames(all[i].of);
            });
        });
    }

    /// One entry of a device's trace.
    void entry(const char* action, const void* address, std::size_t bytes, const memory_allocation* of,
               std::int64_t at_ns) {
        p_.dict([&] {
            put("action", action);
            put(of != nullptr && of->address == nullptr ? "device_free" : "addr", at(address));
            put("size", bytes);
            put("stream", std::int64_t{0});
            put("time_us", at_ns / 1000);
            put("category", of == nullptr ? "unknown" : name(of->kind));
            frames(of);
        });
    }
    /// All events in order: segments taken and returned, blocks allocated and released, failed requests.
    void trace() {
        struct action {
            std::int64_t event;
            const char* name;
            const memory_segment* segment;
            const memory_allocation* allocation;
        };
        std::vector<action> all;
        for (const memory_segment& s : s_->segments) {
            if (s.began >= s_->first_event) all.push_back({s.began, "segment_alloc", &s, nullptr});
            if (s.ended >= 0) all.push_back({s.ended, "segment_free", &s, nullptr});
        }
        for (const memory_allocation& r : s_->refused) all.push_back({r.began, "oom", nullptr, &r});
        for (const memory_change& c : s_->changes) {
            const memory_allocation* const a = &s_->allocations[c.allocation];
            if (!c.is_end) all.push_back({c.event, "alloc", nullptr, a});
            if (c.is_end) all.push_back({c.event, "free_requested", nullptr, a});
            if (c.is_end) all.push_back({c.event, "free_completed", nullptr, a});
        }
        std::stable_sort(all.begin(), all.end(), [](const action& a, const action& b) { return a.event < b.event; });
        p_.list(all.size() + 1, [&](std::size_t i) {
            // The last entry is the snapshot, as in PyTorch. Its category is "unknown", so that readers know that one, too.
            if (i == all.size()) return entry("snapshot", nullptr, 0, nullptr, 0);
            const action& a = all[i];
            if (a.segment != nullptr) return entry(a.name, a.segment->address, a.segment->bytes, nullptr, 0);
            entry(a.name, a.allocation->address, a.allocation->bytes, a.allocation,
                  a.event == a.allocation->began ? a.allocation->began_at : a.allocation->ended_at);
        });
    }

    const memory_snapshot* s_;
    pickle p_;
    std::vector<segment_record> segments_;
};

}  // namespace detail

/// The snapshot as the pickle of the dict that torch.cuda.memory._snapshot() gives.
inline std::string memory_snapshot_pickle(const memory_snapshot& s) { return detail::snapshot_pickler(s).write(); }

}  // namespace HALFTONE_ABI
}  // namespace halftone
