// SPDX-License-Identifier: MIT
/// \file
/// Asynchronous operations of Hopper on the emulated GPU: bulk copies, which complete row by row; products of warpgroups, which run
/// between their issue and their wait; and the mbarriers that order them with threads. machine_state.hpp has their state in each
/// block; asynchronous.cpp and warpgroup.cpp implement them.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include <emulator/machine.hpp>

namespace halftone::emulator {

using site_id = site_number;
struct thread_state;

// The originator of an access: a thread of the block, a warp's matrix unit, or the copies that an mbarrier counts.
inline constexpr word first_unit = 1024, first_copier = first_unit + 32, most_mbarriers = 64;
constexpr word unit_of(int warp) { return first_unit + static_cast<word>(warp); }

/// For each originator, which accesses are known to be complete: those with a smaller number than the one here.
class vector_clock {
  public:
    bool knows(std::size_t who, word when) const { return at(who) < known_.size() && known_[at(who)] > when; }
    void learn(std::size_t who, word before) {
        if (known_.size() <= at(who)) known_.resize(at(who) + 1);
        known_[at(who)] = std::max(known_[at(who)], before);
    }
    void join(const vector_clock& other) {
        if (known_.size() < other.known_.size()) known_.resize(other.known_.size());
        for (std::size_t i = 0; i < other.known_.size(); ++i) known_[i] = std::max(known_[i], other.known_[i]);
    }
    void clear() { known_.clear(); }
    bool operator==(const vector_clock&) const = default;

  private:
    static constexpr std::size_t at(std::size_t who) {  // originators that are not threads come first
        return who < first_unit ? who + (first_copier - first_unit) + most_mbarriers : who - first_unit;
    }

    std::vector<word> known_;
};

struct mbarrier_state {
    word at;
    word number;  // among the mbarriers of the block
    int count, initialiser;
    site_id init, copy = 0;  // the last copy
    int pending = count;
    word fenced = 0;              // the block's barriers before the fence of its initialisation, plus one; 0: no fence
    word phase = 0;               // the number of completed phases
    long bytes = 0;               // still expected in this phase
    word copied = 0, waited = 0;  // the last phase with copies, and the last that a thread waited for
    int copies = 0;               // in flight
    vector_clock arriving{}, over{};  // released by arrivals of this phase; acquired by waits for earlier phases
    std::vector<thread_state*> waiting{};
};

struct bulk_copy {
    tile_map map;
    word to;
    box_coordinates from;
    mbarrier_state* done;
    long earliest;
    std::vector<std::uint16_t> rows;  // not yet copied, in the order in which they will be
};

/// A bulk copy of a box from shared memory, which is read at the wait.
struct store_under_way {
    tile_map map;
    box_coordinates to;
    word from, group;
    site_id at;
};

/// A warp's sums while products add to them; meanwhile the registers of its threads hold `untouched`.
struct accumulator {
    vec<float, 4>* of[32];
    int blocks;
    std::vector<float> values;                     // 16 x 8 blocks
    bool is_lost = false;                          // the thread uses them before the products are complete
    static constexpr word untouched = 0x7fffa5a5;  // a NaN
};
/// A warp's part of an operand in registers: where it is, and what it held at the issue.
struct register_operand {
    const vec<word, 4>* of[32];
    vec<word, 4> held[32];
};
struct warpgroup_product {
    tile_operand a, b;
    std::shared_ptr<register_operand> a_words;  // in place of a
    matrix_unit unit;
    bool keep;
    word group;
    site_id at;
    std::shared_ptr<accumulator> sums;
};
/// A warp's part of the products of its warpgroup.
struct products_of_warp {
    bool is_fenced = false;
    word groups = 0, done = 0;  // committed groups, and those waited for
    std::vector<warpgroup_product> under_way{};
};
struct warpgroup_state {
    int arrived = 0;
    site_id at = 0;
    int registers = 0, wanted = 0;  // per thread
    void* operands[128] = {};
};
/// The last read of 16 bytes of shared memory by a warp's matrix unit: its group of products, plus one.
struct operand_read {
    word group = 0;
    site_id at = 0;
};

/// The asynchronous state of a block.
struct asynchronous_state {
    std::vector<mbarrier_state> mbarriers;  // memory is reserved for all, so that addresses do not change
    std::vector<bulk_copy> copies;
    std::vector<products_of_warp> products;
    std::vector<warpgroup_state> warpgroups;
    std::vector<operand_read> reads;  // for each 16 bytes and each warp, once there are products
    std::vector<thread_state*> wanting_registers;
    std::vector<std::uint16_t> unfenced;  // for each 16 bytes the thread, plus one, that stored there without a fence since

    void begin(int threads, int registers) {
        *this = {};
        products.resize(static_cast<std::size_t>(threads / 32));
        warpgroups.resize(static_cast<std::size_t>(threads / 128));
        for (warpgroup_state& g : warpgroups) g.registers = registers;
    }
};

/// Calls f(offset) for each 16 bytes of an operand with `outer` elements along the outer axis and a depth of 16.
template <class Function>
void each_chunk(const tile_operand& o, int outer, const Function& f) {
    const auto at = [&](int byte) { f(simt::swizzled(o.offset + static_cast<word>(byte), simt::swizzle::b128)); };
    if (!o.is_outer) {
        for (int r = 0; r < outer; ++r) at(128 * r), at(128 * r + 16);
    } else {
        for (int panel = 0; panel < outer / 64; ++panel) {
            for (int i = 0; i < 128; ++i) at(8192 * panel + 16 * i);
        }
    }
}

}  // namespace halftone::emulator
