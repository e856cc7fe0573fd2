// SPDX-License-Identifier: MIT
/// \file
/// Event files to the byte, histograms, sinks, and samples of the system. tests/programs/readers.py reads such files with
/// TensorBoard itself.
#include <chrono>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#if defined(__linux__)
#include <csignal>

#include <sys/resource.h>
#endif

#include <halftone/observe/metrics/metrics.hpp>
#include <halftone/observe/metrics/system.hpp>
#include <halftone/observe/metrics/tensorboard.hpp>

#include "support/temporary_folder.hpp"

namespace observe_tensorboard_tests {

namespace ht = halftone;

double at_noon() { return 1000.5; }

std::string bytes_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
std::string hex(const std::string& bytes) {
    constexpr const char* digits = "0123456789abcdef";
    std::string text;
    for (const char c : bytes) {
        text += digits[static_cast<unsigned char>(c) >> 4];
        text += digits[c & 15];
    }
    return text;
}

/// The events of a file's text, as far as they are whole; each checksum is checked.
std::vector<std::string> events_of(const std::string& file) {
    const auto number = [&](std::size_t at, int count) {
        std::uint64_t n = 0;
        for (int i = 0; i < count; ++i) n |= static_cast<std::uint64_t>(static_cast<unsigned char>(file[at + static_cast<std::size_t>(i)])) << (8 * i);
        return n;
    };
    std::vector<std::string> all;
    for (std::size_t at = 0; at + 12 <= file.size();) {
        const std::size_t size = number(at, 8);
        REQUIRE(number(at + 8, 4) == ht::detail::masked_crc32c(file.substr(at, 8)));
        if (at + 16 + size > file.size()) break;
        all.push_back(file.substr(at + 12, size));
        REQUIRE(number(at + 12 + size, 4) == ht::detail::masked_crc32c(all.back()));
        at += 16 + size;
    }
    return all;
}

/// The events of a file that are a session_log whose status is START.
int starts_of(const std::filesystem::path& file) {
    int count = 0;
    for (const std::string& each : events_of(bytes_of(file))) count += hex(each).ends_with("3a020801") ? 1 : 0;
    return count;
}

TEST_CASE("CRC-32C of RFC 3720's examples") {
    CHECK(ht::detail::crc32c("123456789") == 0xe3069283u);
    CHECK(ht::detail::crc32c(std::string(32, '\0')) == 0x8a9136aau);
    CHECK(ht::detail::crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
}

TEST_CASE("an event file to the byte, and a truncated one to its last whole event") {
    const support::temporary_folder folder;
    std::filesystem::path path;
    {
        ht::tensorboard_file events(folder.path() / "run", {.now = &at_noon});
        path = events.path();
        events.scalar("loss", 2.5, 300);
        events.histogram("h", ht::metrics_histogram::of({1, 2, 2, 4}, 3), 1);
        events.text("note", "*x*", 0);
        CHECK(path.filename().string().starts_with("events.out.tfevents.0000001000."));
    }
    const std::string file = bytes_of(path);
    const std::vector<std::string> events = events_of(file);
    REQUIRE(events.size() == 5);
    CHECK(hex(events[0]) == "090000000000448f40" "1a0d" + hex("brain.Event:2"));
    // The whole record, with its checksums as TensorBoard's own function gives them.
    CHECK(hex(file.substr(0, 40)) == "1800000000000000" "a37f4b22" + hex(events[0]) + "aba33345");
    // wall_time, step 300, a session_log whose status is START
    CHECK(hex(events[1]) == "090000000000448f40" "10ac02" "3a020801");
    // wall_time, step 300, a summary with a value: tag and simple_value 2.5
    CHECK(hex(events[2]) == "090000000000448f40" "10ac02" "2a0d0a0b" "0a04" + hex("loss") + "1500002040");
    // min 1, max 4, num 4, sum 9, squares 25; limits 2, 3, 4; counts 3, 0, 1
    CHECK(hex(events[3]) == "090000000000448f40" "1001" "2a680a66" "0a0168" "2a61" "09000000000000f03f" "110000000000001040"
                            "190000000000001040" "210000000000002240" "290000000000003940"
                            "3218" "0000000000000040" "0000000000000840" "0000000000001040"
                            "3a18" "0000000000000840" "0000000000000000" "000000000000f03f");
    CHECK(events[4].find("note") != std::string::npos);
    for (std::size_t cut = 1; cut < 40; ++cut) CHECK(events_of(file.substr(0, file.size() - cut)).size() == 4);
}

TEST_CASE("files of one folder and second do not overwrite each other; those of one process do not end each other's runs") {
    const support::temporary_folder folder;
    ht::tensorboard_file one(folder.path(), {.now = &at_noon}), two(folder.path(), {.now = &at_noon});
    CHECK(one.path() != two.path());
    one.scalar("train/loss", 1, 1), two.scalar("eval/loss", 2, 1), one.scalar("train/loss", 3, 2);
    CHECK(starts_of(one.path()) == 1);
    CHECK(starts_of(two.path()) == 0);
    CHECK(events_of(bytes_of(one.path())).size() == 4);
    CHECK(events_of(bytes_of(two.path())).size() == 2);
}

TEST_CASE("of the files of a process that goes on with another's run the first alone makes readers drop events") {
    const support::temporary_folder folder;
    folder.write("events.out.tfevents.0000000900.host.7", "");
    ht::tensorboard_file one(folder.path(), {.now = &at_noon}), two(folder.path(), {.now = &at_noon});
    one.scalar("train/loss", 1, 6), two.scalar("eval/loss", 2, 6);
    CHECK(starts_of(one.path()) == 1);
    CHECK(starts_of(two.path()) == 0);
}

TEST_CASE("of files that threads make at once one begins a run") {
    const support::temporary_folder folder;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] { ht::tensorboard_file(folder.path(), {.now = &at_noon}).scalar("loss", 1, 1); });
    for (std::thread& each : threads) each.join();
    int files = 0, starts = 0;
    for (const auto& each : std::filesystem::directory_iterator(folder.path())) ++files, starts += starts_of(each.path());
    CHECK(files == 8);
    CHECK(starts == 1);
}

