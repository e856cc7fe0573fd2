// SPDX-License-Identifier: MIT
/// \file
/// A machine's peaks as JSON, so that they need not be measured again. Needs nlohmann-json.
///
///     {"flops": {"fp32": 150e9, "bf16": 300e9}, "bytes": 25e9}       // a second
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include <halftone/error.hpp>
#include <halftone/observe/profile/machine_peaks.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The peaks as JSON.
inline nlohmann::ordered_json peaks_json(const machine_peaks& p) {
    nlohmann::ordered_json flops;
    for (int a = 0; a < arithmetics; ++a) {
        if (p.flops[a] != 0) flops[name(static_cast<arithmetic>(a))] = p.flops[a];
    }
    return {{"flops", flops}, {"bytes", p.bytes}};
}

/// Reads peaks from a file; a kind of arithmetic that it does not name has the rate of fp32. Throws argument_error for a
/// file that cannot be read, or without positive rates of fp32 and bytes.
inline machine_peaks read_peaks(const std::filesystem::path& file) {
    std::ifstream in(file);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    const bool is_text = text.find('\0') == text.npos;  // where nlohmann-json would end
    const auto j = is_text ? nlohmann::json::parse(text, nullptr, false) : nlohmann::json();
    const auto number = [](const nlohmann::json& of, const char* key) {
        return of.is_object() && of.contains(key) && of[key].is_number() ? of[key].get<double>() : 0.0;
    };
    machine_peaks p;
    p.bytes = number(j, "bytes");
    const nlohmann::json flops = j.is_object() && j.contains("flops") ? j["flops"] : nlohmann::json();
    for (int a = 0; a < arithmetics; ++a) {
        const double given = number(flops, name(static_cast<arithmetic>(a)));
        p.flops[a] = given > 0 ? given : number(flops, name(arithmetic::fp32));
    }
    if (!(p.bytes > 0 && p.of(arithmetic::fp32) > 0)) {
        fail<argument_error>("peaks: ", file.string(),
                             " has no rates; expected {\"flops\": {\"fp32\": ...}, \"bytes\": ...}, each a second");
    }
    return p;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
