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
    std::uint32_t seed = 0;  ///< seed of the order of blocks, and of warps between two barriers; 0: ascending order
};

struct range {
    std::uint64_t begin = 0, end = 0;
};
/// The kernels' memory that contains an address; it is not freed before the kernel ends. Empty if the address is not in it.
using reach = std::function<range(std::uint64_t address)>;

void run(module& m, const function& kernel, const launch& how, const reach& may_touch);

struct pending_copy {
    std::uint64_t to, from;
    unsigned bytes, valid;
};

/// The state that a block's threads share.
struct block_state {
    module& code;
    const launch& how;
    const reach& may_touch;
    shared_memory& shared;
    shape at{};
    std::uint64_t steps = 0;
    range last{};  // the memory accessed last by the kernel
    asynchronous pending{};
};

/// A function that a warp is executing.
struct frame {
    const function* f = nullptr;
    std::vector<std::uint64_t> registers;
    std::vector<std::byte> parameters, local;  // lane by lane
};

/// The conversions between a T and the contents of a register.
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

    /// Runs until all lanes have finished, are at a barrier, or have to wait for an mbarrier.
    void advance();
    bool is_over() const;
    bool waits() const;
    void pass_barrier();
    /// The barrier at which lanes wait, the same for all lanes of this warp; nullptr if none waits.
    const instruction* barrier() const;
    /// Reduces the operands of `bar.red`, and returns the result.
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
    /// The host memory of an access of this number of bytes.
    std::byte* memory(const instruction& i, space s, std::uint64_t address, std::uint64_t bytes, int lane, access how);
    /// `bar.warp.sync`: orders later memory accesses of its lanes after earlier ones.
    void order_memory() { ++order_; }
    std::uint64_t generic(space s, std::uint64_t address, int lane);
    std::uint64_t from_generic(space s, std::uint64_t address, int lane);

    void copy_later(int lane, const pending_copy& c) { open_copies_[lane].push_back(c); }
    void close_copies(int lane) { copies_[lane].push_back(std::move(open_copies_[lane])), open_copies_[lane].clear(); }
    void wait_for_copies(const instruction& i, int lane, std::size_t groups_left);

    block_state& block() { return block_; }
    int first_thread() const { return first_thread_; }
    /// The phases of mbarriers that are known to be complete.
    knowledge& known() { return known_; }
    warpgroup_sums& sums() { return sums_; }
    /// Writes the sums of all products to registers, except those of the last groups.
    void end_products(std::uint64_t groups_left);
    /// The reason why it cannot continue, for error messages.
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
