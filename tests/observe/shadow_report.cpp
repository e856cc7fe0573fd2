// SPDX-License-Identifier: MIT
/// \file
/// A shadow run's report: its line, its table and its JSON. The runs themselves: tests/train/shadow.cpp.
#include <cmath>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include <halftone/observe/report/json.hpp>
#include <halftone/observe/shadow/html.hpp>

namespace observe_shadow_report_tests {

namespace ht = halftone;

TEST_CASE("shadow report: its line, table and JSON") {
    ht::shadow_report report;
    CHECK(report.first() == nullptr);
    CHECK(ht::shadow_json(report).dump() == R"({"first":null,"rows":[]})");
    report.rows.push_back({.by = {"h.0.mlp", "", "mlp"},
                           .role = ht::tensor_role::value,
                           .format = ht::value_format::bfloat16,
                           .elements = 64,
                           .ratio = 0.5,
                           .value = 1,
                           .expected = 1.001,
                           .bound = 0.002});
    CHECK(report.first() == nullptr);
    report.rows.push_back({.by = {"h.1", "h.1.mlp", "own"},
                           .pass = ht::pass::backward,
                           .role = ht::tensor_role::gradient,
                           .format = ht::value_format::float16,
                           .elements = 32,
                           .beyond = 5,
                           .ratio = HUGE_VAL,
                           .at = 7,
                           .value = HUGE_VAL,
                           .expected = 70000,
                           .bound = 34.2});
    report.rows.push_back({.by = {"norm", "", ""},
                           .pass = ht::pass::update,
                           .parameter = "norm.gain",
                           .format = ht::value_format::bfloat16,
                           .elements = 16,
                           .beyond = 1,
                           .ratio = 3});
    const ht::shadow_row* first = report.first();
    REQUIRE(first == &report.rows[1]);
    CHECK(first->text() ==
          "h.1 own (after h.1.mlp), backward, gradient: 5 of 32 values beyond the bound in float16; element 7 is inf, in "
          "fp32 70000, where rounding explains a difference of 34.2");
    CHECK(report.rows[2].text() ==
          "norm.gain, the copy that kernels read: 1 of 16 values beyond the bound in bfloat16; element 0 is 0, in fp32 0, "
          "where rounding explains a difference of 0");
    std::ostringstream table;
    report.print(table);
    CHECK(table.str().find("h.0.mlp mlp ") != std::string::npos);
    CHECK(table.str().find("<\n") != std::string::npos);
    std::size_t lines = 0;
    for (const char c : table.str()) lines += c == '\n' ? 1 : 0;
    CHECK(lines == 4);
    const auto j = ht::shadow_json(report);
    CHECK(j["first"] == 1);
    REQUIRE(j["rows"].size() == 3);
    CHECK(
        j["rows"][1].dump() ==
        R"({"layer":"h.1","after":"h.1.mlp","operation":"own","pass":"backward","tensor":"gradient","parameter":"",)"
        R"("type":"float16","elements":32,"beyond":5,"ratio":"inf","at":7,"value":"inf","expected":70000.0,"bound":34.2})");
    CHECK(j["rows"][2]["pass"].is_null());
    CHECK(j["rows"][2]["tensor"] == "weight");
    const std::string page = ht::shadow_html(report, "<fp16>");
    CHECK(page.find("&lt;fp16&gt;") != std::string::npos);
    CHECK(page.find("The first: h.1 own (after h.1.mlp), backward") != std::string::npos);
    CHECK(page.find(">infinite<") < page.find("norm.gain</td>"));  // the largest ratio first
    CHECK(page.find("norm.gain</td>") < page.find("h.0.mlp mlp</td>"));
    CHECK(page.find("beyond its bound</span>") != std::string::npos);
    CHECK(page.find("nan") == std::string::npos);
    CHECK(page.find("<script") == std::string::npos);
    CHECK(ht::shadow_html({}, "none").find("No tensor is beyond its bound") != std::string::npos);
}

}  // namespace observe_shadow_report_tests
