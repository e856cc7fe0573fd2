// SPDX-License-Identifier: MIT
/// \file
/// Reads parts of a file exactly, by several threads at once.
///
///     const detail::file_reader<data_error> in("token_file", "train.bin");
///     in.read(header, 0, 8);                            // exactly 8 bytes, or data_error
///
/// Bytes are read with pread, and not through mmap, where an I/O error, or a file that another process truncates, would
/// end the program.
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
#if defined(_WIN32)
#include <io.h>
#include <memory>
#include <mutex>
#else
#include <unistd.h>
#endif

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

#if defined(_WIN32)
inline int open_to_read(const std::filesystem::path& path) { return ::_wopen(path.c_str(), _O_BINARY | _O_RDONLY); }
inline int close_file(int file) { return ::_close(file); }
/// Reads at the file's own position: one thread at a time.
inline std::ptrdiff_t read_some(int file, void* to, std::size_t bytes, std::uint64_t offset) {
    if (::_lseeki64(file, static_cast<long long>(offset), SEEK_SET) < 0) return -1;
    return ::_read(file, to, static_cast<unsigned>(bytes));
}
#else
inline int open_to_read(const std::filesystem::path& path) {
    return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is refused, not waited for
}
inline int close_file(int file) { return ::close(file); }
inline std::ptrdiff_t read_some(int file, void* to, std::size_t bytes, std::uint64_t offset) {
    return ::pread(file, to, bytes, static_cast<off_t>(offset));
}
#endif

/// The most bytes that one call reads or writes.
inline constexpr std::size_t most_at_once = std::size_t{1} << 26;

/// A regular file, opened for reading. `Error`: the exceptions that it throws.
template <class Error>
class file_reader {
  public:
    /// `what` begins the messages, and outlives the reader. Throws Error if there is no such file, it cannot be opened, or
    /// is a folder, a device or a pipe.
    file_reader(const char* what, std::filesystem::path path) : what_(what), path_(std::move(path)) {
        std::error_code failed;
        const auto status = std::filesystem::status(path_, failed);
        if (status.type() == std::filesystem::file_type::not_found) fail<Error>(what_, ": there is no ", name());
        if (failed) fail<Error>(what_, ": cannot look at ", name(), ": ", failed.message());
        if (status.type() != std::filesystem::file_type::regular) fail<Error>(what_, ": ", name(), " is not a file");
        file_ = open_to_read(path_);
        if (file_ < 0) fail_because("open", errno);
        size_ = std::filesystem::file_size(path_, failed);
        if (failed) {
            close_file(file_);
            fail<Error>(what_, ": cannot look at ", name(), ": ", failed.message());
        }
    }
    file_reader(const file_reader&) = delete;
    file_reader& operator=(const file_reader&) = delete;
    file_reader(file_reader&& other) noexcept
        : what_(other.what_), path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_(other.size_) {}
    ~file_reader() {
        if (file_ >= 0) close_file(file_);
    }

    const std::filesystem::path& path() const { return path_; }
    std::string name() const { return path_.string(); }
    /// The file's size in bytes when it was opened.
    std::uint64_t size() const { return size_; }

    /// Reads exactly these bytes. Throws Error for an I/O error, and for a file that has become shorter.
    void read(void* to, std::uint64_t offset, std::size_t bytes) const {
        auto* at = static_cast<char*>(to);
        while (bytes > 0) {
            const std::ptrdiff_t got = read_once(at, std::min(bytes, most_at_once), offset);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail_because("read", errno);
            if (got == 0) {
                fail<Error>(what_, ": ", name(), " ends at byte ", offset, "; it had ", size_, " when it was opened");
            }
            at += got, offset += static_cast<std::uint64_t>(got), bytes -= static_cast<std::size_t>(got);
        }
    }

  private:
    [[noreturn]] void fail_because(const char* verb, int code) const {
        fail<Error>(what_, ": cannot ", verb, " ", name(), ": ", std::strerror(code));
    }
    std::ptrdiff_t read_once(void* to, std::size_t bytes, std::uint64_t offset) const {
#if defined(_WIN32)
        const std::scoped_lock turn(*mutex_);
#endif
        return read_some(file_, to, bytes, offset);
    }

    const char* what_;
    std::filesystem::path path_;
    int file_ = -1;
    std::uint64_t size_ = 0;
#if defined(_WIN32)
    std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // of the file's position
#endif
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
