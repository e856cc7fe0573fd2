// SPDX-License-Identifier: MIT
/// \file
/// The manifest of a checkpoint, checkpoint.json: written last, it names every other file with its size and checksum, and
/// holds the states of all parts.
///
///     {"format": "halftone checkpoint", "version": 1, "step": 300, "metrics": {"eval_loss": 2.5},
///      "parts": {"model": {...}, "optimizer": {...}, ...}, "arguments": {...},
///      "files": {"model.safetensors": {"bytes": 1234, "crc32": "00c0ffee"}, ...}, "crc32": "01234567"}
///
/// A checkpoint of several ranks (shards.hpp) has in addition their number, "ranks": 4, and of parts whose states differ
/// among ranks all of them, "of_ranks": {"random": [{...}, {...}, {...}, {...}]}.
///
/// Its own checksum is the CRC-32 of the text without it, with sorted names and without blanks: in Python
/// json.dumps(j, sort_keys=True, separators=(',', ':')), but for how it prints floating-point numbers.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <halftone/io/file.hpp>
#include <halftone/io/strict_json.hpp>
#include <halftone/version.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

inline constexpr const char* manifest_name = "checkpoint.json";
inline constexpr const char* manifest_format = "halftone checkpoint";
inline constexpr std::uint64_t most_manifest_bytes = std::uint64_t{1} << 30;

inline std::string hex(std::uint32_t sum) {
    char text[16];
    std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(sum));
    return text;
}
inline std::string sum_of(const nlohmann::json& j) {
    const std::string text = j.dump();
    crc32 sum;
    sum.add(text.data(), text.size());
    return hex(sum.value());
}

inline void write_manifest(const std::filesystem::path& folder, nlohmann::json manifest) {
    manifest["format"] = manifest_format;
    manifest["version"] = 1;
    manifest["halftone"] = sentence(HALFTONE_VERSION_MAJOR, '.', HALFTONE_VERSION_MINOR, '.', HALFTONE_VERSION_PATCH);
    manifest["crc32"] = sum_of(manifest);
    const std::string text = manifest.dump(1) + "\n";
    durable_file out(folder / manifest_name, file_naming::at_once);
    out.write(text.data(), text.size());
    out.commit();
}

/// Checks the text of a manifest; `where` begins the messages. Throws checkpoint_error.
inline nlohmann::json parse_manifest(const std::string& where, std::string_view text) {
    nlohmann::json j = parse_json<checkpoint_error>(where, text, 32);
    if (!j.is_object() || !j.contains("crc32") || j.value("format", nlohmann::json()) != manifest_format)
        fail<checkpoint_error>(where, " is not the manifest of a checkpoint");
    const nlohmann::json sum = j["crc32"];
    j.erase("crc32");
    if (sum != sum_of(j)) fail<checkpoint_error>(where, " is damaged: its checksum differs");
    if (j.value("version", nlohmann::json()) != 1)
        fail<checkpoint_error>(where, " is of version ", shown(j.value("version", nlohmann::json()).dump()), "; expected 1");
    const auto check = [&](const char* name, bool is_right) {
        if (!is_right) fail<checkpoint_error>(where, ": ", name, " is missing or of another kind");
    };
    check("step", j.contains("step") && j["step"].is_number_unsigned() && j["step"].get<std::uint64_t>() <= INT64_MAX);
    for (const char* const name : {"parts", "files", "metrics"}) check(name, j.contains(name) && j[name].is_object());
    if (j.contains("of_ranks")) {
        check("of_ranks", j["of_ranks"].is_object());
        for (const auto& [name, states] : j["of_ranks"].items()) check("of_ranks", states.is_array() && !states.empty());
    }
    for (const auto& [name, file] : j["files"].items()) {
        const bool is_plain = !name.empty() && name.find_first_of("/\\:") == std::string::npos && name[0] != '.';
        check("a file", is_plain && file.is_object() && file.contains("bytes") && file["bytes"].is_number_unsigned() &&
                            file.contains("crc32") && file["crc32"].is_string());
    }
    return j;
}

inline nlohmann::json read_manifest(const std::filesystem::path& folder) {
    const auto path = folder / manifest_name;
    return parse_manifest(path.string(), read_small_file(path, most_manifest_bytes));
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
