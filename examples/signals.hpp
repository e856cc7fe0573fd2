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

inline void handle_signals(void (*handler)(int)) {
    std::signal(SIGINT, handler);
    std::signal(SIGTERM, handler);
#if defined(SIGBREAK)
    std::signal(SIGBREAK, handler);  // Ctrl-Break on Windows, whose programs get no SIGTERM from others
#endif
}
inline void note_signals() { handle_signals(note_signal); }

/// Signals end the program at once again. Returns the one that was noticed, or 0.
inline int forget_signals() {
    handle_signals(SIG_DFL);
    return received_signal.exchange(0);
}
