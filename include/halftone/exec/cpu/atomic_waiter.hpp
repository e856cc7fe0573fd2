// SPDX-License-Identifier: MIT
/// \file
/// Sleep until a word in memory changes: std::atomic's wait and notify, or a replacement where these lose wake-ups.
///
///     detail::atomic_waiter waiter;
///     waiter.wait_while(word, seen);                   // returns once `word` is not `seen` any more
///     word.store(other, std::memory_order_seq_cst);    // elsewhere
///     waiter.wake(word);
///
/// libstdc++ without futexes (mingw-w64, GCC 12) compares the word first and locks its mutex afterwards: a change and
/// notification in between are missed, and the thread sleeps forever. On such systems a mutex and a condition variable
/// are used.
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

/// Where threads sleep until a word changes. After every change of the word wake() must be called.
class atomic_waiter {
  public:
    using word = std::atomic<std::uint32_t>;

#if defined(HALFTONE_WAITS_BY_MUTEX)
    /// Returns when `w` is no longer `seen`; everything before the change is visible then.
    void wait_while(const word& w, std::uint32_t seen) const {
        std::unique_lock<std::mutex> lock(mutex_);
        while (w.load(std::memory_order_acquire) == seen) changed_.wait(lock);
    }
    /// Wakes all sleeping threads; to be called after a sequentially consistent change of `w`.
    void wake(word&) const {
        // A thread that has already compared is waiting once this thread has locked the mutex.
        { const std::lock_guard<std::mutex> lock(mutex_); }
        changed_.notify_all();
    }

  private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
#else
    /// Returns when `w` is no longer `seen`; everything before the change is visible then.
    void wait_while(const word& w, std::uint32_t seen) const { w.wait(seen, std::memory_order_acquire); }
    /// Wakes all sleeping threads; to be called after a sequentially consistent change of `w`. libstdc++ first checks
    /// whether any thread waits; a weaker store could become visible only after that check, and a thread about to sleep
    /// would miss it.
    void wake(word& w) const { w.notify_all(); }
#endif
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_WAITS_BY_MUTEX
