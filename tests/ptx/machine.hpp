// SPDX-License-Identifier: MIT
/// \file
/// Runs kernels compiled by nvcc (module.hpp) on the host: blocks one after the other, and the lanes of a warp together while they
/// are at the same instruction, the lanes furthest behind first.
///
/// Failures are reported in one sentence with the instruction: an access that is misaligned or outside of the kernel's memory; a
/// shuffle from a lane that does not take part; lanes that never meet at a warp-wide instruction; threads that never meet at a
/// barrier; races in shared memory (shared_memory.hpp). Shared memory and registers are initialised with NaNs; an asynchronous
/// copy runs when a thread waits for it. Lanes that wait for an mbarrier's phase let all others continue before they test it again;
/// if the phase never completes, that is a failure (asynchronous.hpp).
///
/// It cannot show races in global memory, nor weak memory order.
#pragma once

#include <cstring>
#include <deque>
#include <functional>

#include "ptx/asynchronous.hpp"
#include "ptx/module.hpp"
#include "ptx/shared_memory.hpp"

namespace halftone::ptx {

struct shape {
    unsigned x = 1, y = 1, z = 1;
};

struct launch {
    shape grid{}, block{};
    std::size_t shared_bytes = 0;             ///< in addition to that of the kernel's source
    std::vector<std::uint64_t> parameters{};  ///< their bytes
    std::uint32_t seed = 0;  ///< of the order of blocks, and of warps between two barriers; 0: as numbered
};

struct range {
    std::uint64_t begin = 0, end = 0;
};
/// All memory of kernels around an address, none of it freed before the kernel ends; empty: it is not theirs.
using reach = std::function<range(std::uint64_t address)>;

void run(module& m, const function& kernel, const launch& how, const reach& may_touch);

struct pending_copy {
    std::uint64_t to, from;
    unsigned bytes, valid;
};

/// What a block's threads share.
struct block_state {
    module& code;
    const launch& how;
    const reach& may_touch;
    shared_memory& shared;
    shape at{};
    std::uint64_t steps = 0;
    range last{};  // what the kernel has touched last
    asynchronous beside{};
};

/// A function under way in a warp.
struct frame {
    const function* f = nullptr;
    std::vector<std::uint64_t> registers;
    std::vector<std::byte> parameters, local;  // lane by lane
};

/// What a register holds of a T, and a register that holds it.
template <class T>
T low(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T>
std::uint64_t bits_from(T value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

class warp {
  public:
    enum class lane_state : std::uint8_t { runs, waits, is_parked, is_at_barrier, is_over };

    warp(block_state& b, const function& kernel, int first_thread, int threads);

    /// Until all lanes are over, at a barrier, or have to wait for an mbarrier.
    void advance();
    bool is_over() const;
    bool waits() const;
    void pass_barrier();
    /// The barrier that lanes wait at, of all of this warp one and the same; nullptr: none waits.
    const instruction* barrier() const;
    /// Sums up what `bar.red` is given, and tells it.
    void vote(bool& any, bool& all) const;
    void tell(bool any, bool all);

    std::uint64_t* values(std::int32_t r) {
        return r < 0 ? sink_ : &frame_.registers[static_cast<std::size_t>(r) * lanes];
    }
    template <class T>
    T get(std::int32_t r, int lane) {
        return low<T>(values(r)[lane]);
    }
    template <class T>
    void set(std::int32_t r, int lane, T value) {
        values(r)[lane] = bits_from(value);
    }
    /// Host memory for an access of so many bytes.
    std::byte* memory(const instruction& i, space s, std::uint64_t address, std::uint64_t bytes, int lane, access how);
    /// What `bar.warp.sync` does: what its lanes do to memory from here on comes after what they did before.
    void order_memory() { ++order_; }
    std::uint64_t generic(space s, std::uint64_t address, int lane);
    std::uint64_t from_generic(space s, std::uint64_t address, int lane);

    void copy_later(int lane, const pending_copy& c) { open_copies_[lane].push_back(c); }
    void close_copies(int lane) { copies_[lane].push_back(std::move(open_copies_[lane])), open_copies_[lane].clear(); }
    void wait_for_copies(const instruction& i, int lane, std::size_t groups_left);

    block_state& block() { return block_; }
    int first_thread() const { return first_thread_; }
    /// Which phases of mbarriers have been seen to be over.
    knowledge& known() { return known_; }
    warpgroup_sums& sums() { return sums_; }
    /// Gives registers the sums of all products but those of so many groups.
    void end_products(std::uint64_t groups_left);
    /// What keeps it from going on, for sentences.
    const instruction& last_wait() const;

    [[noreturn]] void fail(const instruction& i, const std::string& why) const;

  private:
    void step_all();
    void call(const instruction& i, lane_mask m);
    void begin(frame& f, const function& of);

    block_state& block_;
    int first_thread_;
    frame frame_;
    int depth_ = 0;
    std::uint32_t order_ = 0;
    std::uint32_t pc_[lanes] = {};
    lane_state state_[lanes];
    std::uint64_t sink_[lanes] = {};
    std::vector<pending_copy> open_copies_[lanes];
    std::vector<std::vector<pending_copy>> copies_[lanes];
    knowledge known_;
    warpgroup_sums sums_;
};

}  // namespace halftone::ptx
