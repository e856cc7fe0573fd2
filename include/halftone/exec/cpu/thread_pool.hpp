// SPDX-License-Identifier: MIT
/// \file
/// halftone's own threads: the executor that a context makes when it is given none.
///
///     ht::thread_pool pool{4};                         // the thread that calls run() and three helpers
///     ht::cpu device{{.threads = 4}};                  // makes one
///
/// The many short regions of a training step want threads that start at once, and a machine that others share wants
/// threads that take no time from anybody while they wait. So a thread that waits looks for a while, then sleeps: a
/// short while where others have lately wanted its processor (preemption.hpp). Threads that wake ask for a short turn
/// at once (time_slice.hpp), so that caller and helpers run at the same time, where each has half of a processor.
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
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// A fixed number of threads, the caller among them. It bears one run at a time, and so belongs to one context.
///
/// Threads go where the process may run: where its affinity leaves fewer processors than there are threads, as many
/// helpers rest. A child of fork() has none of the helpers; it starts its own at the first run. What another thread was
/// running at the moment of the fork is lost to the child.
class thread_pool final : public executor {
  public:
    /// Throws argument_error where the system starts fewer.
    explicit thread_pool(int threads)
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
    ~thread_pool() override {
        if (detail::process_id() == process_) dismiss();
    }

    int concurrency() const override { return threads_; }

    void run(task function, void* argument) override {
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
        // Whoever is still inside has been put aside, or has begun something long.
        const detail::short_time_slice wakes_at_once;
        gate_.wait_until_empty();
    }

  private:
    using clock = std::chrono::steady_clock;
    // How often a thread looks before it sleeps: 0.2 to 1 ms, and a tenth or a third of that where others want its
    // processor. Measured beside busy processes, 2 threads on 2 cores of a Zen 3.
    static constexpr int long_spins = 20000, short_spins = 2000, short_spins_for_begun = 6000;

    /// A thread of the pool, where it was seen last and what it has been through; of worker 0 the latter alone. Its
    /// thread is no std::thread to the destructor: in a child of fork() it is not there to be joined, nor to be detached.
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

    /// Whether nobody else has lately wanted the processors of the helpers.
    bool is_alone(clock::time_point now) const { return !preempted_.is_recent(now); }

    /// Starts the helpers; started_ says how many threads there are then.
    void start() {
        process_ = detail::process_id();
        helpers_[0].id.store(detail::current_thread(), std::memory_order_relaxed);
        for (started_ = 1; started_ < threads_; ++started_) {
            try {
                new (&helpers_[started_].thread)
                    std::thread([this, worker = started_, last = gate_.region()] { serve(worker, last); });
            } catch (const std::exception&) {  // system_error, or bad_alloc
                return;
            }
        }
    }

    void dismiss() {
        function_ = [](void*, int) noexcept {};  // for who had been about to enter the last region
        quits_.store(true, std::memory_order_relaxed);
        gate_.open();
        gate_.close();
        for (int worker = 1; worker < started_; ++worker) {
            helpers_[worker].thread.join();
            helpers_[worker].thread.~thread();
        }
    }

    /// Every so often: whether this is another process by now, and how many processors its threads may use.
    void update_processors(clock::time_point now) {
        next_update_ = now + std::chrono::milliseconds(100);
        if (detail::process_id() != process_) {
            gate_.forget_all();
            start();
        }
        helpers_[0].id.store(detail::current_thread(), std::memory_order_relaxed);
        detail::processor_set usable;
        for (int worker = 0; worker < started_; ++worker)
            usable.add_those_of(helpers_[worker].id.load(std::memory_order_relaxed));
        const int count = usable.count();
        active_.store(count == 0 || count > started_ ? started_ : count, std::memory_order_relaxed);
    }

    /// A scheduler may wake a thread on the core of the one that woke it, and leave both there while another core
    /// idles; regions end long before it balances them. So a helper that finds itself where a thread of a lower number
    /// was seen last moves to a core that none of them is on, of those that it may use. It is bound to none.
    void spread_over_cores(int worker) {
        helper& own = helpers_[worker];
        own.note_core();
        bool is_shared = false;
        const int core = own.core.load(std::memory_order_relaxed);
        for (int other = 0; other < worker; ++other)
            is_shared = is_shared || helpers_[other].core.load(std::memory_order_relaxed) == core;
        if (!is_shared || core < 0) return;
        detail::processor_set free = detail::processor_set::of_this_thread();
        for (int other = 0; other < started_; ++other)
            free.remove(helpers_[other].core.load(std::memory_order_relaxed));
        if (free.move_there()) own.note_core();
    }

    /// Waits for another region than `last`, whose number it gives.
    std::uint32_t wait(helper& own, std::uint32_t last) {
        const clock::time_point begin = clock::now();
        if (own.watch.look(begin)) preempted_.note(begin);
        if (!gate_.spin_for_another(last, is_alone(begin) ? long_spins : short_spins)) {
            const clock::time_point fell_asleep = clock::now();
            last = gate_.wait_for_another(last);
            own.watch.leave_out(clock::now() - fell_asleep);
        }
        return last;
    }

    void serve(int worker, std::uint32_t last) {
        helper& own = helpers_[worker];
        own.id.store(detail::current_thread(), std::memory_order_relaxed);
        own.watch.restart(clock::now());
        detail::short_time_slice::wish();
        // Whoever enters the last region, which dismiss() opens, without having waited for it must not wait for another.
        while (!quits_.load(std::memory_order_relaxed)) {
            last = wait(own, last);
            if (quits_.load(std::memory_order_relaxed)) return;
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

    const int threads_;
    std::unique_ptr<helper[]> helpers_;  ///< threads_ of them, of which the first is the caller
    int started_ = 1, process_ = 0;
    clock::time_point next_update_{};
    task function_ = nullptr;
    void* argument_ = nullptr;
    region_gate gate_;
    std::atomic<int> active_;  ///< as many threads have a processor
    std::atomic<bool> quits_{false};
    detail::recent_event preempted_;  ///< one of the helpers
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
