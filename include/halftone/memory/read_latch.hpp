// SPDX-License-Identifier: MIT
/// \file
/// Lets a thread copy slabs of parameters and moments while the program runs on: those who change them wait first.
///
///     latch.begin();                                       // the program's thread, between steps
///     std::thread copier([&] { copy(slabs); latch.end(); });
///     ... forward and backward passes, which only read ...
///     latch.wait();                                        // the optimizer, before it changes anything
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Counts those who read. Waiting costs one load if there is none.
class read_latch {
  public:
    read_latch() = default;
    read_latch(const read_latch&) = delete;
    read_latch& operator=(const read_latch&) = delete;
    /// Waits until end() has returned in other threads: wait() may have seen its count before.
    ~read_latch() { const std::lock_guard<std::mutex> lock(mutex_); }

    void begin() { readers_.fetch_add(1, std::memory_order_relaxed); }
    void end();
    void wait() const;

  private:
    std::atomic<int> readers_{0};
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/read_latch.body.hpp>
#endif
