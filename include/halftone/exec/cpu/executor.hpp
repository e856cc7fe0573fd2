// SPDX-License-Identifier: MIT
/// \file
/// Who runs the parallel parts: halftone's own small thread pool, or an executor that the user's program already has.
///
///     struct my_executor : ht::executor { ... };       // forwards to TBB, OpenMP, a game's job system
///     ht::cpu device{{.executor = &mine}};
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <halftone/error.hpp>

namespace halftone::inline HALFTONE_ABI {

/// Runs a function on several threads at once.
class executor {
  public:
    using task = void (*)(void* argument, int worker) noexcept;

    executor() = default;
    executor(const executor&) = delete;
    executor& operator=(const executor&) = delete;
    virtual ~executor() = default;

    /// How many workers `run` starts.
    virtual int concurrency() const = 0;
    /// Calls function(argument, worker) once for every worker in [0, concurrency()), concurrently where it can, and
    /// returns when all have returned. Effects before the call are visible to the tasks, theirs to the caller. Contexts
    /// that share an executor call it from the threads that use them, perhaps at once.
    virtual void run(task function, void* argument) = 0;
};

/// A fixed number of threads, the caller among them. Idle threads spin for some microseconds, then sleep, so that the
/// many short regions of a training step start at once and an idle program costs nothing. It bears one run at a time,
/// and so belongs to one context.
class thread_pool final : public executor {
  public:
    /// Throws argument_error where the system starts fewer.
    explicit thread_pool(int threads) : threads_(threads < 1 ? 1 : threads) {
        helpers_.reserve(static_cast<std::size_t>(threads_ - 1));
        try {
            for (int worker = 1; worker < threads_; ++worker) {
                helpers_.emplace_back([this, worker] { serve(worker); });
            }
        } catch (const std::exception&) {  // system_error, or bad_alloc
            dismiss();
            fail<argument_error>("cpu: ", threads_, " threads; this process can start no more than ",
                                 1 + helpers_.size());
        }
    }
    ~thread_pool() override { dismiss(); }

    int concurrency() const override { return threads_; }

    void run(task function, void* argument) override {
        if (threads_ == 1) return function(argument, 0);
        function_ = function;
        argument_ = argument;
        unfinished_.store(threads_ - 1, std::memory_order_relaxed);
        announce();
        function(argument, 0);
        for (int spin = 0; unfinished_.load(std::memory_order_acquire) != 0; ++spin) rest(spin);
    }

  private:
    static constexpr int spins_before_sleep = 4000;

    static void rest(int spin) {
        if (spin < spins_before_sleep) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        } else {
            std::this_thread::yield();
        }
    }

    void dismiss() {
        function_ = nullptr;
        announce();
        for (std::thread& helper : helpers_) helper.join();
    }

    void announce() {
        {
            // The lock orders this with a helper that is about to sleep: it sees either the new round or the wake-up.
            const std::lock_guard lock(mutex_);
            round_.fetch_add(1, std::memory_order_release);
        }
        wake_.notify_all();
    }

    void serve(int worker) {
        for (unsigned seen = 0;;) {
            for (int spin = 0; round_.load(std::memory_order_acquire) == seen; ++spin) {
                if (spin < spins_before_sleep) {
                    rest(spin);
                    continue;
                }
                std::unique_lock lock(mutex_);
                wake_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != seen; });
            }
            ++seen;
            if (function_ == nullptr) return;
            function_(argument_, worker);
            unfinished_.fetch_sub(1, std::memory_order_release);
        }
    }

    int threads_;
    task function_ = nullptr;
    void* argument_ = nullptr;
    alignas(64) std::atomic<unsigned> round_{0};
    alignas(64) std::atomic<int> unfinished_{0};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> helpers_;
};

}  // namespace halftone::inline HALFTONE_ABI
