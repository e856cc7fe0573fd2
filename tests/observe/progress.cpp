// SPDX-License-Identifier: MIT
/// \file
/// The progress bar on a terminal of any width, and plain lines elsewhere. The test passes the time, so that every line is known.
#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/observe/metrics/progress.hpp>

namespace observe_progress_tests {

namespace ht = halftone;

const ht::progress_state halfway{
    .step = 50, .loss = 2.41314, .learning_rate = 3e-4, .loss_scale = 65536, .tokens_per_second = 11234, .bytes = 84.4 * (1 << 20)};

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::string drawn(int columns, const ht::progress_state& state = halfway, double seconds = 20) {
    std::ostringstream out;
    ht::progress bar(out, "amp_fp16", 100, {.columns = columns});
    bar.update(state, seconds);
    return out.str();
}

TEST_CASE("the bar, where the terminal is wide enough for all fields") {
    CHECK(drawn(140) ==
          "\ramp_fp16  50% [###############---------------]  50/100  loss 2.4131  lr 3.00e-04  scale 65536  11.2k "
          "tokens/s  84 MiB  0:20 left\x1b[K");
}

TEST_CASE("a narrow terminal loses fields and never wraps") {
    for (int columns = 1; columns < 200; ++columns) {
        const std::string line = drawn(columns);
        REQUIRE(line.front() == '\r');
        REQUIRE(line.substr(line.size() - 3) == "\x1b[K");
        REQUIRE(static_cast<int>(line.size()) - 4 < columns + (columns == 1));
        // A field is shown whole or not at all.
        for (const std::string field :
             {"  50/100", "  loss 2.4131", "  lr 3.00e-04", "  scale 65536", "  11.2k tokens/s", "  84 MiB", "  0:20 left"}) {
            REQUIRE((line.find(field.substr(0, 5)) == std::string::npos) == (line.find(field) == std::string::npos));
        }
    }
    CHECK(drawn(40) == "\ramp_fp16  50%  loss 2.4131  0:20 left\x1b[K");
    CHECK(drawn(27) == "\ramp_fp16  50%  loss 2.4131\x1b[K");
    CHECK(drawn(80).find("50/100  loss 2.4131") != std::string::npos);
}

TEST_CASE("memory and the learning rate are shown only beside a bar of ten characters") {
    for (int columns = 1; columns < 200; ++columns) {
        const std::string line = drawn(columns);
        const auto bar = std::count_if(line.begin(), line.end(), [](char c) { return c == '#'; });
        if (line.find("MiB") != std::string::npos || line.find("  lr ") != std::string::npos) REQUIRE(bar >= 5);  // half of it
    }
    ht::progress_state unscaled = halfway;
    unscaled.loss_scale = 0;
    CHECK(drawn(80, unscaled) == "\ramp_fp16  50% [#######--------]  50/100  loss 2.4131  11.2k tokens/s  0:20 left\x1b[K");
    CHECK(drawn(82, unscaled).find("MiB") == std::string::npos);
    CHECK(drawn(83, unscaled) == "\ramp_fp16  50% [#####-----]  50/100  loss 2.4131  11.2k tokens/s  84 MiB  0:20 left\x1b[K");
}

TEST_CASE("memory in its unit, and rates of other things than tokens") {
    const auto memory = [](double mebibytes) { return drawn(140, {.step = 1, .bytes = mebibytes * (1 << 20)}); };
    CHECK(memory(0).find("iB") == std::string::npos);
    CHECK(memory(1.25).find("  1.2 MiB  ") != std::string::npos);
    CHECK(memory(9999).find("  9999 MiB  ") != std::string::npos);
    CHECK(memory(20480).find("  20.0 GiB  ") != std::string::npos);
    std::ostringstream out;
    ht::progress bar(out, "p", 100, {.unit = "samples"});
    bar.update(halfway, 20);
    CHECK(out.str().find("  11.2k samples/s  84 MiB  0:20 left") != std::string::npos);
}

TEST_CASE("the line is redrawn ten times a second at most, but the last step is always shown") {
    std::ostringstream out;
    ht::progress bar(out, "p", 100, {.columns = 80});
    for (int step = 1; step <= 99; ++step) bar.update({.step = step}, 0.001 * step);
    const std::string before = out.str();
    CHECK(std::count(before.begin(), before.end(), '\r') == 1);
    bar.update({.step = 100}, 0.1);
    const std::string after = out.str();
    CHECK(std::count(after.begin(), after.end(), '\r') == 2);
    CHECK(after.find("100%") != std::string::npos);
    CHECK(after.back() == 'K');
    bar.finish();
    bar.finish();
    CHECK(out.str() == after + "\n");
}

TEST_CASE("each redraw is one write, so that nothing flickers") {
    struct counting : std::stringbuf {
        int writes = 0;
        std::streamsize xsputn(const char* s, std::streamsize n) override {
            ++writes;
            return std::stringbuf::xsputn(s, n);
        }
    } buffer;
    std::ostream out(&buffer);
    ht::progress bar(out, "p", 100, {.columns = 80});
    bar.update(halfway, 20);
    CHECK(buffer.writes == 1);
}

TEST_CASE("an open line is ended before other output") {
    std::ostringstream out;
    {
        ht::progress bar(out, "p", 100, {.columns = 80});
        bar.update(halfway, 20);
    }
    CHECK(out.str().back() == '\n');
    std::ostringstream noted;
    {
        ht::progress bar(noted, "p", 100, {.columns = 80});
        bar.update(halfway, 20);
        bar.note("evaluated");
    }
    CHECK(noted.str().find("\r\x1b[Kevaluated\n") != std::string::npos);
    CHECK(noted.str().back() == '\n');
}

TEST_CASE("not a terminal: ten plain lines over a run, without control characters") {
    std::ostringstream out;
    {
        ht::progress bar(out, "amp_bf16", 250, {});
        for (int step = 1; step <= 250; ++step)
            bar.update({.step = step, .loss = 3, .learning_rate = 1e-3, .tokens_per_second = 900}, 0.01 * step);
    }
    const std::vector<std::string> lines = lines_of(out.str());
    REQUIRE(lines.size() == 10);
    CHECK(lines[0] == "amp_bf16  10%  25/250  loss 3.0000  lr 1.00e-03  900 tokens/s  0:02 left");
    CHECK(lines[9] == "amp_bf16 100%  250/250  loss 3.0000  lr 1.00e-03  900 tokens/s  0:03");
    CHECK(out.str().find('\r') == std::string::npos);
    CHECK(out.str().find('\x1b') == std::string::npos);
}

TEST_CASE("not a terminal: a slow run writes a line every half minute") {
    std::ostringstream out;
    ht::progress bar(out, "p", 1000, {});
    for (int step = 1; step <= 20; ++step) bar.update({.step = step}, 10.0 * step);
    CHECK(lines_of(out.str()).size() == 6);  // at 30, 60, … 180 seconds
}

TEST_CASE("NaN and infinities, and times beyond any measure") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(drawn(140, {.step = 1, .loss = nan}).find("loss not finite") != std::string::npos);
    CHECK(drawn(140, {.step = 0}, 0).find("left") == std::string::npos);
    CHECK(drawn(140, {.step = 1}, 60).find("1:39:00 left") != std::string::npos);
    CHECK_NOTHROW(drawn(140, {.step = 1, .learning_rate = nan, .tokens_per_second = 1e300}, 1e300));
}

}  // namespace observe_progress_tests
