// SPDX-License-Identifier: MIT
/// \file
/// metrics.jsonl has the documented fields, one line per step.
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/io/finite_json.hpp>
#include <halftone/observe/metrics/metrics.hpp>

#include "support/temporary_folder.hpp"

namespace observe_metrics_tests {

namespace ht = halftone;
using json = nlohmann::ordered_json;

TEST_CASE("a line a step, flushed, with the promised fields") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "metrics.jsonl";
    const ht::step_metrics state{.step = 10, .loss = 2.5, .learning_rate = 1e-3, .tokens_per_second = 1000, .step_ms = 4, .peak_bytes = 5000,
                                 .loss_scale = 1024, .skipped = 2, .skips = {.infinity = 1, .outlier = 1}};
    {
        ht::metrics_file metrics(path);
        metrics.write(state, {{"policy", "amp_fp16"}});
        const std::string first = support::temporary_folder::read(path.string() + ".part");
        CHECK(
            first ==
            R"({"policy":"amp_fp16","step":10,"loss":2.5,"lr":0.001,"tokens_per_second":1000.0,"step_ms":4.0,"peak_bytes":5000,)"
            R"("loss_scale":1024.0,"skipped":2,"skipped_infinity":1,"skipped_nan":0,"skipped_outlier":1})"
            "\n");
        metrics.write_line({{"step", 10}, {"validation_loss", 2.25}, {"note", "not \xff UTF-8"}});
        metrics.commit();
    }
    std::ifstream in(path);
    std::string line;
    REQUIRE(std::getline(in, line));
    CHECK(json::parse(line)["loss_scale"] == 1024.0);
    REQUIRE(std::getline(in, line));
    CHECK(json::parse(line)["validation_loss"] == 2.25);
    CHECK(!std::getline(in, line));
}

TEST_CASE("numbers that are not finite are texts, in all places of a line, and others stay numbers") {
    const support::temporary_folder folder;
    constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    ht::metrics_file metrics(folder.path() / "metrics.jsonl");
    metrics.write({.step = 1, .loss = nan, .grad_norm = infinity, .learning_rate = -infinity});
    metrics.write({.step = 2, .loss = infinity, .grad_norm = nan, .learning_rate = -nan}, {{"accuracy", -infinity}});
    ht::system_sample sample{.rss_bytes = infinity, .gpus = {{.watts = nan}}};
    metrics.write_line({{"at_step", 2}, {"system", ht::system_json(sample)}, {"list", {1, -infinity, 0.5, nullptr, std::numeric_limits<double>::max()}}});
    metrics.commit();
    std::ifstream in(folder.path() / "metrics.jsonl");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].starts_with(R"({"step":1,"loss":"nan","lr":"-inf","grad_norm":"inf","tokens_per_second":0.0,)"));
    CHECK(lines[1].starts_with(R"({"accuracy":"-inf","step":2,"loss":"inf","lr":"nan","grad_norm":"nan","tokens_per_second":0.0,)"));
    const json system = json::parse(lines[2]);
    CHECK(system["system"]["rss_bytes"] == "inf");
    CHECK(system["system"]["gpus"][0]["watts"] == "nan");
    CHECK(system["list"].dump() == R"([1,"-inf",0.5,null,1.7976931348623157e+308])");
    CHECK(ht::finite_json(nlohmann::json(nan)).dump() == R"("nan")");
    CHECK(ht::finite_json(nlohmann::json("a text")) == "a text");
}

TEST_CASE("a run whose figures cannot be written ends with output_error, or goes on and says it once") {
    const support::temporary_folder folder;
    const auto file = folder.write("file", "x");
    CHECK_THROWS_AS(ht::metrics_file(file / "below"), ht::output_error);
    std::vector<std::string> notes;
    const auto note = [&](const std::string& line) { notes.push_back(line); };
    {
        ht::metrics_file metrics(file / "below", {.on_error = ht::write_errors::go_on, .on_note = note});
        metrics.write({.step = 1});
        metrics.commit();
    }
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].starts_with("output: cannot write " + (file / "below.part").string()));
    {
        ht::metrics_file silent(file / "below", {.on_error = ht::write_errors::go_on});
        silent.write({.step = 1});
    }
    {
        ht::metrics_file late(folder.path() / "late", {.on_error = ht::write_errors::go_on, .on_note = note});
        late.write_line({{"step", 1}});
        std::filesystem::create_directories(folder.path() / "late/in");  // a folder takes the name before the commit
        late.commit();
    }
    CHECK(notes.size() == 2);
    CHECK(support::temporary_folder::read(folder.path() / "late.part") == "{\"step\":1}\n");
    CHECK(support::temporary_folder::read(file) == "x");
}

#if defined(__linux__)
TEST_CASE("a full disk: each failure is told once, until a line can be written again") {
    const support::temporary_folder folder;
    std::error_code failed;
    std::filesystem::create_symlink("/dev/full", folder.path() / "m.part", failed);
    REQUIRE(!failed);
    int notes = 0;
    ht::metrics_file metrics(folder.path() / "m", {.on_error = ht::write_errors::go_on, .on_note = [&](const std::string&) { ++notes; }});
    metrics.write({.step = 1}), metrics.write({.step = 2});
    CHECK(notes == 1);
    ht::metrics_file stops(folder.path() / "m");
    CHECK_THROWS_AS(stops.write({.step = 1}), ht::output_error);
}
#endif

}  // namespace observe_metrics_tests
