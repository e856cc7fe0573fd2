// SPDX-License-Identifier: MIT
/// \file
/// Where a training step's time is spent: by operation and pass, and how much of each is outside of parallel regions,
/// on one thread.
///
///     bench::regions executor(2);
///     ht::cpu device{{.executor = &executor}};
///     bench::breakdown parts(executor);
///     tape.listen(&parts);
///     executor.watch(true); ...steps...; executor.watch(false);
///     parts.print(steps, seconds);
#pragma once

#include <string>
#include <vector>

#include <support/protocol.hpp>

#include <halftone/exec/cpu/thread_pool.hpp>
#include <halftone/observe/profile/profile.hpp>

namespace bench {

/// A thread pool with a clock of the time between its parallel regions. While it does not watch, it costs one branch a
/// region.
class regions final : public halftone::executor {
  public:
    explicit regions(int threads) : pool_(threads), busy_(static_cast<std::size_t>(pool_.concurrency())) {}

    int concurrency() const override { return pool_.concurrency(); }
    void run(task function, void* argument) override {
        if (!watches_) return pool_.run(function, argument);
        work w{this, function, argument};
        const std::int64_t begin = halftone::profiler::steady_clock();
        pool_.run(
            [](void* p, int worker) noexcept {
                const work& all = *static_cast<work*>(p);
                const std::int64_t from = halftone::profiler::steady_clock();
                all.function(all.argument, worker);
                all.self->busy_[static_cast<std::size_t>(worker)].nanoseconds +=
                    halftone::profiler::steady_clock() - from;
            },
            &w);
        parallel_ += halftone::profiler::steady_clock() - begin;
        ++count_;
    }

    void watch(bool on) {
        watches_ = on;
        if (!on) return;
        parallel_ = count_ = 0;
        for (thread_time& t : busy_) t.nanoseconds = 0;
    }
    /// The nanoseconds inside of parallel regions, by the caller's clock, and their number.
    std::int64_t parallel() const { return parallel_; }
    std::int64_t count() const { return count_; }
    /// The nanoseconds that threads waited inside of regions for work to begin or for others to end, summed over all
    /// threads.
    std::int64_t idle() const {
        std::int64_t sum = parallel_ * concurrency();
        for (const thread_time& t : busy_) sum -= t.nanoseconds;
        return sum;
    }

  private:
    struct work {
        regions* self;
        task function;
        void* argument;
    };
    struct alignas(64) thread_time {
        std::int64_t nanoseconds = 0;
    };

    halftone::thread_pool pool_;
    std::vector<thread_time> busy_;
    std::int64_t parallel_ = 0, count_ = 0;
    bool watches_ = false;
};

/// Time by operation and pass: the total, and the part outside of parallel regions.
class breakdown final : public halftone::range_listener {
  public:
    explicit breakdown(const regions& of) : regions_(of) { current_ = this; }
    ~breakdown() override { current_ = nullptr; }

    void begin(const char* operation, halftone::pass p) override {
        all_.begin(operation, p);
        serial_.begin(operation, p);
    }
    void end() override {
        serial_.end();
        all_.end();
    }
    void clear() {
        all_.clear();
        serial_.clear();
    }

    /// Prints a table for `steps` steps that took `seconds` together, and returns it.
    json print(int steps, double seconds) const {
        json rows = json::array();
        std::printf("  %-22s %10s %10s %10s %10s %7s %10s\n", "ms a step", "forward", "backward", "update", "total",
                    "share", "one thread");
        const double scale = 1e-6 / steps, whole = 1e3 * seconds / steps;
        double sum = 0, serial_sum = 0;
        auto sorted = all_.rows();
        std::stable_sort(sorted.begin(), sorted.end(),
                         [](const auto& a, const auto& b) { return a.total() > b.total(); });
        for (const auto& r : sorted) {
            double serial = 0;
            for (const auto& s : serial_.rows()) {
                if (std::strcmp(s.operation, r.operation) == 0) serial = static_cast<double>(s.total()) * scale;
            }
            double ms[halftone::passes];
            for (int p = 0; p < halftone::passes; ++p) ms[p] = static_cast<double>(r.nanoseconds[p]) * scale;
            const double total = ms[0] + ms[1] + ms[2];
            std::printf("  %-22s %10.2f %10.2f %10.2f %10.2f %6.1f%% %10.2f\n", r.operation, ms[0], ms[1], ms[2], total,
                        100 * total / whole, serial);
            rows.push_back({{"part", r.operation},
                            {"forward_ms", ms[0]},
                            {"backward_ms", ms[1]},
                            {"update_ms", ms[2]},
                            {"one_thread_ms", serial}});
            sum += total;
            serial_sum += serial;
        }
        const double parallel = static_cast<double>(regions_.parallel()) * scale;
        const double idle = static_cast<double>(regions_.idle()) * scale / regions_.concurrency();
        const double regions = static_cast<double>(regions_.count()) / steps;
        std::printf("  %-22s %43.2f %6.1f%% %10.2f\n", "outside of these", whole - sum, 100 * (whole - sum) / whole,
                    whole - parallel - serial_sum);
        std::printf("  %.2f ms a step, %.2f of them outside of %.0f parallel regions; threads wait %.2f ms inside\n",
                    whole, whole - parallel, regions, idle);
        std::fflush(stdout);
        return {{"step_ms", whole},
                {"one_thread_ms", whole - parallel},
                {"parallel_regions", regions},
                {"waiting_ms", idle},
                {"parts", rows}};
    }

  private:
    /// A clock that is stopped inside of parallel regions.
    static std::int64_t serial_clock() { return halftone::profiler::steady_clock() - current_->regions_.parallel(); }
    inline static const breakdown* current_ = nullptr;

    const regions& regions_;
    halftone::profiler all_, serial_{&serial_clock};
};

}  // namespace bench
