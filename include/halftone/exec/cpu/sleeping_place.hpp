// SPDX-License-Identifier: MIT
/// \file
/// Sleep until a word in memory changes: std::atomic's wait and notify, and what takes their place where they lose wake-ups.
///
///     detail::sleeping_place place;
///     place.sleep_while(word, seen);                   // returns once `word` is not `seen` any more
///     word.store(other, std::memory_order_seq_cst);    // elsewhere
///     place.wake(word);
///
/// libstdc++ without futexes (mingw-w64, GCC 12) compares the word, then locks its mutex and sleeps: a change and its
/// notification in between are missed, and the sleeper stays for ever. There a mutex and a condition variable do it.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__GLIBCXX__) && !defined(_GLIBCXX_HAVE_PLATFORM_WAIT)
#define HALFTONE_WAITS_BY_MUTEX
#include <condition_variable>
#include <mutex>
#endif

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Where threads sleep that wait for one word, whose changes all are told by wake().
class sleeping_place {
  public:
    using word = std::atomic<std::uint32_t>;

#if defined(HALFTONE_WAITS_BY_MUTEX)
    /// Returns once `w` is not `seen` any more. Everything before the change has happened then.
    void sleep_while(const word& w, std::uint32_t seen) const {
        std::unique_lock<std::mutex> lock(mutex_);
        while (w.load(std::memory_order_acquire) == seen) changed_.wait(lock);
    }
    /// After a change of `w`, which is to be sequentially consistent: wakes all who sleep here.
    void wake(word&) const {
        // Who has compared already is asleep once this thread has the mutex.
        { const std::lock_guard<std::mutex> lock(mutex_); }
        changed_.notify_all();
    }

  private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
#else
    /// Returns once `w` is not `seen` any more. Everything before the change has happened then.
    void sleep_while(const word& w, std::uint32_t seen) const { w.wait(seen, std::memory_order_acquire); }
    /// After a change of `w`, which is to be sequentially consistent: wakes all who sleep here. libstdc++ looks first whether
    /// anybody waits, and a weaker store could be seen later than that look, and so be missed by who is about to sleep.
    void wake(word& w) const { w.notify_all(); }
#endif
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_WAITS_BY_MUTEX
