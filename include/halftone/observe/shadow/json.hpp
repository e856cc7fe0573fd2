// SPDX-License-Identifier: MIT
/// \file
/// A shadow run's report as JSON. Needs nlohmann-json, so no umbrella header includes it.
///
///     std::ofstream("shadow.json") << ht::shadow_json(report).dump();
///
/// {"first": index of the first row beyond its bound or null, "rows": [{"layer", "after", "operation", "pass" (null: a
/// weight), "tensor", "parameter", "type", "elements", "beyond", "ratio", "at", "value", "expected", "bound"}]}; numbers
/// that are not finite are "nan", "inf" and "-inf".
#pragma once

#include <utility>

#include <nlohmann/json.hpp>

#include <halftone/io/finite_json.hpp>
#include <halftone/observe/shadow/report.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The report as a JSON object: the index of the "first" row beyond its bound, or null, and all "rows".
inline nlohmann::ordered_json shadow_json(const shadow_report& report) {
    using json = nlohmann::ordered_json;
    const shadow_row* first = report.first();
    json j{{"first", first == nullptr ? json(nullptr) : json(first - report.rows.data())}, {"rows", json::array()}};
    for (const shadow_row& r : report.rows) {
        j["rows"].push_back({{"layer", r.by.layer},
                             {"after", r.by.after},
                             {"operation", r.by.operation},
                             {"pass", r.is_weight() ? json(nullptr) : json(name(r.pass))},
                             {"tensor", r.is_weight() ? "weight" : name(r.role)},
                             {"parameter", r.parameter},
                             {"type", name(r.format)},
                             {"elements", r.elements},
                             {"beyond", r.beyond},
                             {"ratio", r.ratio},
                             {"at", r.at},
                             {"value", r.value},
                             {"expected", r.expected},
                             {"bound", r.bound}});
    }
    return finite_json(std::move(j));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
