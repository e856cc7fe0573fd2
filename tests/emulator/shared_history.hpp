// SPDX-License-Identifier: MIT
/// \file
/// The emulated GPU's history of accesses to a block's shared memory.
#pragma once

#include <vector>

#include <emulator/asynchronous.hpp>

namespace halftone::emulator {

/// Eight bytes, because each byte of shared memory has four of these records.
struct access {
    std::uint64_t interval : 21;       // the block's barriers passed, plus one; 0 is never
    std::uint64_t warp_interval : 18;  // the warp's barriers and its arrivals at mbarriers; for a copy, its phase
    std::uint64_t thread : 11;         // or another originator: see first_unit
    std::uint64_t at : 13;
    std::uint64_t in_flight : 1;  // the start of an asynchronous write, which has not been waited for
};
inline constexpr word most_barriers = (1u << 18) - 2;
/// The part of a byte's history that is needed to judge the next access: its last writer, and readers since then with which any
/// writer would race, of two warps if there were two.
struct byte_history {
    access write, reads[3];
};

/// The access history of a block's shared memory. Bytes that were always accessed together share one history: in each chunk of 16
/// bytes, only those at multiples of the chunk's grain have one.
class shared_history {
  public:
    void clear(std::size_t bytes) {
        chunks_.assign((bytes + 15) / 16, {});
        parts_.clear(), unused_.clear();
    }
    /// Calls f(number of the first byte, history) for each group with its own history among the n bytes from `offset` on, a
    /// multiple of n.
    template <class Function>
    void each(word offset, std::size_t n, const Function& f) {
        if (n > 16 || (n & (n - 1)) != 0) {
            const word step = n % 16 == 0 ? 16 : 1;
            for (word i = 0; i < n; i += step) each(offset + i, step, f);
            return;
        }
        chunk& c = chunks_[offset / 16];
        if (n < c.grain) refine(c, static_cast<std::uint8_t>(n));
        if (c.grain == 16) return f(offset, c.whole);
        byte_history* const parts = parts_[c.parts].of;
        for (word i = offset; i < offset + n; i += c.grain) f(i, parts[i % 16]);
    }
    /// From now on the chunk has a single history.
    void unite(word offset, const access& write) {
        chunk& c = chunks_[offset / 16];
        if (c.grain < 16) unused_.push_back(c.parts);
        c.grain = 16, c.whole = {write, {}};
    }

  private:
    struct chunk {
        byte_history whole{};
        std::uint32_t parts = 0;
        std::uint8_t grain = 16;
    };
    struct all_parts {
        byte_history of[16];
    };

    void refine(chunk& c, std::uint8_t finer) {
        if (c.grain == 16) {
            if (unused_.empty()) {
                unused_.push_back(static_cast<std::uint32_t>(parts_.size()));
                parts_.emplace_back();
            }
            c.parts = unused_.back();
            unused_.pop_back();
            parts_[c.parts].of[0] = c.whole;
        }
        byte_history* const parts = parts_[c.parts].of;
        for (int i = 0; i < 16; i += c.grain) {
            for (int j = i + finer; j < i + c.grain; j += finer) parts[j] = parts[i];
        }
        c.grain = finer;
    }

    std::vector<chunk> chunks_;
    std::vector<all_parts> parts_;
    std::vector<std::uint32_t> unused_;
};

}  // namespace halftone::emulator
