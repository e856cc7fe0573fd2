// SPDX-License-Identifier: MIT
/// \file
/// Admits helping threads to a parallel region while it is open, and waits for those inside when it closes.
///
///     // the thread that runs the region               // a helping thread
///     gate.open();
///     function(argument, 0);                           if (gate.enter()) {
///     gate.close();  // no thread enters from here on     function(argument, worker);
///                    // and no thread is inside            gate.leave();
///                                                      }
///
/// A task that may start after close() must not refer to the region except through a gate that outlives it: one in a
/// std::shared_ptr, say (tests/exec/cpu/late_executor.cpp is such an executor).
#pragma once

#include <atomic>
#include <cstdint>

#include <halftone/config.hpp>
#include <halftone/exec/cpu/atomic_waiter.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Opened and closed by parallel regions, one after the other; helping threads call enter() and leave().
class region_gate {
  public:
    /// How often close() polls before it sleeps. A poll takes 10 to 50 ns.
    static constexpr int default_spins = 1000;

    /// Begins a region. Only one thread may open and close; no thread may be inside.
    void open();

    /// True if a region is open, which then waits for this thread's leave().
    bool enter();

    /// Ends the part of a thread that enter() admitted.
    void leave();

    /// Ends the region: no thread enters any more. Returns when all that entered have left.
    void close() {
        if (!try_close(default_spins)) wait_until_empty();
    }
    /// The first half of close(): polls `spins` times; true if all threads have left by then.
    bool try_close(int spins);
    /// The second half of close(): sleeps until all threads have left.
    void wait_until_empty() const;

    /// For a child of fork(): the threads that were inside do not exist in it. Its only thread must not be inside.
    void forget_all() {
        state_.store(state_.load(std::memory_order_relaxed) >> round_shift << round_shift, std::memory_order_relaxed);
    }

    /// The number of the region that is open or was open last, modulo 65,536.
    std::uint32_t region() const { return state_.load(std::memory_order_acquire) >> round_shift; }
    /// Polls `spins` times for a region other than number `last`; true if there is one, whose number is then stored in
    /// `last`.
    bool spin_for_another(std::uint32_t& last, int spins) const;
    /// Sleeps until a region other than number `last` is opened; returns its number.
    std::uint32_t wait_for_another(std::uint32_t last) const;

    /// Tells the processor that this thread is in a polling loop.
    static void pause();

  private:
    static constexpr std::uint32_t round_shift = 16, is_open = 1u << 15, inside = is_open - 1;

    bool is_empty() const { return (state_.load(std::memory_order_acquire) & inside) == 0; }

    alignas(64) std::atomic<std::uint32_t> state_{0};
    alignas(64) std::atomic<std::uint32_t> left_{0};  ///< incremented by each thread that leaves a closed region last
    detail::atomic_waiter for_regions_, for_leave_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/region_gate.body.hpp>
#endif
