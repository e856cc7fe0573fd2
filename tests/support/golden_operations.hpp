// SPDX-License-Identifier: MIT
/// \file
/// What PyTorch's operations return, by golden/operations.txt: the types of results, and of functions of one variable their values and
/// derivatives.
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace support {

struct golden_operation {
    struct point {
        double x, value, slope, curvature;
    };
    std::string name, types_on_cuda, types_on_cpu;  ///< the operations that have the same types
    struct range {
        double low, high;
    };
    std::vector<range> ranges;                      ///< of functions: where to compute them
    std::vector<point> points;                      ///< of functions: floats of the ranges, from end to end
    std::vector<point> others;                      ///< zeros, infinities and NaN, with the value alone
};
struct golden_operations {
    std::vector<golden_operation> each;
    /// "<operation> <cuda or cpu>": lines of a region and of inputs:output for each mixture of types.
    std::map<std::string, std::vector<std::string>> types;

    const golden_operation& of(const std::string& name) const {
        for (const golden_operation& g : each) {
            if (g.name == name) return g;
        }
        FAIL("golden/operations.txt has no line of ", name);
        return each.front();
    }
};

inline std::vector<std::string> parts_of(const std::string& text, char between) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, between);) {
        const std::size_t first = part.find_first_not_of(' ');
        parts.push_back(first == std::string::npos ? "" : part.substr(first, part.find_last_not_of(' ') + 1 - first));
    }
    return parts;
}

/// "x value slope curvature, ..." or "x value, ...".
inline std::vector<golden_operation::point> points_of(const std::string& text) {
    std::vector<golden_operation::point> points;
    for (const std::string& part : parts_of(text, ',')) {
        double numbers[4] = {};
        std::size_t n = 0;
        for (const std::string& word : parts_of(part, ' ')) {
            REQUIRE_MESSAGE(n < 4, part, ": more than four numbers");
            numbers[n++] = std::strtod(word.c_str(), nullptr);
        }
        points.push_back({numbers[0], numbers[1], numbers[2], numbers[3]});
    }
    return points;
}

inline golden_operations read_golden_operations() {
    std::ifstream file(HALFTONE_TEST_DATA "/operations.txt");
    REQUIRE(file);
    golden_operations all;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        if (line[0] == '=') {
            std::string equals, operation, device, rest;
            std::istringstream words(line);
            words >> equals >> operation >> device;
            std::getline(words >> std::ws, rest);
            all.types[operation + " " + device].push_back(rest);
            continue;
        }
        const std::vector<std::string> columns = parts_of(line, '|');
        REQUIRE_MESSAGE(columns.size() >= 4, line, ": golden/operations.py completes it");
        const std::vector<std::string> types = parts_of(columns[3], ' ');
        all.each.push_back({columns[0], types.at(0), types.at(1), {}, {}, {}});
        if (columns.size() < 6) continue;
        for (const golden_operation::point& ends : points_of(columns[2])) all.each.back().ranges.push_back({ends.x, ends.value});
        all.each.back().points = points_of(columns[4]), all.each.back().others = points_of(columns[5]);
    }
    return all;
}

}  // namespace support
