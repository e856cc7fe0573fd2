// SPDX-License-Identifier: MIT
/// \file
/// What every Chrome trace must be: rows with names, no negative times, events of a row that nest.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace trace_checks {

using json = nlohmann::json;

inline json read(const std::filesystem::path& file) {
    std::ifstream in(file);
    return json::parse(in);
}

/// The names of the rows, by their numbers.
inline std::map<int, std::string> rows_of(const json& trace) {
    std::map<int, std::string> names;
    for (const json& e : trace["traceEvents"]) {
        if (e["ph"] == "M" && e["name"] == "thread_name") names[e["tid"]] = e["args"]["name"];
    }
    return names;
}

inline void check(const json& trace) {
    const auto names = rows_of(trace);
    std::map<int, std::vector<double>> open;  // the ends of the events that contain the next one
    std::map<int, double> last;
    for (const json& e : trace["traceEvents"]) {
        REQUIRE(std::set<std::string>{"X", "M", "C"}.count(e["ph"]) == 1);
        if (e["ph"] == "M") continue;
        const double begin = e["ts"];
        REQUIRE(begin >= 0);
        REQUIRE(!e["name"].get<std::string>().empty());
        if (e["ph"] == "C") continue;
        const int row = e["tid"];
        REQUIRE(names.count(row) == 1);
        const double end = begin + e["dur"].get<double>();
        REQUIRE(e["dur"] >= 0);
        REQUIRE(begin >= last[row]);  // in order
        last[row] = begin;
        auto& stack = open[row];
        constexpr double rounding = 1e-6;
        while (!stack.empty() && stack.back() <= begin + rounding) stack.pop_back();
        REQUIRE((stack.empty() || end <= stack.back() + rounding));
        stack.push_back(end);
    }
}

/// The microseconds of all events of this name in the row of this title.
inline double sum_of(const json& trace, const std::string& title, const std::string& name) {
    const auto names = rows_of(trace);
    double sum = 0;
    for (const json& e : trace["traceEvents"]) {
        if (e["ph"] == "X" && e["name"] == name && names.at(e["tid"]) == title) sum += e["dur"].get<double>();
    }
    return sum;
}

}  // namespace trace_checks
