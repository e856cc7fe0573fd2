// SPDX-License-Identifier: MIT
/// \file
/// The thread pool: which threads take part in a run, which are waited for, fork(), affinity, stress.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>

#include "support/sanitizer.hpp"

#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace exec_cpu_thread_pool_tests {

namespace ht = halftone;
using ht::extent;
using namespace std::chrono_literals;

#if defined(__linux__)
TEST_CASE("thread_pool: more threads than the system starts are an error, and those that run are stopped") {
    if (support::has_sanitizer) return;
    long pages = 0;
    std::FILE* sizes = std::fopen("/proc/self/statm", "r");
    REQUIRE(sizes != nullptr);
    REQUIRE(std::fscanf(sizes, "%ld", &pages) == 1);
    std::fclose(sizes);
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    rlimit tight = before;
    tight.rlim_cur =
        static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (64 << 20);  // room for some stacks
    REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
    std::string said;
    try {
        ht::cpu device{{.threads = 4096}};
    } catch (const ht::argument_error& e) {
        said = e.what();
    }
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(said.starts_with("cpu: 4096 threads; this process can start no more than "));
    CHECK(ht::cpu{{.threads = 3}}.threads() == 3);
}
#endif

/// Who ran, in how many runs.
struct record {
    explicit record(int threads) : calls(static_cast<std::size_t>(threads)), ids(static_cast<std::size_t>(threads)) {}
    static void note(void* argument, int worker) noexcept {
        auto& r = *static_cast<record*>(argument);
        ++r.calls[static_cast<std::size_t>(worker)];
        r.ids[static_cast<std::size_t>(worker)] = std::this_thread::get_id();
    }
    std::vector<int> calls;
    std::vector<std::thread::id> ids;
};

TEST_CASE("thread_pool: the caller is worker 0 of every run; each helper enters a run at most once") {
    for (const int threads : {1, 2, 5}) {
        CAPTURE(threads);
        ht::thread_pool pool(threads);
        CHECK(pool.concurrency() == threads);
        record seen(threads);
        constexpr int runs = 300;
        for (int run = 0; run < runs; ++run) {
            // Sometimes the pause is long enough for the helpers to fall asleep.
            if (run % 100 == 99) std::this_thread::sleep_for(20ms);
            pool.run(&record::note, &seen);
            for (const int calls : seen.calls) REQUIRE(calls <= run + 1);
        }
        CHECK(seen.calls[0] == runs);
        CHECK(seen.ids[0] == std::this_thread::get_id());
        for (std::size_t worker = 1; worker < seen.ids.size(); ++worker) CHECK(seen.ids[worker] != seen.ids[0]);
    }
}

TEST_CASE("thread_pool: all workers enter a run that is long enough") {
    ht::thread_pool pool(4);
    // Not every machine lets the test run on four processors; as many workers enter as have one.
    const int expected = std::min(4, ht::detail::usable_processors());
    struct {
        std::atomic<int> here{0};
        int expected;
    } work{0, expected};
    for (int run = 0; run < 20; ++run) {
        work.here = 0;
        pool.run(
            [](void* p, int) noexcept {
                auto& w = *static_cast<decltype(work)*>(p);
                ++w.here;
                const auto late = std::chrono::steady_clock::now() + 20s;
                while (w.here < w.expected && std::chrono::steady_clock::now() < late) std::this_thread::yield();
            },
            &work);
        CHECK(work.here >= expected);
    }
}

TEST_CASE("thread_pool: a run waits for every worker that has begun, however long it takes") {
    ht::thread_pool pool(2);
    for (const auto length : {0us, 100us, 3000us}) {  // spun for, and slept for
        struct {
            std::atomic<int> begun{0}, done{0};
            std::chrono::microseconds length;
        } work{0, 0, length};
        for (int run = 0; run < 20; ++run) {
            pool.run(
                [](void* p, int worker) noexcept {
                    auto& w = *static_cast<decltype(work)*>(p);
                    if (worker == 0) {  // gives the other a chance to come
                        for (int i = 0; i < 100 && w.begun == w.done; ++i) std::this_thread::yield();
                        return;
                    }
                    ++w.begun;
                    std::this_thread::sleep_for(w.length);
                    ++w.done;
                },
                &work);
            REQUIRE(work.begun == work.done);
        }
    }
}

TEST_CASE("region_gate: no thread enters before it opens or after it is closed, and close() waits for those inside") {
    ht::region_gate gate;
    CHECK_FALSE(gate.enter());
    const std::uint32_t before = gate.region();
    gate.open();
    CHECK(gate.region() == before + 1);
    REQUIRE(gate.enter());
    std::atomic<bool> left{false};
    std::thread inside([&] {
        std::this_thread::sleep_for(20ms);
        left = true;
        gate.leave();
    });
    CHECK_FALSE(gate.try_close(1));
    CHECK_FALSE(gate.enter());
    gate.wait_until_empty();
    CHECK(left);
    inside.join();
    gate.open();
    gate.close();
    CHECK_FALSE(gate.enter());
    CHECK(gate.region() == before + 2);
}

