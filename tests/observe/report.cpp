// SPDX-License-Identifier: MIT
/// \file
/// Curves keep extremes in limited memory; charts and reports are whole pages that load nothing and stay small.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <halftone/observe/report/report.hpp>
#include <halftone/observe/report/strip.hpp>

namespace observe_report_tests {

namespace ht = halftone;

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

TEST_CASE("points with numbers and rings, bars of parts, strips: inside their places") {
    ht::detail::chart c{.title = "t", .of_x = "MiB", .from_zero = true, .x_from_zero = true};
    c.points = {{10, 5, "1", "first: 10 & 5", 12}, {4, 20, "2", "second", 0}};
    const std::string points = c.svg();
    CHECK(count_of(points, "class=\"point\"") == 2);
    CHECK(count_of(points, "class=\"ring\"") == 1);
    CHECK(points.find("first: 10 &amp; 5") != std::string::npos);
    CHECK(points.find(">2</text></g>") != std::string::npos);
    CHECK(points.find(">0</text>") != std::string::npos);  // both axes begin there
    for (const std::string coordinate : {"cx=\"", "cy=\""}) {
        for (std::size_t at = points.find(coordinate); at != std::string::npos; at = points.find(coordinate, at + 1)) {
            const double v = std::stod(points.substr(at + 4));
            CHECK(v > 9);
            CHECK(v < (coordinate == "cx=\"" ? 345 : 172));
        }
    }
    CHECK(ht::detail::bar_chart{.title = "t"}.svg().empty());
    ht::detail::bar_chart bars{.title = "t", .unit = "MiB", .mark_name = "planned"};
    bars.rows = {{"1", "a", {{"master", 3}, {"copy", 0}, {"activation", 1}}, 2}, {"2", "b", {{"master", 8}}, 0}};
    const std::string drawn = bars.svg();
    CHECK(count_of(drawn, "<rect") == 3);
    CHECK(count_of(drawn, "class=\"mark\"") == 1);
    CHECK(drawn.find("x=\"22\" y=\"59\" width=\"330\"") != std::string::npos);  // the longest is as wide as the place
    CHECK(drawn.find("x=\"22\" y=\"17\" width=\"123.8\"") != std::string::npos);
    CHECK(drawn.find("x=\"145.8\" y=\"17\" width=\"41.2\"") != std::string::npos);
    CHECK(drawn.find("M104.5 14v20") != std::string::npos);
    CHECK(drawn.find("copy") == std::string::npos);
    const ht::detail::strip_axis axis{-30, 18};
    CHECK(axis.rectangle(-40, -28, "low") == "<rect class=\"low\" x=\"0\" width=\"3\" height=\"10\"/>");
    CHECK(axis.rectangle(19, 25, "low").empty());
    CHECK(axis.column(18, "in", 0.5) == "<rect class=\"in\" x=\"48\" width=\"1\" height=\"10\" fill-opacity=\"0.50\"/>");
    CHECK(axis.open("x").find("viewBox=\"0 0 49 10\"") != std::string::npos);
    CHECK(axis.ticks().find("left:61.22%\">0<") != std::string::npos);
}

TEST_CASE("all pages have the colours of runs, kinds of memory and passes, in light and dark") {
    const std::string page = ht::detail::drawn_page_begin("t");
    for (int k = 0; k < ht::memory_kinds; ++k) CHECK(count_of(page, "--" + std::string(ht::name(static_cast<ht::memory_kind>(k))) + ":#") == 2);
    for (int s = 0; s < 8; ++s) CHECK(count_of(page, "--s" + std::to_string(s) + ":#") == 2);
    for (const char* pass : {"--forward:#", "--backward:#", "--update:#", "--outlived:#"}) CHECK(count_of(page, pass) == 2);
}

TEST_CASE("a report says how many values are left out of its curves") {
    constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    ht::run_report run("<diverged>");
    std::int64_t step = 0;
    for (const double value : {2.5, nan, nan, infinity, infinity, -infinity})
        run.add({.step = ++step, .step_loss = value, .grad_norm = value == -infinity ? -1 : value, .learning_rate = 0.5});
    run.add_validation(step, nan);
    const std::string page = ht::report_html({.runs = {run, ht::run_report("whole")}});
    CHECK(page.find("<p class=\"dim\">Left out of the curves, since not finite: 5 &times; loss of &lt;diverged&gt;, 1 &times; validation loss of "
                    "&lt;diverged&gt;, 4 &times; gradient norm of &lt;diverged&gt;.</p>\n") != std::string::npos);
    CHECK(page.find("nan") == std::string::npos);
    CHECK(ht::report_html({.runs = {ht::run_report("whole")}}).find("not finite") == std::string::npos);
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

}  // namespace observe_report_tests
