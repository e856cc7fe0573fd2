// SPDX-License-Identifier: MIT
/// \file
/// Whether others want the processor that a thread runs on: how much of the time it has been kept from running.
///
///     preemption_watch watch;                          // one a thread
///     watch.leave_out(now - fell_asleep);              // what it slept of its own accord
///     if (watch.look(now)) preempted.note(now);        // now and then
///     const int looks = preempted.is_recent(now) ? few : many;
///
/// On a machine of its own a thread loses a thousandth of its time to the system; beside a busy process, half. Where no
/// clock of a thread's own tells, nothing is ever seen.
#pragma once

#include <atomic>
#include <chrono>

#include <halftone/config.hpp>

#if !defined(_WIN32)
#include <time.h>
#endif

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class preemption_watch {
  public:
    using clock = std::chrono::steady_clock;

    void leave_out(clock::duration asleep) { begin_ += asleep; }

    /// True where this thread has run for less than 7/8 of the time since the last look that gave an answer. That is
    /// 2 ms ago at least, as to ask the system takes up to a microsecond.
    bool look(clock::time_point now) {
        const clock::duration passed = now - begin_;
        if (passed < std::chrono::milliseconds(2)) return false;
        const std::chrono::nanoseconds ran = time_of_this_thread(), lost = passed - (ran - ran_);
        begin_ = now, ran_ = ran;
        return lost > passed / 8;
    }
    /// Begins anew.
    void restart(clock::time_point now) { begin_ = now, ran_ = time_of_this_thread(); }

  private:
    static std::chrono::nanoseconds time_of_this_thread() {
#if defined(CLOCK_THREAD_CPUTIME_ID)
        timespec t{};
        if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
            return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
#endif
        return clock::now().time_since_epoch();
    }

    clock::time_point begin_{};
    std::chrono::nanoseconds ran_{};
};

/// When some thread last noticed something.
class recent_event {
  public:
    using clock = std::chrono::steady_clock;

    void note(clock::time_point now) { time_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
    /// Whether that was in the last 50 ms.
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
