// SPDX-License-Identifier: MIT
/// \file
/// An overflow as JSON. Needs nlohmann-json, so no umbrella header includes it.
///
///     metrics.write_line({{"step", o.step}, {"overflow", ht::overflow_json(o)}});
///
/// Fields: result; layer, after, operation, pass, micro_batch, tensor ("value", "gradient", "parameter gradient",
/// "operand"), parameter, operand (for operands only: tensor, its 8-bit type, scale), kind ("+inf", "-inf", "NaN"),
/// type, elements, positive_infinities, negative_infinities, nans, largest; before: null, or layer, operation, largest;
/// input and weight, which the operation read and which were not finite: null, or parameter (for a weight), type,
/// elements, positive_infinities, negative_infinities, nans. For a step in which no operation gave such a value only
/// `result`.
#pragma once

#include <nlohmann/json.hpp>

#include <halftone/observe/overflow/overflow.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

inline nlohmann::ordered_json overflow_source_json(const overflow_source& s) {
    if (s.elements == 0) return nullptr;
    nlohmann::ordered_json j;
    if (!s.parameter.empty()) j["parameter"] = s.parameter;
    j["type"] = name(s.format);
    j["elements"] = s.elements;
    j["positive_infinities"] = s.found.positive_infinities;
    j["negative_infinities"] = s.found.negative_infinities;
    j["nans"] = s.found.nans;
    return j;
}

}  // namespace detail

/// The finding as a JSON object: "result" and, if it is located, the layer, the operation, its pass, and the counts.
inline nlohmann::ordered_json overflow_json(const overflow& o) {
    nlohmann::ordered_json j{{"result", name(o.result)}};
    if (!o.is_located) return j;
    j["layer"] = o.by.layer;
    j["after"] = o.by.after;
    j["operation"] = o.by.operation;
    j["pass"] = name(o.pass);
    j["micro_batch"] = o.micro_batch;
    j["tensor"] = name(o.role);
    j["parameter"] = o.parameter;
    if (o.role == tensor_role::operand)
        j["operand"] = {{"tensor", name(o.operand.tensor)}, {"type", name(o.operand.format)}, {"scale", o.scale}};
    j["kind"] = o.kind();
    j["type"] = name(o.format);
    j["elements"] = o.elements;
    j["positive_infinities"] = o.found.positive_infinities;
    j["negative_infinities"] = o.found.negative_infinities;
    j["nans"] = o.found.nans;
    j["largest"] = o.found.largest;
    if (o.before.operation.empty()) {
        j["before"] = nullptr;
    } else {
        j["before"] = {{"layer", o.before.layer}, {"operation", o.before.operation}, {"largest", o.before_largest}};
    }
    j["input"] = detail::overflow_source_json(o.input);
    j["weight"] = detail::overflow_source_json(o.weight);
    return j;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
