// SPDX-License-Identifier: MIT
/// \file
/// A user-defined executor whose threads are busy with other work: regions end without threads that have not begun.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>

namespace exec_cpu_late_executor_tests {

namespace ht = halftone;
using ht::extent;

/// One thread that does what it is given, one after the other.
class job_queue {
  public:
    job_queue() : thread_([this] { serve(); }) {}
    ~job_queue() {
        add({});
        thread_.join();
    }
    void add(std::function<void()> job) {
        const std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
        changed_.notify_one();
    }

  private:
    void serve() {
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return !jobs_.empty(); });
            const std::function<void()> job = std::move(jobs_.front());
            jobs_.pop_front();
            lock.unlock();
            if (!job) return;
            job();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;
    std::thread thread_;
};

/// The caller and a queue that others use, too.
class queue_executor final : public ht::executor {
  public:
    explicit queue_executor(job_queue& jobs) : jobs_(&jobs) {}
    int concurrency() const override { return 2; }
    void run(task function, void* argument) override {
        // Work that begins after the end of this call refers to nothing but the gate.
        const auto gate = std::make_shared<ht::region_gate>();
        gate->open();
        jobs_->add([=] {
            if (!gate->enter()) return;
            function(argument, 1);
            gate->leave();
        });
        function(argument, 0);
        gate->close();
    }

  private:
    job_queue* jobs_;
};

TEST_CASE("executor: a run does not wait for a thread that is busy with something else") {
    job_queue jobs;
    queue_executor mine(jobs);
    ht::cpu device{{.executor = &mine}};
    std::mutex busy;
    std::vector<int> calls(100);
    const auto region = [&] {
        std::vector<int> own(100);
        device.parallel_for(100, [&](extent index) { ++own[static_cast<std::size_t>(index)]; });
        for (std::size_t i = 0; i < calls.size(); ++i) calls[i] += own[i];
    };
    {
        const std::lock_guard until_the_end(busy);
        jobs.add([&] { const std::lock_guard waits(busy); });
        for (int i = 0; i < 10; ++i) region();  // would never end, were the queue waited for
        CHECK(calls == std::vector<int>(100, 10));
    }
    for (int i = 0; i < 200; ++i) region();
    CHECK(calls == std::vector<int>(100, 210));
}

}  // namespace exec_cpu_late_executor_tests
