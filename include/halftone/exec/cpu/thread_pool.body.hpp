// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in thread_pool.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/thread_pool.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE thread_pool::thread_pool(int threads)
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

HALFTONE_OUT_OF_LINE thread_pool::~thread_pool() {
    if (detail::process_id() == process_) dismiss();
}

HALFTONE_OUT_OF_LINE void thread_pool::run(task function, void* argument) {
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

HALFTONE_OUT_OF_LINE void thread_pool::start() {
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

HALFTONE_OUT_OF_LINE void thread_pool::dismiss() {
    function_ = [](void*, int) noexcept {};  // for threads that were about to enter the last region
    stopping_.store(true, std::memory_order_relaxed);
    gate_.open();
    gate_.close();
    for (int worker = 1; worker < started_; ++worker) {
        helpers_[worker].thread.join();
        helpers_[worker].thread.~thread();
    }
}

HALFTONE_OUT_OF_LINE void thread_pool::update_processors(clock::time_point now) {
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

HALFTONE_OUT_OF_LINE void thread_pool::spread_over_cores(int worker) {
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

HALFTONE_OUT_OF_LINE std::uint32_t thread_pool::wait(helper& own, std::uint32_t last) {
    const clock::time_point begin = clock::now();
    if (own.watch.was_preempted(begin)) preempted_.note(begin);
    if (!gate_.spin_for_another(last, is_alone(begin) ? long_spins : short_spins)) {
        const clock::time_point fell_asleep = clock::now();
        last = gate_.wait_for_another(last);
        own.watch.exclude(clock::now() - fell_asleep);
    }
    return last;
}

HALFTONE_OUT_OF_LINE void thread_pool::help_until_stopped(int worker, std::uint32_t last) {
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

}  // namespace HALFTONE_ABI
}  // namespace halftone
