// SPDX-License-Identifier: MIT
/// \file
/// A numerics view as JSON. Needs nlohmann-json, so no umbrella header includes it.
///
///     std::ofstream("numerics.json") << ht::numerics_json(view).dump();
///
/// {"step", "loss_scale", "tensors": [{"layer", "after", "operation", "pass" (null: a weight), "tensor", "parameter",
/// "type", "elements", "zeros", "infinities", "nans", "largest", "subnormal_share", "saturation_share", "doublings",
/// "underflowed", "overflowed" (null: not known), "exponents": [[exponent, count], ...], "operand": null, or {"tensor"
/// ("input", "weight", "gradient"), "scaling" ("current", "delayed"), "scale", "amax", "saturated", "flushed",
/// "flushed_by_own_scale"} of what is read in eight bits}], "proposals": [{"layer", "policy", "text", "operation"}]}; numbers that
/// are not finite, as an amax can be, are "nan", "inf" and "-inf".
#pragma once

#include <utility>

#include <nlohmann/json.hpp>

#include <halftone/io/finite_json.hpp>
#include <halftone/observe/numerics/numerics.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The view as a JSON object: "step", "loss_scale", "tensors" and "proposals".
inline nlohmann::ordered_json numerics_json(const numerics_view& view) {
    using json = nlohmann::ordered_json;
    const auto known = [](extent n) { return n < 0 ? json(nullptr) : json(n); };
    json j{
        {"step", view.step}, {"loss_scale", view.loss_scale}, {"tensors", json::array()}, {"proposals", json::array()}};
    for (const numerics_row& r : view.rows) {
        json exponents = json::array();
        for (int e = tensor_statistics::least_exponent; e <= tensor_statistics::most_exponent; ++e) {
            if (const extent n = r.counts.count(e, e); n != 0) exponents.push_back({e, n});
        }
        j["tensors"].push_back({{"layer", r.by.layer},
                                {"after", r.by.after},
                                {"operation", r.by.operation},
                                {"pass", r.is_weight() ? json(nullptr) : json(name(r.pass))},
                                {"tensor", r.tensor()},
                                {"parameter", r.parameter},
                                {"type", name(r.format)},
                                {"elements", r.counts.elements()},
                                {"zeros", r.counts.zeros},
                                {"infinities", r.counts.infinities},
                                {"nans", r.counts.nans},
                                {"largest", r.counts.largest},
                                {"subnormal_share", r.subnormal()},
                                {"saturation_share", r.saturation()},
                                {"doublings", r.doublings()},
                                {"underflowed", known(r.underflowed)},
                                {"overflowed", known(r.overflowed)},
                                {"exponents", exponents},
                                {"operand", nullptr}});
        if (!r.is_operand()) continue;
        const operand_counts& o = r.operand;
        j["tensors"].back()["operand"] = {{"tensor", name(o.tensor)},
                                          {"scaling", o.is_delayed() ? "delayed" : "current"},
                                          {"scale", o.scale},
                                          {"amax", o.amax},
                                          {"saturated", o.saturated},
                                          {"flushed", o.flushed},
                                          {"flushed_by_own_scale", o.flushed_by_own}};
    }
    for (const numerics_proposal& p : view.proposals())
        j["proposals"].push_back(
            {{"layer", p.layer}, {"policy", p.policy}, {"text", p.text}, {"operation", p.operation}});
    return finite_json(std::move(j));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
