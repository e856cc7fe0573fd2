// SPDX-License-Identifier: MIT
/// \file
/// Curves keep extremes in limited memory; charts and reports are whole pages that load nothing and stay small.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <halftone/observe/report/report.hpp>

namespace ht = halftone;

namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
}

ht::run_report run_of(const char* name, int steps) {
    ht::run_report run{name};
    ht::memory_usage usage;
    usage.add(1 << 22, ht::memory_kind::activation);
    usage.add(1 << 21, ht::memory_kind::master);
    for (int s = 1; s <= steps; ++s) {
        run.add({.step = s,
                 .loss = 2 + 1.0 / s,
                 .step_loss = 2 + std::sin(s * 0.7) / s + (s == steps / 3 ? 50 : 0),
                 .grad_norm = 1 + std::cos(s),
                 .learning_rate = 1e-3 * s / steps,
                 .tokens_per_second = 10000.0 + s % 100,
                 .loss_scale = s < steps / 2 ? 65536.0 : 32768.0,
                 .skipped = s >= steps / 2 ? 1 : 0});
        if (s % 10 == 0) run.add_memory(0.01 * s, usage);
    }
    run.add_validation(steps, 2.5);
    run.figures = {{"loss", "2.0"}};
    run.policies = {{"h.*.up", "linear", "bfloat16", "float", "bfloat16"}};
    ht::light_table t;
    t.rows.push_back({.operation = "linear", .layer = "h.0.up", .calls = 1, .seconds = 0.01, .flops = 1e9, .limit = 0.004,
                      .bound = ht::light_bound::arithmetic});
    run.add_light(t);
    return run;
}

}  // namespace

TEST_CASE("a curve keeps its extremes, first and last points, whatever its length") {
    for (const int length : {1, 7, 100, 4097, 100000}) {
        CAPTURE(length);
        ht::curve c(64);
        for (int i = 0; i < length; ++i) c.add(i, i == length / 2 ? -9 : i == length / 3 ? 9 : std::sin(i));
        c.add(length, std::numeric_limits<double>::quiet_NaN());
        CHECK(c.not_finite() == 1);
        const auto points = c.points(20);
        CHECK(points.size() <= 4 * 20);
        CHECK(points.front().x == 0);
        CHECK(points.back().x == length - 1);
        CHECK(std::is_sorted(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.x < b.x; }));
        const auto [least, most] =
            std::minmax_element(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.y < b.y; });
        CHECK(least->y == -9);
        if (length > 3) CHECK(most->y == 9);
    }
}

TEST_CASE("ticks are round, and within the axis") {
    CHECK(ht::detail::ticks_between(0, 10, 4) == std::vector<double>{0, 5, 10});
    CHECK(ht::detail::ticks_between(2.1, 2.9, 4).front() == doctest::Approx(2.2));
    CHECK(ht::detail::ticks_between(3, 3, 4) == std::vector<double>{3});
    CHECK(ht::detail::powers_between(0, 3) == std::vector<double>{1, 10, 100, 1000});
    CHECK(ht::detail::powers_between(0, 1) == std::vector<double>{1, 2, 5, 10});
    CHECK(ht::detail::short_number(65536) == "65.54k");
    CHECK(ht::detail::short_number(3.2e6) == "3.2M");
    CHECK(ht::detail::short_number(1e-5) == "1e-05");
}

TEST_CASE("a chart of nothing is empty; of zeros and of one point it is drawn") {
    CHECK(ht::detail::chart{.title = "t"}.svg().empty());
    CHECK(ht::detail::chart{.title = "t", .is_logarithmic = true, .lines = {{"a", 0, {{1, 0}, {2, -1}}}}}.svg().empty());
    const std::string one = ht::detail::chart{.title = "<t>", .lines = {{"a", 0, {{1, 3}}}}}.svg();
    CHECK(one.find("&lt;t&gt;") != std::string::npos);
    CHECK(one.find("nan") == std::string::npos);
    CHECK(one.find("inf") == std::string::npos);
}

TEST_CASE("a report: one file, no script, nothing loaded, under a megabyte for 100,000 steps of three runs") {
    ht::report r{.title = "a & b", .facts = {{"processor", "<none>"}}, .runs = {run_of("one", 100000), run_of("two", 100000), run_of("three", 5)}};
    const std::string page = ht::report_html(r);
    CHECK(page.size() < 1'000'000);
    CHECK(page.find("<script") == std::string::npos);
    CHECK(page.find("http") == std::string::npos);
    CHECK(page.find("nan") == std::string::npos);
    CHECK(count_of(page, "<figure>") == count_of(page, "</figure>"));
    CHECK(count_of(page, "<svg") == count_of(page, "</svg>"));
    CHECK(count_of(page, "<table") == count_of(page, "</table>"));
    CHECK(count_of(page, "<div") == count_of(page, "</div>"));
    CHECK(count_of(page, "class=\"mark\"") == 3);  // a skipped step of each run
    for (const char* part : {"Loss, nats a token", "Validation loss", "Throughput", "Loss scale", "Learning rate", "Gradient norm",
                             "Memory, one", "Speed of light, two", "Policy, three", "a &amp; b", "&lt;none&gt;", "prefers-color-scheme:dark",
                             "@media print"}) {
        CAPTURE(part);
        CHECK(page.find(part) != std::string::npos);
    }
}
