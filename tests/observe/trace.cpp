// SPDX-License-Identifier: MIT
/// \file
/// A recorder's schedule, rings and lanes, and its Chrome trace: measured by a clock that the test controls.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/observe/profile/peaks_file.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>
#include <halftone/observe/trace/chrome.hpp>
#include <halftone/observe/trace/listeners.hpp>
#include <halftone/observe/trace/workers.hpp>
#include <halftone/ranks/listened.hpp>

#include "observe/trace_checks.hpp"
#include "support/temporary_folder.hpp"

namespace observe_trace_tests {

namespace ht = halftone;

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

TEST_CASE("what begins while nothing is recorded is left out; outside of steps the step is 0; a step may end with an exception") {
    now = 0;
    ht::cpu device{{.threads = 1}};
    ht::trace_recorder trace{device, {.schedule = {.wait = 1, .active = 2, .repeat = 1}, .clock = &hand_turned}};
    step(trace, 1);
    CHECK(trace.memory().empty());
    {
        const ht::range outer(&trace, "outer", ht::pass::forward);  // begins before the recording, ends within it
        trace.begin_step(2);
        now += 1;
    }
    trace.begin_step(3);  // without an end of the step before
    trace.end_step();
    CHECK(steps_of(trace).size() == 2);
    for (const ht::trace_row& row : trace.rows()) {
        for (const ht::trace_event& e : row.events) CHECK(std::string(e.name) != "outer");
    }
    CHECK(!trace.memory().empty());
    ht::trace_recorder all{{.clock = &hand_turned}};
    step(all, 5);
    {
        const ht::range evaluation(&all, "evaluation", ht::pass::forward);
    }
    CHECK(all.rows().at(1).events.back().step == 0);
    all.begin_step(6);
    now += 1;
    all.begin_step(7);
    all.end_step();
    const auto steps = all.rows().at(0).events;
    REQUIRE(steps.size() == 3);
    CHECK(steps[2].begin >= steps[1].end);  // not inside the one that did not end
}

TEST_CASE("workers have the layer of the operation, and nothing while nothing is recorded; kernels alone leave memory out") {
    ht::thread_pool pool{2};
    ht::trace_recorder trace{{.schedule = {.wait = 1, .active = 1, .repeat = 1}, .parts = ht::trace_parts::kernels}};
    ht::traced_executor workers{pool, trace};
    ht::cpu device{{.executor = &workers}};
    trace.count_memory(device.memory().usage());
    for (int s = 1; s <= 3; ++s) {
        trace.begin_step(s);
        const ht::range outer(&trace, "block", ht::pass::forward);
        trace.layer("h.7");
        {
            const ht::range inner(&trace, "map", ht::pass::forward);
            device.parallel_for(64, [&](ht::extent) {});
        }
        trace.end_step();
    }
    int workers_seen = 0;
    for (const ht::trace_row& row : trace.rows()) {
        CHECK(row.title == "worker " + std::to_string(workers_seen++));
        REQUIRE(row.events.size() == 1);  // of the second step
        CHECK(std::string(row.events[0].name) == "map");
        CHECK(std::string(row.events[0].layer) == "h.7");
        CHECK(row.events[0].is_operation);
    }
    CHECK(workers_seen > 0);
    CHECK(ht::chrome_trace(trace).find("\"ph\":\"C\"") == std::string::npos);
}

TEST_CASE("a Chrome trace: nanoseconds as three decimals, outer events first, nothing before 0, rows by part") {
    const support::temporary_folder folder;
    now = 5'000'000;
    ht::trace_recorder trace{{.clock = &hand_turned}};
    ht::trace_lane& lane = trace.lane("stream");
    lane.add("early", "", now - 4567, now - 4500);  // of another clock's beginning, as kernels of a GPU may be
    {
        const ht::scoped_range outer(&trace, "data loading", ht::track::data);
        {
            const ht::scoped_range inner(&trace, "tokenise", ht::track::data);  // begins at the same time
            now += 1234;
        }
        now += 1'000'089;
    }
    trace.write(folder.path() / "trace.json");
    const auto j = trace_checks::read(folder.path() / "trace.json");
    trace_checks::check(j);
    CHECK(trace_checks::sum_of(j, "data loading", "tokenise") == doctest::Approx(1.234));
    CHECK(trace_checks::sum_of(j, "data loading", "data loading") == doctest::Approx(1001.323));
    CHECK(trace_checks::sum_of(j, "stream", "early") == doctest::Approx(0.067));
    CHECK(trace_checks::rows_of(j).size() == 2);
}

TEST_CASE("several listeners end in the opposite order, and are told what they want to hear alone") {
    struct logging final : ht::range_listener {
        std::string* log;
        bool wants;
        std::string name;
        logging(std::string& to, bool all, std::string title) : log(&to), wants(all), name(std::move(title)) {}
        void begin(const char*, ht::pass) override { *log += "begin " + name + ", "; }
        void end() override { *log += "end " + name + ", "; }
        bool wants_origins() const override { return wants; }
        void layer(const char*) override { *log += "layer " + name + ", "; }
        bool wants_work() const override { return wants; }
        void work(const ht::operation_work&) override { *log += "work " + name + ", "; }
    };
    std::string log;
    logging one(log, false, "1"), two(log, true, "2");
    ht::listener_list both{{&one, &two}};
    {
        const ht::range r(&both, "x", ht::pass::forward);
        both.layer("h"), both.work({});
    }
    CHECK(log == "begin 1, begin 2, layer 2, work 2, end 2, end 1, ");
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

TEST_CASE("speed of light: parts of the backward pass, what an exception left open, other arithmetic than products, low peaks") {
    now = 0;
    ht::speed_of_light light{&hand_turned};
    light.begin_step(1);
    light.begin_scope("lost", ht::track::forward);  // its end does not come
    now += 100'000'000;
    light.begin_step(1);
    {
        const ht::scoped_range part(&light, "backward", ht::track::backward);
        now += 5'000'000;
        const ht::range r(&light, "norm", ht::pass::backward);
        light.work({.flops = 40e6, .bytes = 10e6});
        now += 20'000'000;
    }
    light.end_step();
    {
        const ht::range outside(&light, "evaluation", ht::pass::forward);
        now += 1000;
    }
    ht::machine_peaks peaks;
    for (double& rate : peaks.flops) rate = 1e9;
    peaks.bytes = 1e9;
    const ht::light_table t = light.table(peaks);
    double sum = 0;
    for (const ht::light_row& r : t.rows) {
        sum += r.seconds;
        CHECK(r.operation != "lost");
        CHECK(r.operation != "evaluation");
        if (r.operation == "backward") CHECK(r.pass == ht::pass::backward);
        if (r.operation == "norm") CHECK(r.limit == doctest::Approx(40e-3));
    }
    CHECK(sum == doctest::Approx(25e-3));
    CHECK(t.step_seconds == doctest::Approx(25e-3));
    std::ostringstream some;
    t.print(some, 0);  // norm takes half of its limit, which saves nothing of the others' 5 ms
    CHECK(some.str().find("   25.000     5.000     0.040     10.00") != std::string::npos);
    CHECK(some.str().find("too low") == std::string::npos);
    ht::light_table low = t;
    low.mfu = 1.2;
    std::ostringstream warned;
    low.print(warned);
    CHECK(warned.str().find("The peaks are too low") != std::string::npos);
}

TEST_CASE("speed of light: an operation of a layer inside another operation is a line of its own") {
    now = 0;
    ht::speed_of_light light{&hand_turned};
    light.begin_step(1);
    {
        const ht::range outer(&light, "my_block", ht::pass::forward);
        const ht::range inner(&light, "linear", ht::pass::forward);
        light.layer("h.0");
        now += 10;
    }
    light.end_step();
    const ht::light_table t = light.table({});
    CHECK(t.rows[0].operation == "linear");
    CHECK(t.rows[0].layer == "h.0");
    CHECK(t.rows[0].seconds == doctest::Approx(10e-9));
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
    peaks.flops[static_cast<int>(ht::arithmetic::bf16)] = 3e11;
    write(ht::peaks_json(peaks).dump());
    CHECK(ht::read_peaks(file).of(ht::arithmetic::bf16) == 3e11);
    for (const char* text : {"", "[]", "{\"bytes\": 1}", "{\"flops\": {\"fp32\": -1}, \"bytes\": 1}",
                             "{\"flops\": {\"fp32\": 1}}"}) {
        write(text);
        CHECK_THROWS_AS(ht::read_peaks(file), ht::argument_error);
    }
}

}  // namespace observe_trace_tests
