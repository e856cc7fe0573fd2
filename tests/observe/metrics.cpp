// SPDX-License-Identifier: MIT
/// \file
/// metrics.jsonl has the documented fields, one line per step.
#include <fstream>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <halftone/observe/metrics/metrics.hpp>

#include "support/temporary_folder.hpp"

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
        ht::step_metrics bad = state;
        bad.loss = std::numeric_limits<double>::quiet_NaN();
        metrics.write(bad);
        metrics.write_line({{"step", 10}, {"validation_loss", 2.25}, {"note", "not \xff UTF-8"}});
        metrics.commit();
    }
    std::ifstream in(path);
    std::string line;
    REQUIRE(std::getline(in, line));
    CHECK(json::parse(line)["loss_scale"] == 1024.0);
    REQUIRE(std::getline(in, line));
    CHECK(json::parse(line)["loss"].is_null());
    CHECK(json::parse(line).size() == 11);
    REQUIRE(std::getline(in, line));
    CHECK(json::parse(line)["validation_loss"] == 2.25);
    CHECK(!std::getline(in, line));
}
