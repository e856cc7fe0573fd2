// SPDX-License-Identifier: MIT
/// \file
/// The CPU as a device: parallel regions, user-defined executors, scratch memory, choice of instruction set.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>

#include "support/each_set.hpp"
#include "support/environment.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace exec_cpu_tests {

namespace ht = halftone;
using ht::extent;

TEST_CASE("parallel_for: runs every index once, for any count") {
    for (const int threads : {1, 2, 3, 70}) {
        ht::cpu device{{.threads = threads}};
        for (const extent count : {0, 1, 2, 3, 7, 1000}) {
            CAPTURE(threads);
            CAPTURE(count);
            std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
            device.parallel_for(count, [&](extent index) { ++calls[static_cast<std::size_t>(index)]; });
            int wrong = 0;
            for (const std::atomic<int>& c : calls) wrong += c == 1 ? 0 : 1;
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("parallel_for: a worker runs its share in order, then what is left of other shares") {
    ht::detail::index_shares shares(10, 3);
    std::vector<extent> seen;
    const auto see = [&](extent index) { seen.push_back(index); };
    shares.run(1, see);
    CHECK(seen == std::vector<extent>{3, 4, 5, 6, 7, 8, 9, 0, 1, 2});
    shares.run(0, see);
    CHECK(seen.size() == 10);
}

TEST_CASE("parallel_for: what one region wrote, the next one reads") {
    ht::cpu device{{.threads = 3}};
    constexpr extent count = 64;
    std::vector<std::int64_t> values(count, 1), other(count);
    for (int round = 0; round < 500; ++round) {
        device.parallel_for(count, [&](extent i) {
            other[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>((i + 7) % count)] + i;
        });
        device.parallel_for(count, [&](extent i) {
            values[static_cast<std::size_t>(i)] = other[static_cast<std::size_t>((i + 57) % count)] - (i + 57) % count;
        });
    }
    CHECK(std::accumulate(values.begin(), values.end(), std::int64_t{0}) == count);
}

TEST_CASE("parallel_for: each worker has its own scratch memory, aligned and reused") {
    for (const int threads : {1, 3}) {
        CAPTURE(threads);
        ht::cpu device{{.threads = threads}};
        constexpr std::size_t bytes = 1000;
        std::atomic<int> misaligned{0}, torn{0};
        std::uint64_t allocations = 0;
        for (int round = 0; round < 3; ++round) {
            device.parallel_for(200, bytes, [&](extent index, std::byte* scratch) {
                if (reinterpret_cast<std::uintptr_t>(scratch) % ht::block_alignment != 0) ++misaligned;
                const auto mark = static_cast<std::byte>(index);
                for (std::size_t i = 0; i < bytes; ++i) scratch[i] = mark;
                std::this_thread::yield();
                for (std::size_t i = 0; i < bytes; ++i) torn += scratch[i] == mark ? 0 : 1;
            });
            if (round == 0) allocations = device.memory().usage().allocations();
        }
        CHECK(misaligned == 0);
        CHECK(torn == 0);
        CHECK(device.memory().usage().allocations() == allocations);
    }
}

/// Runs the workers one after the other: allowed, if slow.
class serial_executor final : public ht::executor {
  public:
    explicit serial_executor(int workers) : workers_(workers) {}
    int concurrency() const override { return workers_; }
    void run(task function, void* argument) override {
        ++runs;
        for (int worker = workers_ - 1; worker >= 0; --worker) function(argument, worker);
    }
    int runs = 0;

  private:
    int workers_;
};

TEST_CASE("cpu: the user's executor runs the work") {
    serial_executor mine(4);
    ht::cpu device{{.executor = &mine}};
    CHECK(device.threads() == 4);
    std::vector<int> calls(100);
    device.parallel_for(100, [&](extent index) { ++calls[static_cast<std::size_t>(index)]; });
    CHECK(mine.runs == 1);
    CHECK(calls == std::vector<int>(100, 1));
    device.parallel_for(1, [&](extent) { ++calls[0]; });
    CHECK(mine.runs == 1);  // a single index needs no threads
    CHECK(calls[0] == 2);
}

/// Calls one worker alone, and not the first.
class single_executor final : public ht::executor {
  public:
    int concurrency() const override { return 4; }
    void run(task function, void* argument) override { function(argument, 2); }
};

TEST_CASE("cpu: any worker that arrives finishes a region") {
    single_executor mine;
    ht::cpu device{{.executor = &mine}};
    std::vector<int> calls(100);
    device.parallel_for(100, [&](extent index) { ++calls[static_cast<std::size_t>(index)]; });
    CHECK(calls == std::vector<int>(100, 1));
}

#if defined(__x86_64__)
TEST_CASE("cpu: workers take over the caller's floating-point mode, and restore their own afterwards") {
    ht::thread_pool threads(3);
    ht::cpu device{{.executor = &threads}};
    const unsigned before = _mm_getcsr();
    for (const unsigned wanted :
         {before | 0x8040u, before & ~0x8040u, before | 0x6000u, before}) {  // flushed; truncated
        _mm_setcsr(wanted);
        std::atomic<int> others{0};
        device.parallel_for(300, [&](extent) { others += ((_mm_getcsr() ^ wanted) & ~0x3fu) == 0 ? 0 : 1; });
        CHECK(others == 0);
        CHECK(((_mm_getcsr() ^ wanted) & ~0x3fu) == 0);
        _mm_setcsr(before);
        // The helpers' own floating-point modes are restored.
        std::atomic<int> kept{0};
        threads.run(
            [](void* count, int) noexcept {
                if ((_mm_getcsr() & 0xe040u) != 0) ++*static_cast<std::atomic<int>*>(count);
            },
            &kept);
        CHECK(kept == 0);
    }
}
#endif

TEST_CASE("cpu: several contexts at once, each in its thread") {
    std::vector<std::thread> users;
    std::vector<std::int64_t> sums(4);
    for (std::size_t user = 0; user < sums.size(); ++user) {
        users.emplace_back([&sums, user] {
            ht::cpu device{{.threads = 2}};
            std::vector<std::int64_t> parts(100);
            for (int round = 0; round < 50; ++round) {
                device.parallel_for(100, 64, [&](extent index, std::byte* scratch) {
                    *scratch = static_cast<std::byte>(index);
                    parts[static_cast<std::size_t>(index)] += static_cast<std::int64_t>(*scratch);
                });
            }
            sums[user] = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
        });
    }
    for (std::thread& user : users) user.join();
    for (const std::int64_t sum : sums) CHECK(sum == 50 * 4950);
}

TEST_CASE("cpu: options") {
    CHECK(ht::cpu{}.threads() >= 1);
    CHECK(ht::cpu{{.threads = 3}}.threads() == 3);
    CHECK_THROWS_WITH_AS((ht::cpu{{.threads = -1}}), "cpu: -1 threads; expected 0 (all cores) to 4096",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS((ht::cpu{{.threads = 4097}}), "cpu: 4097 threads; expected 0 (all cores) to 4096",
                         ht::argument_error);
    CHECK(ht::cpu{{.threads = 1, .instruction_set = ht::isa::portable}}.description() == "cpu, portable, 1 thread");
    CHECK(ht::cpu{{.threads = 2, .instruction_set = ht::isa::portable}}.description() == "cpu, portable, 2 threads");
    for (const ht::isa set : ht::every_isa) {
        if (ht::supports(set)) {
            CHECK(ht::cpu{{.threads = 1, .instruction_set = set}}.instruction_set() == set);
        } else {
            CHECK_THROWS_WITH_AS(
                (ht::cpu{{.threads = 1, .instruction_set = set}}),
                (std::string("cpu: its instruction set is ") + ht::name(set) + ", which this processor lacks").c_str(),
                ht::argument_error);
        }
    }
}

int portable_body() { return 1; }
int avx2_body() { return 2; }
int avx512_body() { return 3; }

TEST_CASE("cpu: select gives the widest body that the set allows") {
    const int wanted[] = {1, 2, 3, 3, 3};
    for (const ht::isa set : ht::every_isa) {
        if (!ht::supports(set)) continue;
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        CHECK(device.select(&portable_body, &avx2_body, &avx512_body)() == wanted[static_cast<int>(set)]);
    }
}

TEST_CASE("isa: names, order and the environment") {
    for (const ht::isa set : ht::every_isa) CHECK(ht::parse_isa(ht::name(set)) == set);
    CHECK_THROWS_WITH_AS(ht::parse_isa("sse9"),
                         "isa: 'sse9' is not an instruction set; known: portable, avx2, avx512, avx512_bf16, amx",
                         ht::argument_error);
    CHECK(ht::supports(ht::isa::portable));
    for (std::size_t i = 1; i < std::size(ht::every_isa); ++i) {  // a processor with one set has all previous ones
        if (ht::supports(ht::every_isa[i])) CHECK(ht::supports(ht::every_isa[i - 1]));
    }
    CHECK(ht::supports(ht::default_isa()));

    const char* before = std::getenv("HALFTONE_ISA");
    const std::string kept = before == nullptr ? "" : before;
    support::set_environment("HALFTONE_ISA", "portable");
    CHECK(ht::default_isa() == ht::isa::portable);
    CHECK(ht::cpu{{.threads = 1}}.instruction_set() == ht::isa::portable);
    support::set_environment("HALFTONE_ISA", "nonsense");
    CHECK_THROWS_AS(ht::default_isa(), ht::argument_error);
    CHECK_THROWS_AS(ht::cpu{{.threads = 1}}, ht::argument_error);
    if (!ht::supports(ht::isa::amx)) {
        support::set_environment("HALFTONE_ISA", "amx");
        CHECK_THROWS_WITH_AS(ht::default_isa(), "isa: HALFTONE_ISA is amx, which this processor lacks",
                             ht::argument_error);
    }
    support::set_environment("HALFTONE_ISA", "");  // empty counts as unset
    CHECK(ht::supports(ht::default_isa()));
    support::set_environment("HALFTONE_ISA", before == nullptr ? nullptr : kept.c_str());
}

TEST_CASE("workspace: nested leases do not overlap, and a steady program stops allocating") {
    ht::host_memory memory;
    {
        ht::workspace space(memory);
        std::uint64_t allocations = 0;
        for (int round = 0; round < 5; ++round) {
            const ht::workspace::lease outer(space, 100);
            for (int i = 0; i < 100; ++i) outer.as<unsigned char>()[i] = 1;
            {
                const ht::workspace::lease inner(space, 100'000);  // does not fit next to the first lease until the memory has grown
                for (int i = 0; i < 100'000; ++i) inner.as<unsigned char>()[i] = 2;
                const ht::workspace::lease innermost(space, 0);
                CHECK(reinterpret_cast<std::uintptr_t>(inner.data()) % ht::block_alignment == 0);
            }
            const ht::workspace::lease second(space, 5000);
            for (int i = 0; i < 5000; ++i) second.as<unsigned char>()[i] = 3;
            int wrong = 0;
            for (int i = 0; i < 100; ++i) wrong += outer.as<unsigned char>()[i] == 1 ? 0 : 1;
            CHECK(wrong == 0);
            if (round == 1) allocations = memory.usage().allocations();
        }
        CHECK(memory.usage().allocations() == allocations);
        CHECK(memory.usage().live(ht::memory_kind::workspace) == memory.usage().live());
        CHECK(memory.usage().live() >= 100'100);
    }
    CHECK(memory.usage().live() == 0);
}

TEST_CASE("workspace: a lease of nothing, as the only one, and around another") {
    ht::host_memory memory;
    ht::workspace space(memory);
    { const ht::workspace::lease nothing(space, 0); }
    {
        const ht::workspace::lease nothing(space, 0);
        const ht::workspace::lease something(space, 1000);
        something.as<unsigned char>()[999] = 1;
    }
    const ht::workspace::lease again(space, 1000);
    CHECK(again.data() != nullptr);
}

TEST_CASE("cpu: beyond its memory limit a context says what it held, and runs smaller work afterwards") {
    ht::cpu device{{.threads = 1, .memory_limit = 1 << 16}};
    CHECK_THROWS_WITH_AS(ht::workspace::lease(device.scratch(), 1 << 17),
                         "memory: no 131072 bytes for workspace; held: nothing", ht::out_of_memory);
    const ht::workspace::lease smaller(device.scratch(), 1 << 12);
    CHECK(smaller.data() != nullptr);
    CHECK_THROWS_WITH_AS(ht::workspace::lease(device.scratch(), 1 << 16),
                         "memory: no 65536 bytes for workspace; held: workspace 4096", ht::out_of_memory);
    const ht::workspace::lease after(device.scratch(), 1 << 12);
    CHECK(after.data() != nullptr);
}

}  // namespace exec_cpu_tests
