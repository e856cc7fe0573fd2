// SPDX-License-Identifier: MIT
/// \file
/// Lets threads into a parallel region while it is open, and tells when those that came in have left.
///
///     // whoever opens the region                      // a thread that may help
///     gate.open();
///     function(argument, 0);                           if (gate.enter()) {
///     gate.close();  // from here on nobody enters         function(argument, worker);
///                    // and nobody is inside               gate.leave();
///                                                      }
///
/// What is queued for a thread that may come after close() must not refer to the region but through a gate that lives
/// longer: in a std::shared_ptr, say (tests/exec/cpu/late_executor.cpp is an executor made so).
#pragma once

#include <atomic>
#include <cstdint>

#include <halftone/config.hpp>
#include <halftone/exec/cpu/sleeping_place.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// A door that parallel regions open and close, one after the other, and that helping threads pass by enter() and
/// leave().
class region_gate {
  public:
    /// How often close() looks before it sleeps. A look takes 10 to 50 ns.
    static constexpr int default_spins = 1000;

    /// Begins a region. One thread opens and closes; nobody may be inside.
    void open() {
        // The number of regions stands above the bits for "open" and for those inside.
        state_.store(((state_.load(std::memory_order_relaxed) >> round_shift) + 1) << round_shift | is_open,
                     std::memory_order_seq_cst);
        for_regions_.wake(state_);
    }

    /// True where a region is open, which then waits for this thread's leave().
    bool enter() {
        std::uint32_t seen = state_.load(std::memory_order_relaxed);
        while ((seen & is_open) != 0) {
            if (state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire, std::memory_order_relaxed))
                return true;
        }
        return false;
    }

    /// For a thread that enter() let in: its part is done.
    void leave() {
        const std::uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
        if ((before & is_open) == 0 && (before & inside) == 1) {
            left_.fetch_add(1, std::memory_order_seq_cst);
            for_leave_.wake(left_);
        }
    }

    /// Ends the region: nobody enters any more. Returns when all who entered have left.
    void close() {
        if (!try_close(default_spins)) wait_until_empty();
    }
    /// The same in two parts: true where all have left before this thread has looked so often.
    bool try_close(int spins) {
        if ((state_.fetch_and(~is_open, std::memory_order_acq_rel) & inside) == 0) return true;
        for (int i = 0; i < spins; ++i) {
            if (is_empty()) return true;
            pause();
        }
        return false;
    }
    /// Sleeps until all have left a region that nobody can enter any more.
    void wait_until_empty() const {
        for (;;) {
            // In this order: whoever leaves after the look below changes what the wait compares with.
            const std::uint32_t before = left_.load(std::memory_order_acquire);
            if (is_empty()) return;
            for_leave_.sleep_while(left_, before);
        }
    }

    /// In a child of fork(), whose only thread is not inside: whoever was is not there.
    void forget_all() {
        state_.store(state_.load(std::memory_order_relaxed) >> round_shift << round_shift, std::memory_order_relaxed);
    }

    /// The number of the region that is open or was open last, modulo 65,536.
    std::uint32_t region() const { return state_.load(std::memory_order_acquire) >> round_shift; }
    /// Looks so often for another region than `last`, the number of the one that is open or was open latest; true where
    /// there is one, whose number `last` is then.
    bool spin_for_another(std::uint32_t& last, int spins) const {
        for (int i = 0; i < spins; ++i) {
            if (const std::uint32_t now = region(); now != last) {
                last = now;
                return true;
            }
            pause();
        }
        return false;
    }
    /// Sleeps until another region than `last` has been opened; gives its number.
    std::uint32_t wait_for_another(std::uint32_t last) const {
        for (;;) {
            const std::uint32_t state = state_.load(std::memory_order_acquire);
            if (state >> round_shift != last) return state >> round_shift;
            for_regions_.sleep_while(state_, state);
        }
    }

    /// Tells the processor that this thread is only looking.
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }

  private:
    static constexpr std::uint32_t round_shift = 16, is_open = 1u << 15, inside = is_open - 1;

    bool is_empty() const { return (state_.load(std::memory_order_acquire) & inside) == 0; }

    alignas(64) std::atomic<std::uint32_t> state_{0};
    alignas(64) std::atomic<std::uint32_t> left_{0};  ///< by those who were the last to leave a closed region
    detail::sleeping_place for_regions_, for_leave_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
