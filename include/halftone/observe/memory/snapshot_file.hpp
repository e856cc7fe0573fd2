// SPDX-License-Identifier: MIT
/// \file
/// A memory snapshot as a file, in the format that the file's name ends with. Included by history.hpp.
#pragma once

#include <string>
#include <string_view>

#include <halftone/error.hpp>
#include <halftone/observe/memory/snapshot_html.hpp>
#include <halftone/observe/memory/snapshot_json.hpp>
#include <halftone/observe/memory/snapshot_pickle.hpp>
#include <halftone/observe/metrics/output_file.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

enum class file_format { html, json, pickle };

/// The format that a file's ending names. Throws argument_error for any other ending.
inline file_format snapshot_format(std::string_view file) {
    if (file.ends_with(".html")) return file_format::html;
    if (file.ends_with(".json")) return file_format::json;
    if (file.ends_with(".pickle")) return file_format::pickle;
    fail<argument_error>("memory history: the file is '", file, "'; expected an ending .html, .json or .pickle");
}

/// Writes the file completely or not at all. Throws argument_error for another ending, and output_error.
inline void write_snapshot(const memory_snapshot& s, const std::string& file, const std::string& title) {
    const file_format format = snapshot_format(file);
    output_file out(file);
    out.write(format == file_format::html   ? memory_snapshot_html(s, title)
              : format == file_format::json ? memory_snapshot_json(s)
                                            : memory_snapshot_pickle(s));
    out.commit();
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
