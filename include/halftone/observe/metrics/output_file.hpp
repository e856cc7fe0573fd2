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
///
/// Where a write fails, on a full disk say, the file ends with what was written before, whole.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
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
    kept,       ///< it begins empty, and stays once something has been written: without a commit as NAME.part
    continued,  ///< it begins with what is there, and stays, so that a run that goes on can continue it again
};

/// What becomes of a run whose figures cannot be written, because the disk is full or the folder read-only.
enum class write_errors {
    stop,   ///< output_error is thrown
    go_on,  ///< what cannot be written is left out, and on_note is told: once until a write succeeds again
};

namespace detail {

/// ": No space left on device", from errno; empty if there is no error.
inline std::string errno_reason() { return errno == 0 ? std::string() : sentence(": ", std::strerror(errno)); }

/// A file that grows by whole pieces: where one cannot be written, it ends with the one before, and later ones are tried
/// again.
class growing_file {
  public:
    /// Throws output_error if the file cannot be made.
    growing_file(std::filesystem::path path, std::ios::openmode mode) : path_(std::move(path)) {
        errno = 0;
        stream_.open(path_, std::ios::binary | mode);
        if (!stream_) fail<output_error>("output: cannot write ", path_.string(), errno_reason());
        std::error_code ignored;
        const auto size = std::filesystem::file_size(path_, ignored);
        size_ = ignored ? 0 : size;
    }

    const std::filesystem::path& path() const { return path_; }
    bool is_open() const { return stream_.is_open(); }
    std::uintmax_t size() const { return size_; }

    /// Writes and flushes, so that readers see it at once. Throws output_error, usually because the disk is full.
    void write(std::string_view piece) {
        errno = 0;
        stream_.write(piece.data(), static_cast<std::streamsize>(piece.size())).flush();
        if (stream_) {
            size_ += piece.size();
            return;
        }
        const std::string why = errno_reason();
        stream_.close();  // with what it has not written yet
        std::error_code ignored;
        std::filesystem::resize_file(path_, size_, ignored);
        stream_.clear();
        stream_.open(path_, std::ios::binary | std::ios::app);
        fail<output_error>("output: cannot write ", path_.string(), why);
    }
    /// False if what was written could not be kept; errno says why.
    bool close() {
        errno = 0;
        stream_.close();
        return static_cast<bool>(stream_);
    }

  private:
    std::filesystem::path path_;
    std::ofstream stream_;
    std::uintmax_t size_ = 0;
};

/// Calls what may throw output_error, and does with it what the options say.
class write_attempts {
  public:
    write_attempts(write_errors on_error, std::function<void(const std::string&)> on_note)
        : on_error_(on_error), on_note_(std::move(on_note)) {}

    /// Calls f(); false if it failed and the run goes on.
    template <class F>
    bool operator()(const F& f) {
        if (on_error_ == write_errors::stop) {
            f();
            return true;
        }
        try {
            f();
            has_failed_ = false;
        } catch (const output_error& e) {
            if (!std::exchange(has_failed_, true) && on_note_) on_note_(e.what());
        }
        return !has_failed_;
    }

  private:
    write_errors on_error_;
    std::function<void(const std::string&)> on_note_;
    bool has_failed_ = false;
};

}  // namespace detail

/// A file that gets its final name when it is complete: until commit() it is called NAME.part, which is removed if
/// commit() is not called.
class output_file {
  public:
    /// Throws output_error if the file cannot be made.
    explicit output_file(std::filesystem::path path, part_file part = part_file::fresh)
        : path_(std::move(path)), kind_(part), file_(part_of(path_), part == part_file::continued ? std::ios::app : std::ios::trunc) {}
    output_file(const output_file&) = delete;
    output_file& operator=(const output_file&) = delete;
    ~output_file() {
        if (!file_.is_open()) return;
        file_.close();
        remove_part();
    }

    const std::filesystem::path& path() const { return path_; }

    /// Writes and flushes, so that readers see it at once. Throws output_error, usually because the disk is full; the file
    /// then has what was written before.
    void write(std::string_view text) { file_.write(text); }

    /// Gives the file its final name, replacing an existing file. Throws output_error; then there is no new file.
    void commit() {
        std::error_code failed;
        std::string why;
        if (file_.close()) {
            std::filesystem::rename(file_.path(), path_, failed);
            if (!failed) return;
            why = ": " + failed.message();
        } else {
            why = detail::errno_reason();
        }
        remove_part();
        fail<output_error>("output: cannot write ", path_.string(), why);
    }

  private:
    static std::filesystem::path part_of(std::filesystem::path path) {
        std::error_code ignored;
        if (std::filesystem::is_directory(path, ignored)) fail<output_error>("output: ", path.string(), " is a folder");
        return path += ".part";
    }
    void remove_part() noexcept {
        if (kind_ == part_file::continued || (kind_ == part_file::kept && file_.size() != 0)) return;
        std::error_code ignored;
        std::filesystem::remove(file_.path(), ignored);
    }

    std::filesystem::path path_;
    part_file kind_;
    detail::growing_file file_;
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
