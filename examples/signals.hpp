// SPDX-License-Identifier: MIT
/// \file
/// How the programs here notice Ctrl-C and SIGTERM: what they do ends at the next boundary, and a second signal ends them at once.
#pragma once

#include <atomic>
#include <csignal>

inline std::atomic<int> received_signal = 0;  // Windows calls the handler on another thread
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" inline void note_signal(int signal) {
    received_signal = signal;
    std::signal(signal, SIG_DFL);
}

inline void note_signals() {
    std::signal(SIGINT, note_signal);
    std::signal(SIGTERM, note_signal);
#if defined(SIGBREAK)
    std::signal(SIGBREAK, note_signal);  // Ctrl-Break on Windows, whose programs get no SIGTERM from others
#endif
}

/// Signals end the program at once again. Returns the one that was noticed, or 0.
inline int forget_signals() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
#if defined(SIGBREAK)
    std::signal(SIGBREAK, SIG_DFL);
#endif
    return received_signal.exchange(0);
}
