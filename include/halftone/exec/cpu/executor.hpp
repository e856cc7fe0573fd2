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

#if defined(__linux__)
#include <sched.h>
#endif

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

/// A fixed number of threads, the caller among them. Idle threads spin for a fraction of a millisecond, then sleep, so
/// that the many short regions of a training step start at once and an idle program costs nothing. It bears one run at a
/// time, and so belongs to one context.
///
/// A scheduler may wake a thread on the core of the one that woke it, and leave both there while another core idles;
/// regions end long before it balances them. So a thread that finds itself on the core of another moves to a free one
/// of those that it may use. It is bound to none.
class thread_pool final : public executor {
  public:
    /// Throws argument_error where the system starts fewer.
    explicit thread_pool(int threads) : threads_(threads < 1 ? 1 : threads), cores_(static_cast<std::size_t>(threads_)) {
        for (std::atomic<int>& core : cores_) core.store(-1, std::memory_order_relaxed);
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
        note_core(0);
        unfinished_.store(threads_ - 1, std::memory_order_relaxed);
        announce();
        function(argument, 0);
        for (int spin = 0; unfinished_.load(std::memory_order_acquire) != 0; ++spin) rest(spin);
    }

  private:
    static constexpr int spins_before_sleep = 20000;

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

    /// Says on which core this thread is. True where a thread of a lower number was seen there last.
    bool note_core(int worker) {
#if defined(__linux__)
        const int core = sched_getcpu();
        cores_[static_cast<std::size_t>(worker)].store(core, std::memory_order_relaxed);
        for (int other = 0; other < worker; ++other) {
            if (cores_[static_cast<std::size_t>(other)].load(std::memory_order_relaxed) == core) return true;
        }
#else
        static_cast<void>(worker);
#endif
        return false;
    }

    void keep_apart(int worker) {
        if (!note_core(worker)) return;
#if defined(__linux__)
        cpu_set_t usable, free;
        if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
        free = usable;
        for (int other = 0; other < threads_; ++other) {
            const int core = cores_[static_cast<std::size_t>(other)].load(std::memory_order_relaxed);
            if (core >= 0) CPU_CLR(static_cast<std::size_t>(core), &free);
        }
        if (CPU_COUNT(&free) == 0) return;
        // The first call moves this thread, the second lets it go where it may again.
        sched_setaffinity(0, sizeof free, &free);
        sched_setaffinity(0, sizeof usable, &usable);
        note_core(worker);
#endif
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
            keep_apart(worker);
            function_(argument_, worker);
            unfinished_.fetch_sub(1, std::memory_order_release);
        }
    }

    int threads_;
    std::vector<std::atomic<int>> cores_;  ///< where each thread was last seen
    task function_ = nullptr;
    void* argument_ = nullptr;
    alignas(64) std::atomic<unsigned> round_{0};
    alignas(64) std::atomic<int> unfinished_{0};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> helpers_;
};

}  // namespace halftone::inline HALFTONE_ABI
