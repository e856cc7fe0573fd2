// SPDX-License-Identifier: MIT
/// \file
/// Findings as JSON: an overflow, a numerics view, a shadow run. Needs nlohmann-json, so no umbrella header includes it.
///
///     metrics.write_line({{"step", o.step}, {"overflow", ht::overflow_json(o)}});
///     std::ofstream("numerics.json") << ht::numerics_json(view).dump();
///     std::ofstream("shadow.json") << ht::shadow_json(report).dump();
///
/// A tensor of a view or of a shadow run begins with "layer", "after", "operation", "pass" (null: a weight), "tensor",
/// "parameter", "type", "elements". Numbers that are not finite, as an amax can be, are "nan", "inf" and "-inf".
#pragma once

#include <utility>

#include <nlohmann/json.hpp>

#include <halftone/io/finite_json.hpp>
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>
#include <halftone/observe/shadow/report.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The fields with which a tensor begins, of a numerics_row or a shadow_row.
template <class Row>
nlohmann::ordered_json tensor_json(const Row& r, extent elements) {
    return {{"layer", r.by.layer},
            {"after", r.by.after},
            {"operation", r.by.operation},
            {"pass", r.is_weight() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(name(r.pass))},
            {"tensor", r.is_weight() ? "weight" : name(r.role)},
            {"parameter", r.parameter},
            {"type", name(r.format)},
            {"elements", elements}};
}
inline void put_nonfinite(nlohmann::ordered_json& j, value_format format, extent elements,
                          const kernel::nonfinite_counts& found) {
    j.update({{"type", name(format)},
              {"elements", elements},
              {"positive_infinities", found.positive_infinities},
              {"negative_infinities", found.negative_infinities},
              {"nans", found.nans}});
}
inline nlohmann::ordered_json overflow_source_json(const overflow_source& s) {
    if (s.elements == 0) return nullptr;
    nlohmann::ordered_json j;
    if (!s.parameter.empty()) j["parameter"] = s.parameter;
    put_nonfinite(j, s.format, s.elements, s.found);
    return j;
}
inline nlohmann::ordered_json operand_json(const operand_counts& o) {
    return {{"tensor", name(o.tensor)},
            {"scaling", o.is_delayed() ? "delayed" : "current"},
            {"scale", o.scale},
            {"amax", o.amax},
            {"saturated", o.saturated},
            {"flushed", o.flushed},
            {"flushed_by_own_scale", o.flushed_by_own}};
}

}  // namespace detail

/// The finding as a JSON object: "result" ("taken" or why the step was skipped) and, if it is located, "layer", "after",
/// "operation", "pass", "micro_batch", "tensor" ("value", "gradient", "parameter gradient", "operand"), "parameter",
/// "operand" (for operands only: tensor, its 8-bit type, scale), "kind" ("+inf", "-inf", "NaN"), "type", "elements",
/// "positive_infinities", "negative_infinities", "nans", "largest"; "before": null, or layer, operation, largest;
/// "input" and "weight", which the operation read and which were not finite: null, or parameter (of a weight), type,
/// elements and the three counts.
inline nlohmann::ordered_json overflow_json(const overflow& o) {
    nlohmann::ordered_json j{{"result", name(o.result)}};
    if (!o.is_located) return j;
    j.update({{"layer", o.by.layer},
              {"after", o.by.after},
              {"operation", o.by.operation},
              {"pass", name(o.pass)},
              {"micro_batch", o.micro_batch},
              {"tensor", name(o.role)},
              {"parameter", o.parameter}});
    if (o.role == tensor_role::operand)
        j["operand"] = {{"tensor", name(o.operand.tensor)}, {"type", name(o.operand.format)}, {"scale", o.scale}};
    j["kind"] = o.kind();
    detail::put_nonfinite(j, o.format, o.elements, o.found);
    j["largest"] = o.found.largest;
    j["before"] = nullptr;
    if (!o.before.operation.empty())
        j["before"] = {{"layer", o.before.layer}, {"operation", o.before.operation}, {"largest", o.before_largest}};
    j["input"] = detail::overflow_source_json(o.input);
    j["weight"] = detail::overflow_source_json(o.weight);
    return j;
}

/// The view as a JSON object: "step"; "loss_scale"; "tensors", each with "zeros", "infinities", "nans", "largest",
/// "subnormal_share", "saturation_share", "doublings", "underflowed" and "overflowed" (null: not known), "exponents"
/// ([[exponent, count], ...]) and "operand" (null, or of what is read in eight bits: "tensor" ("input", "weight",
/// "gradient"), "scaling" ("current", "delayed"), "scale", "amax", "saturated", "flushed", "flushed_by_own_scale"); and
/// "proposals": [{"layer", "policy", "text", "operation"}].
inline nlohmann::ordered_json numerics_json(const numerics_view& view) {
    using json = nlohmann::ordered_json;
    const auto known = [](extent n) { return n < 0 ? json(nullptr) : json(n); };
    json tensors = json::array(), proposals = json::array();
    for (const numerics_row& r : view.rows) {
        json exponents = json::array();
        for (int e = tensor_statistics::least_exponent; e <= tensor_statistics::most_exponent; ++e) {
            if (const extent n = r.counts.count(e, e); n != 0) exponents.push_back({e, n});
        }
        json tensor = detail::tensor_json(r, r.counts.elements());
        tensor.update({{"zeros", r.counts.zeros},
                       {"infinities", r.counts.infinities},
                       {"nans", r.counts.nans},
                       {"largest", r.counts.largest},
                       {"subnormal_share", r.subnormal()},
                       {"saturation_share", r.saturation()},
                       {"doublings", r.doublings()},
                       {"underflowed", known(r.underflowed)},
                       {"overflowed", known(r.overflowed)},
                       {"exponents", exponents},
                       {"operand", r.is_operand() ? detail::operand_json(r.operand) : json(nullptr)}});
        tensors.push_back(std::move(tensor));
    }
    for (const numerics_proposal& p : view.proposals())
        proposals.push_back({{"layer", p.layer}, {"policy", p.policy}, {"text", p.text}, {"operation", p.operation}});
    return finite_json(
        json{{"step", view.step}, {"loss_scale", view.loss_scale}, {"tensors", tensors}, {"proposals", proposals}});
}

/// The report as a JSON object: "first", the index of the first row beyond its bound, or null; and all "rows", each with
/// "beyond", "ratio", "at", "value", "expected", "bound".
inline nlohmann::ordered_json shadow_json(const shadow_report& report) {
    using json = nlohmann::ordered_json;
    const shadow_row* first = report.first();
    json j{{"first", first == nullptr ? json(nullptr) : json(first - report.rows.data())}, {"rows", json::array()}};
    for (const shadow_row& r : report.rows) {
        json tensor = detail::tensor_json(r, r.elements);
        tensor.update({{"beyond", r.beyond},
                       {"ratio", r.ratio},
                       {"at", r.at},
                       {"value", r.value},
                       {"expected", r.expected},
                       {"bound", r.bound}});
        j["rows"].push_back(std::move(tensor));
    }
    return finite_json(std::move(j));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
