// SPDX-License-Identifier: MIT
/// \file
/// Asynchronous operations of a block on sm_90: bulk copies of tensors in both directions, products of warpgroups, and the
/// mbarriers that signal when copies into shared memory are complete.
///
/// Every operation begins as early and ends as late as the hardware allows. The destination of a bulk copy is filled with NaNs
/// at the instruction, and gets its values when a thread waits for the copy. A bulk store reads and writes when its thread waits
/// for it. The sums of a product are NaNs until a thread waits for them. Mbarriers order these operations, but not ordinary
/// accesses of two warps, which this machine reports as a race.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "ptx/module.hpp"

namespace halftone::ptx {

/// The coordinates of an element of a tensor; 0 along axes that the tensor does not have.
using tensor_coordinates = std::array<std::int64_t, 4>;

/// A CUtensorMap as this machine's cuTensorMapEncodeTiled writes it (runtime_tensor_map.cpp): two or four axes, the first of
/// which is contiguous; numbers of 16 or 32 bits; boxes of 128 bytes by box_outer in 128-byte swizzle.
struct tensor_map {
    static constexpr std::uint64_t written = 0x70616d726f736e74, row_bytes = 128;

    std::uint64_t stamp = written, address = 0;
    std::uint64_t extent[4] = {1, 1, 1, 1};
    std::uint64_t pitch[3] = {};  ///< strides in bytes of all axes except the first
    std::uint64_t box_outer = 0;
    std::uint64_t element_bytes = 0;
    std::uint64_t axes = 2;
    std::uint64_t unused[4] = {};

    std::uint64_t box_bytes() const { return row_bytes * box_outer; }
    std::uint64_t box_inner() const { return row_bytes / element_bytes; }
    /// Whether a box may begin at this column. The hardware refuses other boxes with an illegal instruction.
    bool may_begin_at(std::int64_t x) const { return x * static_cast<std::int64_t>(element_bytes) % 16 == 0; }
    bool has(const tensor_coordinates& p) const {
        for (std::size_t i = 0; i < p.size(); ++i)
            if (p[i] < 0 || static_cast<std::uint64_t>(p[i]) >= extent[i]) return false;
        return true;
    }
    std::uint64_t address_of(const tensor_coordinates& p) const {
        std::uint64_t at = address + element_bytes * static_cast<std::uint64_t>(p[0]);
        for (std::size_t i = 1; i < p.size(); ++i) at += pitch[i - 1] * static_cast<std::uint64_t>(p[i]);
        return at;
    }
};
/// The coordinates of an element of a box, from those of the box.
inline tensor_coordinates in_box(tensor_coordinates p, std::uint64_t column, std::uint64_t row) {
    p[0] += static_cast<std::int64_t>(column), p[1] += static_cast<std::int64_t>(row);
    return p;
}
/// The coordinates that a lane of an instruction gives, one operand for each axis, beginning with `operand`.
tensor_coordinates coordinates_at(warp& w, const instruction& i, std::size_t operand, std::size_t axes, int lane);
static_assert(sizeof(tensor_map) == 128);
/// The map whose address a lane of an instruction gives.
tensor_map map_at(warp& w, const instruction& i, std::uint64_t at, int lane);

/// The offset of a byte in 128-byte swizzle: the index of its 16-byte chunk is combined with that of its row, both modulo 8.
inline std::uint64_t swizzled(std::uint64_t at) { return at ^ (at >> 3 & 0x70); }
/// The address in shared memory that a lane of an instruction gives.
std::uint64_t shared_address(warp& w, const instruction& i, std::size_t operand, int lane);

/// For each mbarrier, by its address, the number of phases that are known to be complete.
using knowledge = std::map<std::uint64_t, std::uint64_t>;
inline void learn(knowledge& mine, const knowledge& other) {
    for (const auto& [at, phases] : other)
        if (auto& known = mine[at]; known < phases) known = phases;
}

struct mbarrier {
    std::uint32_t arrivals = 0, missing = 0;  ///< arrivals of a phase, and those that the current phase still needs
    std::int64_t bytes = 0;                   ///< bytes that are still expected
    std::uint64_t phases = 0;                 ///< completed phases
    int made_by = 0;                          ///< the thread that initialised it
    bool is_fenced = false;
    knowledge given{};  ///< by the threads that have arrived
};

/// The asynchronous operations of a block.
struct asynchronous {
    struct bulk_copy {
        const instruction* by = nullptr;
        tensor_map map{};
        std::uint64_t to = 0, done = 0;  ///< the destination, and the mbarrier that counts it
        tensor_coordinates coordinates{};
    };
    /// The memory that bulk copies wrote last: a thread that accesses it must know that their phase is complete.
    struct landing {
        std::uint64_t bytes = 0, done = 0, phases = 0;
    };
    /// A bulk copy from shared memory for which its thread has not waited yet.
    struct bulk_store {
        const instruction* by = nullptr;
        tensor_map map{};
        std::uint64_t from = 0;
        tensor_coordinates coordinates{};
        int thread = 0;
        std::uint64_t group = 0;  ///< the group of its thread
    };
    struct thread_state {
        std::uint64_t store_groups = 0;  ///< number of committed groups of bulk stores
        std::uint32_t fences = 1;        ///< fences between its ordinary writes and bulk stores, plus one
    };
    /// The thread that wrote four bytes last, and the number of its fences before the write; 0: no thread, or a copy.
    struct writer {
        std::uint32_t fences = 0;
        int thread = 0;
    };
    /// The operands of a product in flight.
    struct operand {
        int warp = 0;
        std::uint64_t group = 0, at = 0, bytes = 0;
    };

    std::map<std::uint64_t, mbarrier> mbarriers;
    std::vector<bulk_copy> copies;
    std::map<std::uint64_t, landing> landings;
    std::vector<bulk_store> stores;
    std::vector<operand> operands;
    std::vector<thread_state> threads;
    std::vector<writer> writers;  ///< none before sm_90
    std::uint64_t changes = 0;    ///< changes of mbarriers, by which a block without progress is detected

    /// Whether there is nothing to check.
    bool is_idle() const { return landings.empty() && operands.empty() && stores.empty(); }
    /// The reason why a warp that knows of these phases may not access shared memory there; nullptr if it may.
    const char* objection(std::uint64_t at, std::uint64_t bytes, bool writes, const knowledge& known) const;
    /// The operation that reads there and has not been waited for, for error messages; nullptr if there is none.
    const char* reader_of(std::uint64_t at, std::uint64_t bytes) const;
    void note_write(std::uint64_t at, std::uint64_t bytes, const writer& by) {
        if (writers.empty()) return;
        const auto word = [&](std::uint64_t n) { return writers.begin() + static_cast<std::ptrdiff_t>(n / 4); };
        std::fill(word(at), word(at + bytes + 3), by);
    }
    void note_write(std::uint64_t at, std::uint64_t bytes, int thread) {
        note_write(at, bytes, {threads[static_cast<std::size_t>(thread)].fences, thread});
    }
    /// The thread that wrote these bytes without a fence since; -1: none.
    int unfenced_writer(std::uint64_t at, std::uint64_t bytes) const;
    /// Ends the phase if nothing is missing.
    void advance(std::uint64_t at, mbarrier& m);
};

/// A warp's products in flight. A register whose sum is not available yet holds a NaN with the sum's number in its upper half;
/// the NaN can be moved to other registers.
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
    static constexpr std::uint64_t mark = 0xfff7;  // occurs in no address, and in no result of arithmetic
};

}  // namespace halftone::ptx
