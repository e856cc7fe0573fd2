// SPDX-License-Identifier: MIT
/// \file
/// Numbers that are not finite in JSON, which has none: "nan", "inf" and "-inf" in place of the null that nlohmann-json
/// would write for each of them. Checkpoints, metrics.jsonl and the programs' files have them so; Python's float(), C's strtod
/// and pandas.read_json read these texts as the numbers.
///
///     file << ht::finite_json(summary).dump(2);
#pragma once

#include <utility>

#include <nlohmann/json.hpp>

#include <halftone/config.hpp>
#include <halftone/number/classify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The text of a number that is not finite.
inline const char* not_finite_text(double x) { return is_nan(x) ? "nan" : x > 0 ? "inf" : "-inf"; }

}  // namespace detail

/// The JSON with a text, "nan", "inf" or "-inf", for each number that is not finite.
template <class Json>
Json finite_json(Json j) {
    if (j.is_number_float()) {
        if (const auto x = j.template get<double>(); !is_finite(x)) j = detail::not_finite_text(x);
    } else if (j.is_structured()) {
        for (auto& each : j) each = finite_json(std::move(each));
    }
    return j;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
