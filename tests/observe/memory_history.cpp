// SPDX-License-Identifier: MIT
/// \file
/// Memory histories: what they record equals the counters, byte by byte; lifetimes, leaks, the ring, running out of memory,
/// and the files.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <halftone/memory/arena.hpp>
#include <halftone/observe/memory/history.hpp>

#include "support/random.hpp"
#include "support/temporary_folder.hpp"

namespace observe_memory_history_tests {

namespace ht = halftone;
using ht::memory_kind;

std::int64_t now = 0;
std::int64_t hand_turned() { return now += 1000; }

void check_counters(const ht::memory_history& history, const ht::memory_usage& usage) {
    const ht::memory_snapshot s = history.snapshot();
    const auto live = s.live_at(s.events - 1);
    for (int k = 0; k < ht::memory_kinds; ++k) {
        const auto kind = static_cast<memory_kind>(k);
        CAPTURE(ht::name(kind));
        CHECK(live[static_cast<std::size_t>(k)] == usage.live(kind));
    }
}

std::string read(const std::filesystem::path& file) { return support::temporary_folder::read(file); }

/// A number of training steps with an arena's blocks, of which step `leaking` and all later ones keep one; 0: none.
struct steps {
    ht::host_memory& memory;
    ht::memory_history& history;
    ht::arena results{memory, memory_kind::activation};
    std::vector<std::byte*> kept{};
    std::int64_t done = 0;