TEST_CASE("a file that goes on with a run of another process begins with its first step") {
    const support::temporary_folder folder;
    folder.write("events.out.tfevents.0000000900.host.7", "");
    ht::tensorboard_file events(folder.path(), {.now = &at_noon});
    events.text("note", "the arguments again", 0);
    events.scalar("loss", 2.5, 300);
    events.scalar("loss", 2.5, 301);
    const std::vector<std::string> all = events_of(bytes_of(events.path()));
    REQUIRE(all.size() == 5);
    // wall_time, step 300, a session_log whose status is START
    CHECK(hex(all[2]) == "090000000000448f40" "10ac02" "3a020801");
    CHECK(hex(all[3]).starts_with("090000000000448f40" "10ac02" "2a"));
    CHECK(std::filesystem::file_size(folder.path() / "events.out.tfevents.0000000900.host.7") == 0);
}

TEST_CASE("steps of one byte and of several") {
    // Field 2, then the number in sevens of bits, the lowest first.
    CHECK(hex(ht::detail::event_at(0, 127).text()).ends_with("107f"));
    CHECK(hex(ht::detail::event_at(0, 128).text()).ends_with("108001"));
    CHECK(hex(ht::detail::event_at(0, 255).text()).ends_with("10ff01"));
    CHECK(hex(ht::detail::event_at(0, 1 << 20).text()).ends_with("10808040"));
}

TEST_CASE("histograms: equal ranges, without what is not finite") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto h = ht::metrics_histogram::of({0, 1, 2, 3, nan, HUGE_VAL}, 2);
    CHECK(h.count == 4);
    CHECK(h.upper == std::vector<double>{1.5, 3});
    CHECK(h.counts == std::vector<double>{2, 2});
    CHECK(ht::metrics_histogram::of({5, 5}).counts == std::vector<double>{2});
    CHECK(ht::metrics_histogram::of({nan}).upper.empty());
    CHECK(ht::metrics_histogram::of({0.3, 0.89}, 1).upper == std::vector<double>{0.89});  // which 0.3 + (0.89 - 0.3) is not
}

