// SPDX-License-Identifier: MIT
/// \file
/// A recorder's schedule, rings and lanes, and its Chrome trace: measured by a clock that the test controls.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <halftone/dist/listened.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/observe/profile/peaks_file.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>
#include <halftone/observe/trace/chrome.hpp>
#include <halftone/observe/trace/listeners.hpp>
#include <halftone/observe/trace/workers.hpp>

#include "observe/trace_checks.hpp"
#include "support/temporary_folder.hpp"

namespace ht = halftone;

namespace {

std::int64_t now = 0;
std::int64_t hand_turned() { return now; }

/// A step of a forward pass with one operation, 10 ns before, in and after it.
void step(ht::range_listener& to, std::int64_t number) {
    to.begin_step(number);
    {
        const ht::scoped_range forward(&to, "forward", ht::track::forward);
        now += 10;
        {
            const ht::range operation(&to, "linear", ht::pass::forward);
            to.layer("h.0.up");
            now += 10;
        }
        now += 10;
    }
    to.end_step();
}

std::vector<std::int64_t> steps_of(const ht::trace_recorder& trace) {
    std::vector<std::int64_t> all;
    for (const ht::trace_row& row : trace.rows()) {
        if (row.title != "steps") continue;
        for (const ht::trace_event& e : row.events) all.push_back(e.step);
    }
    return all;
}

}  // namespace

TEST_CASE("rows are the parts of a step, and events have their times, layers and steps") {
    now = 1000;
    ht::trace_recorder trace{{.clock = &hand_turned}};
    step(trace, 7);
    const auto rows = trace.rows();
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].title == "steps");
    CHECK(rows[0].events.at(0).duration() == 30);
    CHECK(rows[1].title == "forward");
    REQUIRE(rows[1].events.size() == 2);
    CHECK(std::string(rows[1].events[0].name) == "forward");  // before what is inside it
    const ht::trace_event& linear = rows[1].events[1];
    CHECK(std::string(linear.name) == "linear");
    CHECK(std::string(linear.layer) == "h.0.up");
    CHECK(linear.begin == 1010);
    CHECK(linear.duration() == 10);
    CHECK(linear.step == 7);
    CHECK(linear.is_operation);
    trace.clear();
    {
        const ht::range outer(&trace, "outer", ht::pass::backward), inner(&trace, "inner", ht::pass::backward);
        now += 1;
    }
    CHECK(std::string(trace.rows().at(0).events.at(0).name) == "outer");  // also where both have the same times
}

TEST_CASE("a schedule: skipped steps, then cycles of waiting, warming up and recording") {
    now = 0;
    ht::trace_recorder trace{
        {.schedule = {.wait = 1, .warmup = 1, .active = 2, .repeat = 2, .skip_first = 3}, .clock = &hand_turned}};
    for (int s = 1; s <= 20; ++s) {
        step(trace, s);
        const ht::range between(&trace, "evaluation", ht::pass::forward);  // recorded after a first active step alone
    }
    CHECK(steps_of(trace) == std::vector<std::int64_t>{6, 7, 10, 11});
    std::vector<std::vector<std::int64_t>> cycles;
    ht::trace_recorder other{{.schedule = {.warmup = 1, .active = 1},
                              .on_ready = [&](ht::trace_recorder& t) { cycles.push_back(steps_of(t)); },
                              .clock = &hand_turned}};
    for (int s = 1; s <= 5; ++s) step(other, s);
    CHECK(cycles == std::vector<std::vector<std::int64_t>>{{2}, {4}});
    CHECK(other.rows().empty());
    CHECK_THROWS_WITH_AS(ht::trace_recorder({.schedule = {.wait = -1}}),
                         "trace: a schedule of -1, 0, 0, 0, 0; expected wait, warmup, active, repeat and skip_first of 0 or more",
                         ht::argument_error);
    CHECK_THROWS_AS(ht::trace_recorder({.max_events = 0}), ht::argument_error);
}

TEST_CASE("the ring keeps the latest events and counts the others") {
    ht::trace_recorder trace{{.max_events = 5, .clock = &hand_turned}};
    for (int s = 1; s <= 4; ++s) step(trace, s);  // three events each
    CHECK(trace.dropped() == 7);
    CHECK(steps_of(trace) == std::vector<std::int64_t>{3, 4});
}

