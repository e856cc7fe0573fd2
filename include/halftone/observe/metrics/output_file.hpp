// SPDX-License-Identifier: MIT
/// \file
/// Files that are written completely or not at all.
///
///     ht::output_folder folder{"results"};             // made if it does not exist
///     ht::output_file file{folder.path() / "summary.json"};
///     file.write(text);
///     file.commit();                                   // summary.json now exists, and is the new one
///     folder.keep();
///
/// Until its commit a file is called `<name>.part`. Files that were not committed, and folders that were not kept, are
/// removed by their objects' destructors: a failed run leaves nothing behind, and earlier files stay intact.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A file or folder that cannot be made or written.
struct output_error : error {
    using error::error;
};

/// What becomes of NAME.part, the name of an output_file until its commit.
enum class part_file {
    fresh,      ///< it begins empty, and is removed without a commit
    continued,  ///< it begins with what is there, and stays, so that a run that goes on can continue it again
};

/// A file that gets its final name when it is complete: until commit() it is called NAME.part, which is removed if
/// commit() is not called.
class output_file {
  public:
    /// Throws output_error if the file cannot be made.
    explicit output_file(std::filesystem::path path, part_file part = part_file::fresh)
        : path_(std::move(path)), part_(path_), kind_(part) {
        part_ += ".part";
        std::error_code ignored;
        if (std::filesystem::is_directory(path_, ignored))
            fail<output_error>("output: ", path_.string(), " is a folder");
        errno = 0;
        stream_.open(part_, std::ios::binary | (part == part_file::fresh ? std::ios::trunc : std::ios::app));
        if (!stream_) fail<output_error>("output: cannot write ", part_.string(), reason());
    }
    output_file(const output_file&) = delete;
    output_file& operator=(const output_file&) = delete;
    ~output_file() {
        if (!stream_.is_open()) return;
        stream_.close();
        if (kind_ == part_file::continued) return;
        std::error_code ignored;
        std::filesystem::remove(part_, ignored);
    }

    const std::filesystem::path& path() const { return path_; }

    /// Writes and flushes, so that readers see it at once. Throws output_error, usually because the disk is full.
    void write(std::string_view text) {
        errno = 0;
        stream_.write(text.data(), static_cast<std::streamsize>(text.size())).flush();
        if (!stream_) fail<output_error>("output: cannot write ", part_.string(), reason());
    }

    /// Gives the file its final name, replacing an existing file. Throws output_error; then there is no new file.
    void commit() {
        errno = 0;
        stream_.close();
        std::error_code failed;
        if (stream_) {
            std::filesystem::rename(part_, path_, failed);
            if (!failed) return;
        }
        std::string why = failed ? ": " + failed.message() : reason();
        if (kind_ == part_file::fresh) std::filesystem::remove(part_, failed);
        fail<output_error>("output: cannot write ", path_.string(), why);
    }

  private:
    static std::string reason() { return errno == 0 ? std::string() : detail::sentence(": ", std::strerror(errno)); }

    std::filesystem::path path_, part_;
    part_file kind_;
    std::ofstream stream_;
};

/// A folder for a run's files. Unless it is kept, it is removed at the end, with the folders above it that were made
/// for it.
class output_folder {
  public:
    /// Makes the folder, and missing folders above it. Throws output_error if that fails.
    explicit output_folder(std::filesystem::path path) : path_(std::move(path)) {
        namespace fs = std::filesystem;
        if (path_.empty()) fail<output_error>("output: the folder's name is empty");
        fs::path each = path_.root_path();  // \\server\share as a whole has no folder above
        std::error_code failed;
        for (const fs::path& part : path_.relative_path()) {
            each /= part;
            if (fs::is_directory(each, failed)) continue;
            if (!fs::create_directory(each, failed) && failed) {
                const std::string why = failed.message();
                remove_made();
                fail<output_error>("output: cannot make the folder ", each.string(), ": ", why);
            }
            if (!fs::is_directory(each, failed)) {
                remove_made();
                fail<output_error>("output: ", each.string(), " is no folder");
            }
            made_.push_back(each);
        }
    }
    output_folder(const output_folder&) = delete;
    output_folder& operator=(const output_folder&) = delete;
    ~output_folder() { remove_made(); }

    const std::filesystem::path& path() const { return path_; }

    /// Keeps the folder from now on.
    void keep() { made_.clear(); }

  private:
    /// Removes the folders that the constructor made, if they are empty.
    void remove_made() noexcept {
        std::error_code failed;
        while (!made_.empty()) {
            std::filesystem::remove(made_.back(), failed);
            made_.pop_back();
        }
    }

    std::filesystem::path path_;
    std::vector<std::filesystem::path> made_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
