// SPDX-License-Identifier: MIT
/// \file
/// A memory snapshot as JSON, for scripts and for the page of snapshot_html.hpp.
///
/// {"first_event", "events", "dropped", "peak_event", "peak_bytes", "bytes_at_peak": [of each kind], "unrecorded": [of each
/// kind: bytes from before the recording, in use throughout], "kinds", "passes", "operations", "layers": [names],
/// "columns": [names], "allocations": [[a number for each column], ...], "refused": [as allocations],
/// "parts": {"index of an allocation": [[parameter, offset, bytes], ...]}, "steps": [[step, began, ended], ...],
/// "segments": [[address, bytes, began, ended], ...]}
///
/// The columns kind, operation, pass and layer are indices into the lists of names. The columns began and ended are events,
/// -1 if there is none, and began_us and ended_us microseconds. "outlived" is the event that ended the step of an allocation
/// that is among snapshot.outliving(), -1 for all others. In Python: pandas.DataFrame(j["allocations"], columns=j["columns"]).
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <halftone/observe/memory/snapshot.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A JSON string that is also safe within an HTML page's script.
inline std::string json_text(const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += c;
        } else if (static_cast<unsigned char>(c) < 0x20 || c == '<') {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
            quoted += code;
        } else {
            quoted += c;
        }
    }
    return quoted + '"';
}

/// A JSON array of text(0) to text(count - 1).
template <class Text>
std::string json_list(std::size_t count, const Text& text) {
    std::string all(1, '[');
    for (std::size_t i = 0; i < count; ++i) {
        if (i != 0) all += ',';
        all += text(i);
    }
    all += ']';
    return all;
}

/// A list of names, each with its index, in the order of their first use.
class numbered_names {
  public:
    std::size_t index(const char* name) {
        const auto [place, is_new] = indices_.try_emplace(name, names_.size());
        if (is_new) names_.push_back(name);
        return place->second;
    }
    std::string json() const {
        return json_list(names_.size(), [&](std::size_t i) { return json_text(names_[i]); });
    }

  private:
    std::map<std::string, std::size_t> indices_;
    std::vector<std::string> names_;
};

/// Rows of numbers, each on one line.
class json_rows {
  public:
    template <class... Numbers>
    void add(const Numbers&... numbers) {
        text_ += text_.empty() ? "\n[" : ",\n[";
        (put(numbers), ...);
        text_.back() = ']';
    }
    std::string json() const { return "[" + text_ + "]"; }

  private:
    template <class Number>
    void put(const Number& n) {
        text_ += std::to_string(n);
        text_ += ',';
    }
    std::string text_;
};

inline std::uint64_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

inline std::string kinds_json(const memory_snapshot::by_kind& bytes) {
    return json_list(bytes.size(), [&](std::size_t i) { return std::to_string(bytes[i]); });
}

}  // namespace detail

/// The snapshot as a JSON object.
inline std::string memory_snapshot_json(const memory_snapshot& s) {
    detail::numbered_names operations, layers;
    detail::json_rows allocations, refused, steps, segments;
    std::string parts;
    const auto add = [&](detail::json_rows& rows, const memory_allocation& a) {
        rows.add(detail::number_of(a.address), a.bytes, static_cast<int>(a.kind), operations.index(a.operation),
                 static_cast<int>(a.of_pass), layers.index(a.layer), a.step, a.began, a.ended, a.began_at / 1000,
                 a.ended_at / 1000, s.is_leak(a) ? s.end_of_step(a) : -1);
    };
    for (std::size_t i = 0; i < s.allocations.size(); ++i) {
        add(allocations, s.allocations[i]);
        const std::vector<memory_part>& all = s.allocations[i].parts;
        if (all.empty()) continue;
        parts += (parts.empty() ? "\n\"" : ",\n\"") + std::to_string(i) + "\":" +
                 detail::json_list(all.size(), [&](std::size_t p) {
                     return "[" + detail::json_text(all[p].parameter) + ',' + std::to_string(all[p].offset) + ',' +
                            std::to_string(all[p].bytes) + ']';
                 });
    }
    for (const memory_allocation& a : s.refused) add(refused, a);
    for (const memory_step& each : s.steps) steps.add(each.step, each.began, each.ended);
    for (const memory_segment& each : s.segments)
        segments.add(detail::number_of(each.address), each.bytes, each.began, each.ended);
    const std::string kinds =
        detail::json_list(memory_kinds, [](std::size_t k) { return detail::json_text(name(static_cast<memory_kind>(k))); });
    const std::string pass_names =
        detail::json_list(passes, [](std::size_t p) { return detail::json_text(name(static_cast<pass>(p))); });
    const auto number = [](const char* key, auto value) {
        return "\"" + std::string(key) + "\":" + std::to_string(value) + ",\n";
    };
    return "{" + number("first_event", s.first_event) + number("events", s.events) + number("dropped", s.dropped) +
           number("peak_event", s.peak_event) + number("peak_bytes", s.peak_bytes) +
           "\"bytes_at_peak\":" + detail::kinds_json(s.bytes_at_peak) +
           ",\n\"unrecorded\":" + detail::kinds_json(s.unrecorded) + ",\n\"kinds\":" + kinds + ",\n\"passes\":" +
           pass_names + ",\n\"operations\":" + operations.json() + ",\n\"layers\":" + layers.json() +
           ",\n\"columns\":[\"address\",\"bytes\",\"kind\",\"operation\",\"pass\",\"layer\",\"step\",\"began\","
           "\"ended\","
           "\"began_us\",\"ended_us\",\"outlived\"],\n\"allocations\":" +
           allocations.json() + ",\n\"refused\":" + refused.json() + ",\n\"parts\":{" + parts +
           "},\n\"steps\":" + steps.json() + ",\n\"segments\":" + segments.json() + "}\n";
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
