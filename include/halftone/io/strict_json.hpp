// SPDX-License-Identifier: MIT
/// \file
/// Reads JSON from files that may be damaged or hostile: refuses names that occur twice in an object (nlohmann-json
/// would silently keep the last), deep nesting, text that is not UTF-8, and anything after the value, also behind a byte of 0, which
/// ends the text for nlohmann-json.
///
///     const nlohmann::ordered_json j = detail::parse_json<safetensors_error>("model.safetensors: its header", text);
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/io/io_error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A name from a file as it stands in a sentence: at most 100 bytes, in one line.
inline std::string shown(std::string_view text) {
    std::string result(text.substr(0, 100));
    for (char& c : result) {
        if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
    }
    return text.size() > 100 ? result + "..." : result;
}

/// Throws Error, which begins with `what`, for anything but one JSON value, objects and arrays nested `most_depth` deep
/// at most.
template <class Error>
nlohmann::json parse_json(const std::string& what, std::string_view text, int most_depth = 16) {
    using json = nlohmann::json;
    if (const auto zero = text.find('\0'); zero != text.npos)
        fail<Error>(what, " is not valid JSON: a byte of 0 at ", zero, " of ", text.size(), " bytes");
    std::vector<std::set<std::string>> names;
    const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
        if (depth > most_depth) fail<Error>(what, " has values nested more than ", most_depth, " deep");
        if (event == json::parse_event_t::object_start) {
            names.emplace_back();
        } else if (event == json::parse_event_t::object_end) {
            names.pop_back();
        } else if (event == json::parse_event_t::key) {
            const auto& key = parsed.get_ref<const std::string&>();
            if (!names.back().insert(key).second) fail<Error>(what, " has the name '", shown(key), "' twice");
        }
        return true;
    };
    try {
        return json::parse(text.begin(), text.end(), check);
    } catch (const json::exception& e) {
        fail<Error>(what, " is not valid JSON: ", e.what());
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