TEST_CASE("thread_pool: fewer than one thread is one") {
    CHECK(ht::thread_pool(0).concurrency() == 1);
    CHECK(ht::thread_pool(-3).concurrency() == 1);
}

TEST_CASE("thread_pool: is destroyed without a run while helpers still start") {
    for (int i = 0; i < 50; ++i) ht::thread_pool(3);
}

/// Regions of nearly nothing, whose numbers must come out right.
void run_small_regions(int threads, int regions) {
    ht::cpu device{{.threads = threads}};
    std::vector<int> counts(7);
    for (int region = 0; region < regions; ++region)
        device.parallel_for(7, [&](extent index) { ++counts[static_cast<std::size_t>(index)]; });
    CHECK(counts == std::vector<int>(7, regions));
}

TEST_CASE("thread_pool: 10,000 small regions of each of four contexts, side by side") {
    std::vector<std::thread> users;
    for (int user = 0; user < 4; ++user) users.emplace_back(run_small_regions, 2 + user % 3, 10000);
    for (std::thread& user : users) user.join();
}

TEST_CASE("thread_pool: contexts inside the regions of others") {
    ht::cpu outer{{.threads = 3}};
    std::atomic<int> sum{0};
    outer.parallel_for(6, [&](extent) {
        ht::cpu inner{{.threads = 2}};
        for (int region = 0; region < 100; ++region) inner.parallel_for(5, [&](extent) { ++sum; });
    });
    CHECK(sum == 6 * 100 * 5);
}

#if defined(__linux__)
/// What `body` gives as the exit status of a child of this process; -1 where it has not ended after 20 s.
template <class Body>
int status_of_child(const Body& body) {
    std::fflush(nullptr);  // or both would write it
    const pid_t child = fork();
    if (child == 0) body();
    for (int i = 0; i < 2000; ++i) {
        int status = 0;
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
        std::this_thread::sleep_for(10ms);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return -1;
}

// The thread sanitizer starts no threads in a child of a program with threads.
#if defined(__SANITIZE_THREAD__)
#define HALFTONE_TEST_FORKS false
#else
#define HALFTONE_TEST_FORKS true
#endif

TEST_CASE("fork: a context works in the child, with the child's own threads, and ends with it" *
          doctest::skip(!HALFTONE_TEST_FORKS)) {
    static ht::cpu* at_exit = nullptr;
    ht::cpu device{{.threads = 3}};
    const auto works = [&] {
        std::vector<std::atomic<int>> calls(1000);
        for (int region = 0; region < 50; ++region)
            device.parallel_for(1000, [&](extent index) { ++calls[static_cast<std::size_t>(index)]; });
        for (const std::atomic<int>& c : calls) {
            if (c != 50) return false;
        }
        return true;
    };
    for (const bool ran_before : {false, true}) {
        CAPTURE(ran_before);
        if (ran_before) REQUIRE(works());
        // The child ends by _exit at once; after a block with the destructor; by exit(), which destroys static objects.
        CHECK(status_of_child([&] { _exit(works() ? 7 : 1); }) == 7);
        CHECK(status_of_child([&] {
                  bool fine = false;
                  {
                      ht::cpu own{{.threads = 2}};
                      fine = works();
                  }
                  device.~cpu();  // as at the end of its block
                  _exit(fine ? 8 : 1);
              }) == 8);
        // A child of the child.
        CHECK(status_of_child([&] {
                  const bool fine = works();
                  const int grandchild = status_of_child([&] { _exit(works() ? 9 : 1); });
                  _exit(fine ? grandchild : 1);
              }) == 9);
    }
    at_exit = &device;
    CHECK(status_of_child([&] {
              const bool fine = works();
              std::atexit([] { at_exit->~cpu(); });
              std::exit(fine ? 10 : 1);
          }) == 10);
    CHECK(works());  // the parent is as it was
}

TEST_CASE("thread_pool: pinned to one processor the caller works alone; unpinned, the helpers work again") {
    cpu_set_t all, one;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    if (CPU_COUNT(&all) < 2) return;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    const auto others_come = [](ht::thread_pool& pool) {
        std::this_thread::sleep_for(120ms);  // the pool looks ten times a second
        std::atomic<bool> came{false};
        for (int run = 0; run < 200 && !came; ++run) {
            pool.run(
                [](void* p, int worker) noexcept {
                    if (worker != 0) return static_cast<std::atomic<bool>*>(p)->store(true);
                    std::this_thread::sleep_for(1ms);
                },
                &came);
        }
        return came.load();
    };
    // Helpers inherit the affinity of the thread that makes them.
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    {
        ht::thread_pool pinned(2);
        CHECK_FALSE(others_come(pinned));
        CHECK(ht::cpu{}.threads() == 1);
        REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
        CHECK(others_come(pinned));  // the two threads have two processors between them
    }
    ht::thread_pool free(2);
    CHECK(others_come(free));
}
#endif

}  // namespace exec_cpu_thread_pool_tests