TEST_CASE("other threads have rows of their own") {
    ht::trace_recorder trace;
    ht::trace_lane& loader = trace.lane("loader");
    std::thread other([&] {
        for (int i = 0; i < 100; ++i) {
            const ht::scoped_range outer(&loader, "load", ht::track::data);
            const ht::scoped_range inner(&loader, "tokenise", ht::track::data);
        }
    });
    for (int s = 1; s <= 100; ++s) step(trace, s);
    other.join();
    const auto rows = trace.rows();
    CHECK(rows.back().title == "loader");
    CHECK(rows.back().events.size() == 200);
}

TEST_CASE("workers are shown with the operation that they work for") {
    ht::thread_pool pool{2};
    ht::trace_recorder trace, of_ranges{{.parts = ht::trace_parts::cpu}};
    ht::traced_executor workers{pool, trace}, none{pool, of_ranges};
    for (ht::traced_executor* each : {&workers, &none}) {
        ht::cpu device{{.executor = each}};
        std::vector<double> sums(64);
        const ht::range r(each == &workers ? &trace : &of_ranges, "softmax", ht::pass::forward);
        for (int i = 0; i < 100; ++i) device.parallel_for(64, [&](ht::extent at) { sums[static_cast<std::size_t>(at)] += 1; });
        CHECK(sums[63] == 100);
    }
    bool found = false;
    for (const ht::trace_row& row : trace.rows()) {
        if (row.title != "worker 0") continue;
        found = true;
        CHECK(row.events.size() == 100);
        CHECK(std::string(row.events[0].name) == "softmax");
    }
    CHECK(found);
    for (const ht::trace_row& row : of_ranges.rows()) CHECK(row.title != "worker 0");
}

TEST_CASE("a Chrome trace: rows are named, times are exact, events nest, memory is counted") {
    const support::temporary_folder folder;
    now = 5'000'000;
    ht::cpu device{{.threads = 1}};
    ht::trace_recorder trace{device, {.clock = &hand_turned}};
    ht::buffer some(device.memory(), 4096, ht::memory_kind::activation);
    step(trace, 1), step(trace, 2);
    trace.write(folder.path() / "trace.json");
    const auto j = trace_checks::read(folder.path() / "trace.json");
    trace_checks::check(j);
    CHECK(trace_checks::sum_of(j, "forward", "linear") == doctest::Approx(0.02));
    bool counts = false;
    for (const auto& e : j["traceEvents"]) {
        if (e["ph"] == "C") counts = counts || e["args"]["activation"] == 4096;
        if (e["ph"] == "X" && e["name"] == "linear") CHECK(e["args"]["layer"] == "h.0.up");
    }
    CHECK(counts);
    CHECK(j["otherData"]["dropped_events"] == 0);
    CHECK(ht::detail::json_string("a\"b\\\n") == "\"a\\\"b\\\\ \"");
}

namespace {

/// A communicator of one rank, which waits 5 ns for every collective.
struct alone final : ht::communicator {
    struct work final : ht::detail::collective {
        bool is_done() override { return false; }
        void wait() override { now += 5; }
    };
    alone() : communicator(0, 1, {}) {}
    const char* engine() const override { return "alone"; }
    ht::pending begin_exchange(const char*, const void*, void*, std::size_t) override { return ++now, ht::pending(std::make_unique<work>()); }
    ht::pending begin_all_gather(const char*, const void*, void*, std::size_t) override { return ++now, ht::pending(std::make_unique<work>()); }
    ht::pending begin_broadcast(const char*, void*, std::size_t, int) override { return ++now, ht::pending(std::make_unique<work>()); }
    void barrier(const char*) override { now += 7; }
    std::unique_ptr<ht::communicator> split(int, int) override { return std::make_unique<alone>(); }
};

}  // namespace

TEST_CASE("collectives have a row of their own, where they begin and where they are waited for") {
    now = 0;
    ht::trace_recorder trace{{.clock = &hand_turned}};
    alone one;
    ht::listened_communicator told{one, &trace};
    CHECK(std::string(told.engine()) == "alone");
    ht::pending later = told.begin_all_gather("weights", nullptr, nullptr, 4);
    CHECK(!later.is_done());
    now += 2;
    later.wait();
    told.split(0, 0)->barrier("the end");
    told.broadcast("weights", nullptr, 4, 0), told.exchange("gradients", nullptr, nullptr, 4);
    const auto rows = trace.rows();
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].title == "collectives");
    std::string names;
    for (const ht::trace_event& e : rows[0].events)
        names += std::string(e.name) + " of " + e.layer + ": " + std::to_string(e.duration()) + "\n";
    CHECK(names == "all_gather of weights: 1\nall_gather, its end of weights: 5\nbarrier of the end: 7\nbroadcast of weights: 1\n"
                   "broadcast, its end of weights: 5\nexchange of gradients: 1\nexchange, its end of gradients: 5\n");
}