TEST_CASE("a folder that cannot be written to is reported, or the run goes on without") {
    const support::temporary_folder folder;
    std::ofstream(folder.path() / "file") << "x";
    CHECK_THROWS_AS(ht::tensorboard_file(folder.path() / "file"), ht::output_error);
    CHECK_THROWS_AS(ht::tensorboard_file(folder.path() / "file" / "below"), ht::output_error);
    int notes = 0;
    ht::tensorboard_file none(folder.path() / "file" / "below", {.on_error = ht::write_errors::go_on, .on_note = [&](const std::string&) { ++notes; }});
    none.scalar("loss", 1, 1);
    CHECK(notes == 1);
    CHECK(none.path().empty());
}

#if defined(__linux__)
TEST_CASE("a disk that fills up leaves an event file of whole events, which grows again when there is room") {
    const support::temporary_folder folder;
    int notes = 0;
    ht::tensorboard_file events(folder.path(), {.on_error = ht::write_errors::go_on, .on_note = [&](const std::string&) { ++notes; }, .now = &at_noon});
    events.scalar("loss", 1, 1);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit full = before;
    full.rlim_cur = 200;
    setrlimit(RLIMIT_FSIZE, &full);
    for (int step = 2; step < 20; ++step) events.scalar("loss", 1, step);
    const std::string then = bytes_of(events.path());
    const std::size_t whole = events_of(then).size();
    events.scalar("loss", 1, 20);
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(notes == 1);
    CHECK(whole > 2);
    CHECK(whole < 8);
    CHECK(events_of(then + "x").size() == whole);  // nothing but whole events
    events.scalar("loss", 1, 21);
    CHECK(events_of(bytes_of(events.path())).size() == whole + 1);
    setrlimit(RLIMIT_FSIZE, &full);
    std::signal(SIGXFSZ, SIG_IGN);
    events.scalar("loss", 1, 22);
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(notes == 2);  // told again, since there was room in between
}
#endif

TEST_CASE("any sink gets a step's figures and the system's") {
    struct collecting : ht::metrics_sink {
        std::map<std::string, double> values;
        std::int64_t last = 0;
        void scalar(const std::string& tag, double value, std::int64_t step) override { values[tag] = value, last = step; }
    } sink;
    ht::step_metrics m{.step = 5, .loss = 2, .learning_rate = 0.5, .loss_scale = 8};
    ht::write_metrics(sink, m);
    CHECK(sink.values.count("train/grad_norm") == 0);
    m.grad_norm = 0.75;
    ht::write_metrics(sink, m);
    CHECK(sink.values["train/grad_norm"] == 0.75);
    m.grad_norm = std::numeric_limits<double>::quiet_NaN();
    ht::write_metrics(sink, m);
    CHECK(ht::is_nan(sink.values["train/grad_norm"]));  // not: not computed
    m.grad_norm = std::numeric_limits<double>::infinity();
    ht::write_metrics(sink, m);
    CHECK(ht::is_inf(sink.values["train/grad_norm"]));
    CHECK(sink.values["train/loss"] == 2);
    CHECK(sink.values["train/lr"] == 0.5);
    CHECK(sink.last == 5);
    ht::write_system(sink, {.rss_bytes = 9, .gpus = {{.watts = 300}}}, 6);
    CHECK(sink.values["system/rss_bytes"] == 9);
    CHECK(sink.values["system/gpu0/watts"] == 300);
    CHECK(ht::system_json({.rss_bytes = 9, .gpus = {{.watts = 300}}})["gpus"][0]["watts"] == 300);
}

TEST_CASE("the system is sampled on a thread of its own") {
    CHECK_THROWS_AS(ht::system_monitor({.seconds = 0}), ht::argument_error);
    ht::system_monitor monitor{{.seconds = 0.001, .most_samples = 3}};
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto samples = monitor.take();
    REQUIRE(!samples.empty());
    CHECK(samples.size() <= 3);
    CHECK(samples.back().seconds > 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (const auto& later : monitor.take()) CHECK(later.seconds > samples.back().seconds);  // each is taken once
#if defined(__linux__)
    CHECK(samples.back().rss_bytes > 1 << 20);
#endif
}

}  // namespace observe_tensorboard_tests
