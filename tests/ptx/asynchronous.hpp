// SPDX-License-Identifier: MIT
/// \file
/// What is under way beside a block's warps on sm_90: bulk copies of tensors, products of warpgroups, and the mbarriers
/// that tell when copies are done.
///
/// All of it ends as late as the hardware allows, and begins as early: where a bulk copy will write there are NaNs from
/// the instruction on, and what it brings comes when a thread waits for it; the sums of a product are NaNs until they
/// are waited for. Mbarriers order these, and not, in this machine's eyes, ordinary accesses of two warps: it would
/// call them a race.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "ptx/module.hpp"

namespace halftone::ptx {

/// A CUtensorMap as this machine's cuTensorMapEncodeTiled writes it (runtime_tensor_map.cpp): of two axes, the first
/// with neighbours in memory, of numbers of 16 bits; boxes of 64 by box_outer in 128-byte swizzle.
struct tensor_map {
    static constexpr std::uint64_t written = 0x70616d726f736e74, box_inner = 64;

    std::uint64_t stamp = written, address = 0;
    std::uint64_t extent[2] = {};
    std::uint64_t pitch = 0;  ///< bytes from a row to the next
    std::uint64_t box_outer = 0;
    std::uint64_t unused[10] = {};

    std::uint64_t box_bytes() const { return 2 * box_inner * box_outer; }
};
static_assert(sizeof(tensor_map) == 128);

/// How many phases of each mbarrier, by its address, someone knows to be over.
using knowledge = std::map<std::uint64_t, std::uint64_t>;
inline void learn(knowledge& mine, const knowledge& other) {
    for (const auto& [at, phases] : other)
        if (auto& known = mine[at]; known < phases) known = phases;
}

struct mbarrier {
    std::uint32_t arrivals = 0, missing = 0;  ///< of a phase, and those that the present one still lacks
    std::int64_t bytes = 0;                   ///< that it still waits for
    std::uint64_t phases = 0;                 ///< that are over
    int made_by = 0;                          ///< a thread
    bool is_fenced = false;
    knowledge given{};  ///< by those who have arrived
};

/// Of a block.
struct asynchronous {
    struct bulk_copy {
        const instruction* by = nullptr;
        tensor_map map{};
        std::uint64_t to = 0, done = 0;  ///< where to, and which mbarrier counts it
        std::int32_t x = 0, y = 0;
    };
    /// Where bulk copies have gone last: who touches it must know that phase to be over.
    struct landing {
        std::uint64_t bytes = 0, done = 0, phases = 0;
    };
    /// What a product under way reads.
    struct operand {
        int warp = 0;
        std::uint64_t group = 0, at = 0, bytes = 0;
    };

    std::map<std::uint64_t, mbarrier> mbarriers;
    std::vector<bulk_copy> copies;
    std::map<std::uint64_t, landing> landings;
    std::vector<operand> operands;
    std::uint64_t changes = 0;  ///< of mbarriers, so that a block is seen to stand still

    /// Whether nothing objects to anything.
    bool is_idle() const { return landings.empty() && operands.empty(); }
    /// Why a warp that knows this may not touch shared memory there; nullptr: it may.
    const char* objection(std::uint64_t at, std::uint64_t bytes, bool writes, const knowledge& known) const;
    bool is_read_by_products(std::uint64_t at, std::uint64_t bytes) const;
    /// Ends the phase if nothing is missing.
    void advance(std::uint64_t at, mbarrier& m);
};

/// A warp's products under way. A register whose sum is to come holds a NaN that has the sum's number in its upper
/// half, which moves from register to register with it.
struct warpgroup_sums {
    struct pending {
        std::uint64_t group = 0;
        std::array<float, lanes> values{};
    };
    std::deque<pending> under_way;
    std::uint64_t first = 0;             ///< the number of the first of them
    std::uint64_t groups = 0, done = 0;  ///< committed, and products begun
    bool is_fence_due = true;

    static std::uint64_t token(std::uint64_t number) { return mark << 48 | (number & 0xffff) << 32 | 0xffffffffu; }
    /// The sum that a register waits for; nullptr: none.
    const pending* find(std::uint64_t bits) const {
        if (bits >> 48 != mark || (bits & 0xffffffffu) != 0xffffffffu) return nullptr;
        const std::uint64_t n = ((bits >> 32) - first) & 0xffff;
        return n < under_way.size() ? &under_way[n] : nullptr;
    }

  private:
    static constexpr std::uint64_t mark = 0xfff7;  // of no address, and of no number that arithmetic makes
};

}  // namespace halftone::ptx
