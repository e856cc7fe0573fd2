// SPDX-License-Identifier: MIT
/// \file
/// Files that are read exactly, and files that are written completely or not at all.
///
///     const detail::input_file in("model.safetensors");
///     in.read(header, 0, 8);                            // exactly 8 bytes, or io_error
///
///     detail::durable_file out("model.safetensors");     // is called model.safetensors.part until
///     out.write(bytes, count);
///     out.commit();                                     // flushed to the disk, then renamed
///
/// A commit is: write, fsync the file, close, rename, fsync the folder. So after a crash at any time the final name is
/// that of the old file or of the complete new one.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#if defined(_WIN32)
#include <io.h>
#else
#include <unistd.h>
#endif

#include <halftone/io/crc32.hpp>
#include <halftone/io/file_reader.hpp>
#include <halftone/io/io_error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

[[noreturn]] inline void fail_io(const char* what, const std::filesystem::path& path, int code) {
    fail<io_error>("io: cannot ", what, " ", path.string(), ": ", std::strerror(code));
}

/// What the system knows of a file or a folder. Throws io_error if it cannot tell whether there is one: for a name too long, and in
/// a folder that may not be searched.
inline std::filesystem::file_status status_of(const std::filesystem::path& path) {
    std::error_code failed;
    const auto found = std::filesystem::status(path, failed);
    if (!std::filesystem::status_known(found)) fail_io("find", path, failed.value());
    return found;
}
inline bool is_there(const std::filesystem::path& path) { return std::filesystem::exists(status_of(path)); }
inline bool is_folder(const std::filesystem::path& path) { return std::filesystem::is_directory(status_of(path)); }

#if defined(_WIN32)
inline int open_to_write(const std::filesystem::path& path) {
    return ::_wopen(path.c_str(), _O_BINARY | _O_CREAT | _O_TRUNC | _O_WRONLY, _S_IREAD | _S_IWRITE);
}
inline int flush_file(int file) { return ::_commit(file); }
inline int seek_to_beginning(int file) { return ::_lseeki64(file, 0, SEEK_SET) == 0 ? 0 : -1; }
inline std::ptrdiff_t write_some(int file, const void* from, std::size_t bytes) {
    return ::_write(file, from, static_cast<unsigned>(bytes));
}
inline void flush_folder(const std::filesystem::path&) {}  // Windows has nothing like it
#else
inline int open_to_write(const std::filesystem::path& path) {
    return ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
}
inline int flush_file(int file) { return ::fsync(file); }
inline int seek_to_beginning(int file) { return ::lseek(file, 0, SEEK_SET) == 0 ? 0 : -1; }
inline std::ptrdiff_t write_some(int file, const void* from, std::size_t bytes) { return ::write(file, from, bytes); }
/// Makes the names in a folder durable.
inline void flush_folder(const std::filesystem::path& folder) {
    const std::filesystem::path& named = folder.empty() ? std::filesystem::path(".") : folder;
    const int file = ::open(named.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (file < 0) fail_io("open", named, errno);
    // Some file systems have no fsync of a folder, and need none.
    const int failed = ::fsync(file) != 0 && errno != EINVAL && errno != ENOTSUP ? errno : 0;
    ::close(file);
    if (failed != 0) fail_io("write", named, failed);
}
#endif

/// Gives a file or a folder another name, which replaces a file of that name.
inline void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::error_code failed;
    std::filesystem::rename(from, to, failed);
    if (failed) fail<io_error>("io: cannot rename ", from.string(), " to ", to.string(), ": ", failed.message());
}

/// A file that is read, whose exceptions are io_error.
class input_file : public file_reader<io_error> {
  public:
    /// Throws io_error if it cannot be opened, or is a folder, a device or a pipe.
    explicit input_file(std::filesystem::path path) : file_reader("io", std::move(path)) {}
};

/// The contents of a small file. Throws io_error, also if it has more than `most` bytes.
inline std::string read_small_file(const std::filesystem::path& path, std::uint64_t most) {
    const input_file in(path);
    if (in.size() > most)
        fail<io_error>("io: ", path.string(), " has ", in.size(), " bytes; expected ", most, " at most");
    std::string text(static_cast<std::size_t>(in.size()), '\0');
    in.read(text.data(), 0, text.size());
    return text;
}

/// Whether a file is written under another name until it is complete.
enum class file_naming {
    part_first,  ///< as NAME.part; commit() renames it
    at_once,     ///< for a file in a folder that is renamed as a whole
};

/// A file that is written from its beginning to its end.
class durable_file {
  public:
    /// Throws io_error if it cannot be made.
    explicit durable_file(std::filesystem::path path, file_naming naming = file_naming::part_first)
        : path_(std::move(path)), written_(path_), naming_(naming) {
        if (naming_ == file_naming::part_first) written_ += ".part";
        std::error_code ignored;
        if (std::filesystem::is_directory(path_, ignored)) fail<io_error>("io: ", path_.string(), " is a folder");
        file_ = open_to_write(written_);
        if (file_ < 0) fail_io("write", written_, errno);
    }
    durable_file(const durable_file&) = delete;
    durable_file& operator=(const durable_file&) = delete;
    /// Removes what was not committed.
    ~durable_file() {
        if (file_ < 0) return;
        close_file(file_);
        remove();
    }

    /// Throws io_error, usually because the disk is full.
    void write(const void* from, std::size_t bytes) {
        const auto* at = static_cast<const char*>(from);
        sum_.add(from, bytes);
        size_ += bytes;
        while (bytes > 0) {
            const std::ptrdiff_t put = write_some(file_, at, std::min(bytes, most_at_once));
            if (put < 0 && errno == EINTR) continue;
            if (put <= 0) fail_io("write", written_, put < 0 ? errno : ENOSPC);
            at += put, bytes -= static_cast<std::size_t>(put);
        }
    }
    /// Writes over the first bytes of the file, after which it can only be committed: for a header that tells what follows. checksum()
    /// does not count them. Throws io_error.
    void replace_beginning(const void* from, std::size_t bytes) {
        if (seek_to_beginning(file_) != 0) fail_io("write", written_, errno);
        const std::uint64_t size = size_;
        const crc32 sum = sum_;
        write(from, bytes);
        size_ = size;
        sum_ = sum;
    }
    /// The bytes written so far, and their CRC-32.
    std::uint64_t size() const { return size_; }
    std::uint32_t checksum() const { return sum_.value(); }

    /// Flushes the file to the disk, and gives it its final name, replacing an earlier file. Throws io_error.
    void commit() {
        const int failed_flush = flush_file(file_) != 0 ? errno : 0;
        const int failed_close = close_file(std::exchange(file_, -1)) != 0 ? errno : 0;
        try {
            if (failed_flush != 0 || failed_close != 0)
                fail_io("write", written_, failed_flush != 0 ? failed_flush : failed_close);
            if (naming_ == file_naming::at_once) return;
            rename_path(written_, path_);
        } catch (...) {
            remove();
            throw;
        }
        flush_folder(path_.parent_path());
    }

  private:
    void remove() const noexcept {
        std::error_code ignored;
        std::filesystem::remove(written_, ignored);
    }

    std::filesystem::path path_, written_;
    file_naming naming_;
    int file_ = -1;
    crc32 sum_;
    std::uint64_t size_ = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
