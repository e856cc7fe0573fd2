// SPDX-License-Identifier: MIT
/// \file
/// Text as bytes: reads files and folders into one corpus.
///
///     const std::string corpus = ht::read_text({"king_james.txt", "books/"});
///
/// The order is fixed: paths as given, a folder's files sorted by path. Bytes are not converted; files are
/// concatenated. Errors in a source are reported in one sentence, before anything is used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <halftone/data/data_error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Which files are read, and how many bytes at most.
struct text_options {
    /// If not empty, only those files of a folder are read whose names end in one of these (".md"). A file that is
    /// given by name is always read.
    std::vector<std::string> extensions = {};
    /// More bytes than this throw an error, before memory runs out.
    std::uint64_t limit = std::uint64_t{1} << 36;
};

namespace detail {

inline bool has_extension(const std::filesystem::path& file, const std::vector<std::string>& extensions) {
    return extensions.empty() ||
           std::find(extensions.begin(), extensions.end(), file.extension().string()) != extensions.end();
}

inline bool is_readable_kind(std::filesystem::file_type type) {
    // Pipes are allowed: a shell's <(command) is one. Devices are not, because they have no end.
    return type == std::filesystem::file_type::regular || type == std::filesystem::file_type::fifo;
}

/// Appends the files of a folder and its subfolders, sorted. Names that begin with a dot are skipped (version control,
/// say).
inline void append_folder(const std::filesystem::path& folder, const text_options& options,
                          std::vector<std::filesystem::path>& files) {
    namespace fs = std::filesystem;
    const std::size_t before = files.size();
    std::error_code failed;
    fs::recursive_directory_iterator each(folder, failed), end;
    while (!failed && each != end) {
        const fs::directory_entry& entry = *each;
        std::error_code ignored;
        if (entry.path().filename().string().front() == '.') {
            each.disable_recursion_pending();
        } else if (entry.is_regular_file(ignored) && has_extension(entry.path(), options.extensions)) {
            files.push_back(entry.path());
        }
        each.increment(failed);
    }
    if (failed) fail<data_error>("text: cannot list the folder ", folder.string(), ": ", failed.message());
    if (files.size() == before) {
        std::string wanted;
        for (const std::string& extension : options.extensions)
            wanted += (wanted.empty() ? " that end in " : ", ") + extension;
        fail<data_error>("text: the folder ", folder.string(), " holds no files", wanted);
    }
    // By the generic spelling of paths, which is the same on every system.
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end(),
              [](const fs::path& a, const fs::path& b) { return a.generic_string() < b.generic_string(); });
}

/// Appends a file's bytes; `what` begins the messages.
inline void append_file(const char* what, const std::filesystem::path& file, std::uint64_t limit, std::string& to) {
    std::ifstream in(file, std::ios::binary);
    if (!in) fail<data_error>(what, ": cannot open ", file.string());
    char chunk[1 << 16];
    while (in.read(chunk, sizeof chunk), in.gcount() > 0) {
        to.append(chunk, static_cast<std::size_t>(in.gcount()));
        if (to.size() > limit) fail<data_error>(what, ": more than ", limit, " bytes up to ", file.string());
    }
    if (in.bad()) fail<data_error>(what, ": cannot read ", file.string());
}

/// The bytes of one file that must exist.
inline std::string read_file(const char* what, const std::filesystem::path& file, std::uint64_t limit) {
    std::error_code failed;
    const std::filesystem::file_status status = std::filesystem::status(file, failed);
    if (status.type() == std::filesystem::file_type::not_found) fail<data_error>(what, ": there is no ", file.string());
    if (failed) fail<data_error>(what, ": cannot look at ", file.string(), ": ", failed.message());
    if (!is_readable_kind(status.type())) fail<data_error>(what, ": ", file.string(), " is not a file");
    std::string bytes;
    append_file(what, file, limit, bytes);
    return bytes;
}

}  // namespace detail

/// The files in `paths`, which are files and folders, in the order in which they are read. Throws data_error for a path
/// that does not exist, cannot be listed, or is neither file nor folder, and for a folder without files.
inline std::vector<std::filesystem::path> text_files(const std::vector<std::filesystem::path>& paths,
                                                     const text_options& options = {}) {
    namespace fs = std::filesystem;
    std::vector<fs::path> files;
    for (const fs::path& path : paths) {
        std::error_code failed;
        const fs::file_status status = fs::status(path, failed);
        if (status.type() == fs::file_type::not_found) fail<data_error>("text: there is no ", path.string());
        if (failed) fail<data_error>("text: cannot look at ", path.string(), ": ", failed.message());
        if (fs::is_directory(status)) {
            detail::append_folder(path, options, files);
        } else if (detail::is_readable_kind(status.type())) {
            files.push_back(path);
        } else {
            fail<data_error>("text: ", path.string(), " is neither a file nor a folder");
        }
    }
    return files;
}

/// The bytes of all these files. Throws data_error as text_files does, for a file that cannot be read, and if all are
/// empty.
inline std::string read_text(const std::vector<std::filesystem::path>& paths, const text_options& options = {}) {
    const auto files = text_files(paths, options);
    if (files.empty()) fail<data_error>("text: no path was given");
    std::string corpus;
    for (const auto& file : files) detail::append_file("text", file, options.limit, corpus);
    if (corpus.empty()) {
        fail<data_error>("text: ", paths.front().string(),
                         files.size() > 1 ? " and what follows it are empty" : " is empty");
    }
    return corpus;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