TEST_CASE("several listeners in one place") {
    now = 0;
    ht::trace_recorder trace{{.clock = &hand_turned}};
    ht::speed_of_light light{&hand_turned};
    ht::listener_list none, one{{nullptr, &trace}}, both{{&trace, &light}};
    CHECK(none.listener() == nullptr);
    CHECK(one.listener() == &trace);
    CHECK(both.wants_work());
    CHECK(both.wants_origins());
    step(*both.listener(), 1);
    CHECK(steps_of(trace).size() == 1);
    CHECK(light.steps() == 1);
}

TEST_CASE("speed of light: every moment in one line, the largest saving first, and what bounds it") {
    now = 0;
    ht::speed_of_light light{&hand_turned};
    const auto operation = [&](const char* name, ht::operation_work w, std::int64_t nanoseconds) {
        const ht::range r(&light, name, ht::pass::forward);
        light.work(w);
        now += nanoseconds;
    };
    for (int s = 1; s <= 2; ++s) {
        light.begin_step(s);
        now += 5;
        {
            const ht::scoped_range forward(&light, "forward", ht::track::forward);
            operation("near", {.flops = 1000, .bytes = 10, .products = 1000, .in = ht::arithmetic::bf16}, 600);
            now += 7;
            operation("far", {.flops = 100, .bytes = 400}, 1000);
            operation("repeated", {.flops = 400, .products = 400, .in = ht::arithmetic::bf16, .is_repeated = true}, 300);
        }
        light.end_step();
        now += 1'000'000;  // between steps: in no line
    }
    ht::machine_peaks peaks;
    for (double& rate : peaks.flops) rate = 1e9;
    peaks.flops[static_cast<int>(ht::arithmetic::bf16)] = 2e9;
    peaks.bytes = 1e9;
    const ht::light_table t = light.table(peaks);
    REQUIRE(t.rows.size() == 5);
    CHECK(t.rows[0].operation == "far");
    CHECK(t.rows[0].bound == ht::light_bound::memory);
    CHECK(t.rows[0].saving() == doctest::Approx(600e-9));
    CHECK(t.rows[1].operation == "near");  // 500 ns at two flops a nanosecond
    CHECK(t.rows[1].bound == ht::light_bound::arithmetic);
    CHECK(t.rows[1].share() == doctest::Approx(5.0 / 6));
    double sum = 0;
    for (const ht::light_row& r : t.rows) sum += r.seconds;
    CHECK(sum == doctest::Approx(1912e-9));
    CHECK(t.step_seconds == doctest::Approx(sum));
    CHECK(t.mfu == doctest::Approx(500.0 / 1912));  // without what is repeated
    std::ostringstream out;
    t.print(out, 2);
    CHECK(out.str().find("3 others") != std::string::npos);
    CHECK(out.str().find("MFU 26.2%") != std::string::npos);
}

TEST_CASE("speed of light: what a custom operation is made of counts as its own, what a checkpoint repeats does not") {
    now = 0;
    ht::speed_of_light light{&hand_turned};
    light.begin_step(1);
    for (const char* outer : {"my_operation", "checkpoint"}) {
        const ht::range r(&light, outer, ht::pass::backward);
        now += 3;
        const ht::range inner(&light, "map", ht::pass::forward);
        now += 10;
    }
    light.end_step();
    const ht::light_table t = light.table({});
    REQUIRE(t.rows.size() == 4);
    CHECK(t.rows[0].operation == "my_operation");
    CHECK(t.rows[0].seconds == doctest::Approx(13e-9));
    CHECK(t.rows[0].calls == 1);
    CHECK(t.rows[1].operation == "map");
    CHECK(t.rows[2].operation == "checkpoint");
}

TEST_CASE("peaks as a file") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "peaks.json";
    ht::machine_peaks peaks;
    peaks.flops[0] = 1.5e11, peaks.bytes = 2e10;
    const auto write = [&](const std::string& text) {
        ht::output_file out(file);
        out.write(text), out.commit();
    };
    write(ht::peaks_json(peaks).dump());
    const ht::machine_peaks read = ht::read_peaks(file);
    CHECK(read.bytes == 2e10);
    CHECK(read.of(ht::arithmetic::bf16) == 1.5e11);  // as fp32
    for (const char* text : {"", "[]", "{\"bytes\": 1}", "{\"flops\": {\"fp32\": -1}, \"bytes\": 1}"}) {
        write(text);
        CHECK_THROWS_AS(ht::read_peaks(file), ht::argument_error);
    }
}
