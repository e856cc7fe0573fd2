// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in region_gate.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/region_gate.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE void region_gate::open() {
    // The region's number is in the upper bits; below are the "open" bit and the count of threads inside.
    state_.store(((state_.load(std::memory_order_relaxed) >> round_shift) + 1) << round_shift | is_open,
                 std::memory_order_seq_cst);
    for_regions_.wake(state_);
}

HALFTONE_OUT_OF_LINE bool region_gate::enter() {
    std::uint32_t seen = state_.load(std::memory_order_relaxed);
    while ((seen & is_open) != 0) {
        if (state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire, std::memory_order_relaxed))
            return true;
    }
    return false;
}

HALFTONE_OUT_OF_LINE void region_gate::leave() {
    const std::uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & is_open) == 0 && (before & inside) == 1) {
        left_.fetch_add(1, std::memory_order_seq_cst);
        for_leave_.wake(left_);
    }
}

HALFTONE_OUT_OF_LINE bool region_gate::try_close(int spins) {
    if ((state_.fetch_and(~is_open, std::memory_order_acq_rel) & inside) == 0) return true;
    for (int i = 0; i < spins; ++i) {
        if (is_empty()) return true;
        pause();
    }
    return false;
}

HALFTONE_OUT_OF_LINE void region_gate::wait_until_empty() const {
    for (;;) {
        // The order matters: a thread that leaves after the load of state_ below changes left_, with which wait
        // compares.
        const std::uint32_t before = left_.load(std::memory_order_acquire);
        if (is_empty()) return;
        for_leave_.wait_while(left_, before);
    }
}

HALFTONE_OUT_OF_LINE bool region_gate::spin_for_another(std::uint32_t& last, int spins) const {
    for (int i = 0; i < spins; ++i) {
        if (const std::uint32_t now = region(); now != last) {
            last = now;
            return true;
        }
        pause();
    }
    return false;
}

HALFTONE_OUT_OF_LINE std::uint32_t region_gate::wait_for_another(std::uint32_t last) const {
    for (;;) {
        const std::uint32_t state = state_.load(std::memory_order_acquire);
        if (state >> round_shift != last) return state >> round_shift;
        for_regions_.wait_while(state_, state);
    }
}

HALFTONE_OUT_OF_LINE void region_gate::pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