    void run(int count, std::int64_t leaking = 0) {
        for (int i = 0; i < count; ++i) {
            history.begin_step(++done);
            {
                const ht::range here(&history, "linear", ht::pass::forward);
                history.layer("h.0.up");
                std::byte* const a = results.allocate(1000);
                const ht::range inner(&history, "gelu", ht::pass::backward);
                std::byte* const b = results.allocate(3000);
                results.deallocate(a, 1000);
                results.deallocate(b, 3000);
                if (leaking != 0 && done >= leaking) kept.push_back(results.allocate(500));
            }
            history.end_step();
        }
    }
    ~steps() {
        for (std::byte* block : kept) results.deallocate(block, 500);
    }
};

TEST_CASE("memory_history: the bytes in use equal the counters after each of many random allocations and releases") {
    for (const std::size_t most : {5000u, 64u, 1u}) {
        ht::host_memory memory;
        const ht::buffer before(memory, 100, memory_kind::master);
        ht::memory_history history{memory, {.max_entries = most}};
        support::random draw(7);
        ht::arena results(memory, memory_kind::activation);
        struct part {
            std::byte* data;
            std::size_t bytes;
        };
        std::vector<part> parts;
        std::vector<ht::buffer> buffers;
        for (int i = 0; i < 300; ++i) {
            const auto bytes = static_cast<std::size_t>(draw.indices(1, 100'000)[0]);
            const int what = draw.indices(1, 4)[0];
            if (what == 0) buffers.emplace_back(memory, bytes + 1, memory_kind{static_cast<int>(bytes % 7)});
            if (what == 1) parts.push_back({results.allocate(bytes), bytes});
            if (what == 2 && !parts.empty()) {
                std::swap(parts[bytes % parts.size()], parts.back());
                results.deallocate(parts.back().data, parts.back().bytes);
                parts.pop_back();
            }
            if (what == 3 && !buffers.empty())
                buffers.erase(buffers.begin() + static_cast<std::ptrdiff_t>(bytes % buffers.size()));
            if (i % 10 == 0) check_counters(history, memory.usage());
        }
        for (const part& p : parts) results.deallocate(p.data, p.bytes);
        check_counters(history, memory.usage());
        const ht::memory_snapshot s = history.snapshot();
        CHECK(s.events - s.first_event <= static_cast<std::int64_t>(most));
        CHECK(s.dropped == s.first_event);
        CHECK((s.dropped > 0) == (most < 5000));
        if (most == 5000) CHECK(s.peak_bytes == memory.usage().peak());
        std::size_t at_peak = 0;
        for (const std::size_t each : s.live_at(s.peak_event)) at_peak += each;
        CHECK(at_peak == s.peak_bytes);
    }
}

TEST_CASE("memory_history: an allocation has its origin, and its lifetime in events and time") {
    now = 0;
    ht::host_memory memory;
    ht::memory_history history{memory, {.clock = &hand_turned}};
    {
        steps run{memory, history};
        run.run(2);
        const ht::memory_snapshot s = history.snapshot();
        REQUIRE(s.allocations.size() == 4);
        const ht::memory_allocation &a = s.allocations[2], &b = s.allocations[3];
        CHECK(a.text() == "1024 bytes, activation, linear (forward) of h.0.up in step 2");
        CHECK(b.text() == "3008 bytes, activation, gelu (backward) of h.0.up in step 2");
        CHECK(b.began == a.began + 1);
        CHECK(a.ended == a.began + 2);
        CHECK(a.ended_at - a.began_at == 2000);
        CHECK(b.ended == b.began + 2);
        CHECK(s.steps.size() == 2);
        CHECK(s.steps[1].began < a.began);
        CHECK(s.steps[1].ended > b.ended);
        REQUIRE(s.segments.size() == 1);  // the arena's, from the system
        CHECK(s.segments[0].bytes == 1 << 20);
        CHECK(s.peak_event == s.allocations[1].began);
        CHECK(s.peak_bytes == 1024 + 3008);
        for (const ht::memory_change& c : s.changes) {
            const ht::memory_allocation& of = s.allocations[c.allocation];
            CHECK(c.event == (c.is_end ? of.ended : of.began));
        }
    }
    CHECK(history.snapshot().segments[0].ended >= 0);
    CHECK(history.snapshot().outliving().empty());
}

TEST_CASE("memory_history: a planted leak is found, also when its allocation has left the window") {
    for (const std::size_t most : {100'000u, 40u}) {
        ht::host_memory memory;
        ht::memory_history history{memory, {.max_entries = most}};
        steps run{memory, history};
        run.run(10, 8);
        ht::memory_snapshot s = history.snapshot();
        CHECK(s.outliving().size() == 3);
        REQUIRE(s.outliving(9).size() == 1);
        CHECK(s.outliving(9)[0].text() == "512 bytes, activation, gelu (backward) of h.0.up in step 9");
        CHECK(s.outliving(7).empty());
        run.run(10);
        s = history.snapshot();
        CHECK((s.first_event > 0) == (most == 40));  // it has neither their steps nor their beginning any more
        CHECK(s.outliving().size() == 3);
        history.begin_step(21);
        history.end_step();
        for (std::byte* block : run.kept) run.results.deallocate(block, 500);
        run.kept.clear();
        s = history.snapshot();
        CHECK(s.outliving().size() == 3);  // released, but much later than their steps
        run.run(most == 40 ? 20 : 0);
        CHECK(history.snapshot().outliving().size() == (most == 40 ? 0 : 3));
    }
}

TEST_CASE("memory_history: what the first step keeps, and workspaces, are told by step and are no leaks") {
    ht::host_memory memory;
    ht::memory_history history{memory};
    steps run{memory, history};
    std::vector<ht::buffer> caches;
    for (int step = 1; step <= 3; ++step) {
        history.begin_step(step);  // ends the step before
        if (step != 2) caches.emplace_back(memory, 4096, step == 1 ? memory_kind::gradient : memory_kind::workspace);
    }
    history.end_step();
    const ht::memory_snapshot s = history.snapshot();
    CHECK(s.outliving(1).size() == 1);
    CHECK(s.outliving(2).empty());
    CHECK(s.outliving(3).size() == 1);
    CHECK(s.outliving().empty());
}

TEST_CASE("memory_history: blocks from before the recording count by kind, and start() begins anew") {
    ht::host_memory memory;
    auto early = std::make_unique<ht::buffer>(memory, 640, memory_kind::moment);
    const ht::buffer stays(memory, 64, memory_kind::moment);
    ht::memory_history history{memory};
    CHECK(history.snapshot().peak_bytes == 704);
    CHECK(history.snapshot().unrecorded[static_cast<std::size_t>(memory_kind::moment)] == 704);
    early.reset();
    const ht::memory_snapshot s = history.snapshot();
    REQUIRE(s.allocations.size() == 1);
    CHECK(s.allocations[0].began == -1);
    CHECK(s.allocations[0].bytes == 640);
    CHECK(s.peak_bytes == 704);
    check_counters(history, memory.usage());
    history.stop();
    { const ht::buffer unseen(memory, 64, memory_kind::moment); }
    CHECK(history.snapshot().events == s.events);
    CHECK(memory.usage().listener() == nullptr);
    history.start();
    CHECK(history.snapshot().events == 0);
    CHECK(history.is_recording());
}

TEST_CASE("memory_history: an arena that is destroyed in the middle of a step ends its blocks") {
    ht::host_memory memory;
    ht::memory_history history{memory};
    {
        ht::arena results(memory, memory_kind::activation);
        static_cast<void>(results.allocate(100));
        static_cast<void>(results.allocate(200));
    }
    check_counters(history, memory.usage());
    for (const ht::memory_allocation& a : history.snapshot().allocations) CHECK(a.ended > a.began);
}

TEST_CASE("memory_history: parameters' parts of slabs, until the slab is released") {
    ht::host_memory memory;
    ht::memory_history history{memory};
    {
        const ht::buffer slab(memory, 640, memory_kind::master);
        memory.usage().note_parameter(memory_kind::master, "up.bias", 128, slab.data() + 512);
        memory.usage().note_parameter(memory_kind::master, "up.weight", 512, slab.data());
        memory.usage().note_parameter(memory_kind::master, "nowhere", 512);
        const auto parts = history.snapshot().allocations.at(0).parts;
        REQUIRE(parts.size() == 2);
        CHECK(parts[0].parameter == "up.weight");
        CHECK(parts[1].offset == 512);
        CHECK(parts[1].bytes == 128);
        memory.usage().note_parameter(memory_kind::master, "up.bias", -128, slab.data() + 512);
        CHECK(history.snapshot().allocations[0].parts.size() == 1);
    }
    CHECK(history.snapshot().allocations[0].parts.size() == 1);
}

TEST_CASE("memory_history: where memory runs out the file is written, and the message names it") {
    const support::temporary_folder folder;
    const std::string file = (folder.path() / "memory.json").string();
    ht::host_memory memory(1 << 16);
    ht::memory_history history{memory, {.out_of_memory = file}};
    ht::arena results(memory, memory_kind::activation);
    std::byte* const fits = results.allocate(60'000);  // the first segment cannot have the usual mebibyte
    CHECK(!std::filesystem::exists(file));
    history.begin_step(3);
    const ht::range here(&history, "linear", ht::pass::backward);
    std::string message;
    try {
        static_cast<void>(results.allocate(10'000));
    } catch (const ht::out_of_memory& e) {
        message = e.what();
    }
    CHECK(message ==
          "memory: no 10048 bytes for activation; held: activation 60032; the history of memory is in " + file);
    results.deallocate(fits, 60'000);
    const auto j = nlohmann::json::parse(read(file));
    REQUIRE(j["refused"].size() == 1);
    CHECK(j["refused"][0][1] == 10'048);
    CHECK(j["refused"][0][6] == 3);
    CHECK(j["operations"][j["refused"][0][3].get<std::size_t>()] == "linear");
    REQUIRE(history.snapshot().refused.size() == 1);
    // Training goes on; where the file cannot be written, the error is still the memory's.
    ht::memory_history other{memory, {.out_of_memory = (folder.path() / "no" / "folder.html").string()}};
    try {
        static_cast<void>(results.allocate(100'000));
        FAIL("there is memory");
    } catch (const ht::out_of_memory& e) {
        message = e.what();
    }
    CHECK(message.find("; the history of memory could not be written: output: cannot write") != std::string::npos);
    CHECK(history.snapshot().refused.size() == 2);  // the first one is told, too
}

TEST_CASE("memory_history: arguments") {
    ht::host_memory memory;
    CHECK_THROWS_WITH_AS(ht::memory_history(memory, {.max_entries = 0}),
                         "memory_history: max_entries is 0; expected 1 or more", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::memory_history(memory, {.out_of_memory = "a.txt"}),
                         "memory history: the file is 'a.txt'; expected an ending .html or .json",
                         ht::argument_error);
    const ht::memory_history history{memory};
    CHECK_THROWS_AS(history.dump("a.txt"), ht::argument_error);
}

TEST_CASE("memory_history: the JSON has every allocation; the page has the JSON, and loads nothing") {
    const support::temporary_folder folder;
    ht::host_memory memory;
    ht::memory_history history{memory, {.title = "5 steps & <more>"}};
    steps run{memory, history};
    const ht::buffer slab(memory, 640, memory_kind::master);
    memory.usage().note_parameter(memory_kind::master, "a<\"b", 640, slab.data());
    run.run(5, 3);
    for (const char* const name : {"m.json", "m.html"}) history.dump((folder.path() / name).string());
    const ht::memory_snapshot s = history.snapshot();
    const auto j = nlohmann::json::parse(read(folder.path() / "m.json"));
    CHECK(j["events"] == s.events);
    CHECK(j["peak_bytes"] == s.peak_bytes);
    CHECK(j["columns"].size() == 12);
    REQUIRE(j["allocations"].size() == s.allocations.size());
    std::size_t leaks = 0;
    for (std::size_t i = 0; i < s.allocations.size(); ++i) {
        const auto& row = j["allocations"][i];
        REQUIRE(row.size() == 12);
        CHECK(row[1] == s.allocations[i].bytes);
        CHECK(j["kinds"][row[2].get<std::size_t>()] == ht::name(s.allocations[i].kind));
        CHECK(j["layers"][row[5].get<std::size_t>()] == s.allocations[i].layer);
        CHECK(row[7] == s.allocations[i].began);
        leaks += row[11] == -1 ? 0 : 1;
    }
    CHECK(leaks == 3);
    CHECK(j["parts"]["0"] == nlohmann::json::parse(R"([["a<\"b", 0, 640]])"));
    const std::string page = read(folder.path() / "m.html");
    CHECK(page.find("<h1>5 steps &amp; &lt;more&gt;</h1>") != std::string::npos);
    CHECK(page.find("3 blocks outlive their step") != std::string::npos);
    CHECK(page.find("steps 3 to 5") != std::string::npos);
    const std::size_t still = page.find("<noscript>");  // what browsers without the script draw
    CHECK(page.find("style=\"fill:var(--activation)\" d=\"M", still) < page.find("</noscript>", still));
    for (const char* const outside : {"http", "src=", "import ", "@import", "url("})
        CHECK(page.find(outside) == std::string::npos);
    const std::size_t data = page.find("id=\"data\">") + 10;
    CHECK(page.find('<', data) == page.find("</script>", data));  // no name can end the data
    CHECK(nlohmann::json::parse(page.substr(data, page.find("</script>", data) - data)) == j);
}

}  // namespace observe_memory_history_tests
