// SPDX-License-Identifier: MIT
/// \file
/// Detects whether other processes compete for a thread's processor, from how long the thread was runnable but did not
/// run.
///
///     preemption_watch watch;                          // one for each thread
///     watch.exclude(now - fell_asleep);              // time that it slept voluntarily
///     if (watch.was_preempted(now)) preempted.note(now);        // from time to time
///     const int looks = preempted.is_recent(now) ? few : many;
///
/// On an idle machine a thread loses about a thousandth of its time to the system; while another process keeps its
/// processor busy, half of its time. If the system has no CPU-time clock for single threads, preemption is never reported.
#pragma once

#include <atomic>
#include <chrono>

#include <halftone/config.hpp>

#if !defined(_WIN32)
#include <time.h>
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class preemption_watch {
  public:
    using clock = std::chrono::steady_clock;

    void exclude(clock::duration asleep) { begin_ += asleep; }

    /// Whether this thread has run for less than 7/8 of the time since the last measurement. Measures again only after
    /// 2 ms, since the system call takes up to a microsecond; false in between.
    bool was_preempted(clock::time_point now);
    /// Starts a new measurement.
    void restart(clock::time_point now) { begin_ = now, ran_ = time_of_this_thread(); }

  private:
    static std::chrono::nanoseconds time_of_this_thread();

    clock::time_point begin_{};
    std::chrono::nanoseconds ran_{};
};

/// The time when any thread last reported preemption.
class recent_event {
  public:
    using clock = std::chrono::steady_clock;

    void note(clock::time_point now) { time_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
    /// Whether that was within the last 50 ms.
    bool is_recent(clock::time_point now) const {
        return now.time_since_epoch() - clock::duration(time_.load(std::memory_order_relaxed)) <
               std::chrono::milliseconds(50);
    }

  private:
    std::atomic<clock::rep> time_{clock::rep{-1} << 61};
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/preemption.body.hpp>
#endif
