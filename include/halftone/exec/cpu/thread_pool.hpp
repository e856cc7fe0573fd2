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

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

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
    ~thread_pool() override {
        if (detail::process_id() == process_) dismiss();
    }

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

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline thread_pool::thread_pool(int threads)
    : threads_(threads < 1 ? 1 : threads),
      helpers_(std::make_unique<helper[]>(static_cast<std::size_t>(threads_))),
      active_(threads_) {
    start();
    if (started_ < threads_) {
        const int most = started_;
        dismiss();
        fail<argument_error>("cpu: ", threads_, " threads; this process can start no more than ", most);
    }
    update_processors(clock::now());
}

inline void thread_pool::run(task function, void* argument) {
    if (threads_ == 1) return function(argument, 0);
    const clock::time_point begin = clock::now();
    if (begin >= next_update_) update_processors(begin);
    if (active_.load(std::memory_order_relaxed) == 1) return function(argument, 0);
    function_ = function;
    argument_ = argument;
    helpers_[0].note_core();
    gate_.open();
    function(argument, 0);
    if (gate_.try_close(is_alone(begin) ? long_spins : short_spins_for_begun)) return;
    // Threads still inside have been suspended or work on a long item.
    const detail::short_time_slice wakes_at_once;
    gate_.wait_until_empty();
}

inline void thread_pool::start() {
    process_ = detail::process_id();
    helpers_[0].id.store(detail::current_thread(), std::memory_order_relaxed);
    for (started_ = 1; started_ < threads_; ++started_) {
        try {
            new (&helpers_[started_].thread)
                std::thread([this, worker = started_, last = gate_.region()] { help_until_stopped(worker, last); });
        } catch (const std::exception&) {  // system_error, or bad_alloc
            return;
        }
    }
}

inline void thread_pool::dismiss() {
    function_ = [](void*, int) noexcept {};  // for threads that were about to enter the last region
    stopping_.store(true, std::memory_order_relaxed);
    gate_.open();
    gate_.close();
    for (int worker = 1; worker < started_; ++worker) {
        helpers_[worker].thread.join();
        helpers_[worker].thread.~thread();
    }
}

inline void thread_pool::update_processors(clock::time_point now) {
    next_update_ = now + std::chrono::milliseconds(100);
    if (detail::process_id() != process_) {
        gate_.forget_all();
        start();
    }
    helpers_[0].id.store(detail::current_thread(), std::memory_order_relaxed);
    detail::processor_set usable;
    for (int worker = 0; worker < started_; ++worker)
        usable.add_processors_of(helpers_[worker].id.load(std::memory_order_relaxed));
    const int count = usable.count();
    active_.store(count == 0 || count > started_ ? started_ : count, std::memory_order_relaxed);
}

inline void thread_pool::spread_over_cores(int worker) {
    helper& own = helpers_[worker];
    own.note_core();
    bool is_shared = false;
    const int core = own.core.load(std::memory_order_relaxed);
    for (int other = 0; other < worker; ++other)
        is_shared = is_shared || helpers_[other].core.load(std::memory_order_relaxed) == core;
    if (!is_shared || core < 0) return;
    detail::processor_set free = detail::processor_set::of_this_thread();
    for (int other = 0; other < started_; ++other) free.remove(helpers_[other].core.load(std::memory_order_relaxed));
    if (free.move_there()) own.note_core();
}

inline std::uint32_t thread_pool::wait(helper& own, std::uint32_t last) {
    const clock::time_point begin = clock::now();
    if (own.watch.was_preempted(begin)) preempted_.note(begin);
    if (!gate_.spin_for_another(last, is_alone(begin) ? long_spins : short_spins)) {
        const clock::time_point fell_asleep = clock::now();
        last = gate_.wait_for_another(last);
        own.watch.exclude(clock::now() - fell_asleep);
    }
    return last;
}

inline void thread_pool::help_until_stopped(int worker, std::uint32_t last) {
    helper& own = helpers_[worker];
    own.id.store(detail::current_thread(), std::memory_order_relaxed);
    own.watch.restart(clock::now());
    detail::short_time_slice::request();
    // A worker that enters the last region, which dismiss() opens, without having waited for it must not wait for
    // another.
    while (!stopping_.load(std::memory_order_relaxed)) {
        last = wait(own, last);
        if (stopping_.load(std::memory_order_relaxed)) return;
        if (worker >= active_.load(std::memory_order_relaxed)) {
            own.core.store(-1, std::memory_order_relaxed);
            continue;
        }
        spread_over_cores(worker);
        if (!gate_.enter()) continue;
        last = gate_.region();
        function_(argument_, worker);
        gate_.leave();
    }
}

#endif

}  // namespace HALFTONE_ABI
}  // namespace halftone
