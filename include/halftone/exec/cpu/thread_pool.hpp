// SPDX-License-Identifier: MIT
/// \file
/// halftone's own threads: the executor that a context makes when it is given none.
///
///     ht::thread_pool pool{4};                         // the thread that calls run(), and three helping threads
///     ht::cpu device{{.threads = 4}};                  // makes one
///
/// The many short regions of a training step need threads that start at once; a shared machine needs threads that do
/// not take time from other processes while they wait. So a waiting thread polls for a while and then sleeps; it polls
/// for a shorter while if other processes recently competed for its processor (preemption.hpp). Woken threads ask the
/// scheduler for a short time slice (time_slice.hpp), so that caller and helpers run at the same time even if each has
/// half a processor.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/exec/cpu/executor.hpp>
#include <halftone/exec/cpu/preemption.hpp>
#include <halftone/exec/cpu/processors.hpp>
#include <halftone/exec/cpu/time_slice.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A fixed number of threads, the caller included. It supports one run at a time, and so belongs to one context.
///
/// If the process's affinity allows fewer processors than there are threads, the surplus helpers stay idle. A child of
/// fork() has none of the helpers and starts its own at the first run. A run by another thread at the moment of the
/// fork is lost to the child.
class thread_pool final : public executor {
  public:
    /// Throws argument_error if the system starts fewer threads.
    explicit thread_pool(int threads);
    ~thread_pool() override;

    int concurrency() const override { return threads_; }

    void run(task function, void* argument) override;

  private:
    using clock = std::chrono::steady_clock;
    // How often a thread polls before it sleeps: for 0.2 to 1 ms, and a tenth or a third of that if other processes
    // compete for its processor. Chosen by measurements with other busy processes, with 2 threads on 2 cores of a Zen 3.
    static constexpr int long_spins = 20000, short_spins = 2000, short_spins_for_begun = 6000;

    /// A thread of the pool: where it last ran, and its preemption. Entry 0 is the caller, which only has the latter.
    /// It holds no std::thread, because in a child of fork() a destructor could neither join nor detach it.
    struct alignas(64) helper {
        helper() {}
        ~helper() {}
        helper(const helper&) = delete;
        helper& operator=(const helper&) = delete;

        void note_core() { core.store(detail::current_processor(), std::memory_order_relaxed); }

        union {
            std::thread thread;
        };
        std::atomic<int> core{-1};
        std::atomic<detail::thread_id> id{};
        detail::preemption_watch watch;
    };

    /// Whether no other process recently competed for the helpers' processors.
    bool is_alone(clock::time_point now) const { return !preempted_.is_recent(now); }

    /// Starts the helpers; afterwards started_ is the number of threads.
    void start();

    void dismiss();

    /// From time to time checks whether this is another process (after fork), and how many processors its threads may
    /// use.
    void update_processors(clock::time_point now);

    /// A scheduler may wake a thread on the core of the thread that woke it, and leave both there while another core is
    /// idle; regions end long before the scheduler rebalances. So a helper on a core where a thread of a lower number
    /// last ran moves to an allowed core where none of them ran. It is not bound to that core.
    void spread_over_cores(int worker);

    /// Waits for a region other than number `last`; returns its number.
    std::uint32_t wait(helper& own, std::uint32_t last);

    void help_until_stopped(int worker, std::uint32_t last);

    const int threads_;
    std::unique_ptr<helper[]> helpers_;  ///< threads_ entries; the first is the caller's
    int started_ = 1, process_ = 0;
    clock::time_point next_update_{};
    task function_ = nullptr;
    void* argument_ = nullptr;
    region_gate gate_;
    std::atomic<int> active_;  ///< number of threads that have a processor
    std::atomic<bool> stopping_{false};
    detail::recent_event preempted_;  ///< of any helper
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/thread_pool.body.hpp>
#endif
