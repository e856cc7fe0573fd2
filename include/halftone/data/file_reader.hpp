// SPDX-License-Identifier: MIT
/// \file
/// Reads parts of a file, by several threads at once. A memory map would end the program if the file became shorter
/// meanwhile; here that is an exception.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <halftone/data/data_error.hpp>

#if defined(_WIN32)
#include <fstream>
#include <memory>
#include <mutex>
#else
#include <fcntl.h>
#include <unistd.h>
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// An open regular file; `what` begins the messages.
class file_reader {
  public:
    /// Throws data_error if there is no such file, or it cannot be opened.
    file_reader(const char* what, const std::filesystem::path& path) : what_(what), path_(path) {
        std::error_code failed;
        const auto status = std::filesystem::status(path, failed);
        if (status.type() == std::filesystem::file_type::not_found) fail<data_error>(what, ": there is no ", name());
        if (failed) fail<data_error>(what, ": cannot look at ", name(), ": ", failed.message());
        if (status.type() != std::filesystem::file_type::regular) fail<data_error>(what, ": ", name(), " is not a file");
        bytes_ = std::filesystem::file_size(path, failed);
        if (failed) fail<data_error>(what, ": cannot look at ", name(), ": ", failed.message());
        open();
    }
    file_reader(const file_reader&) = delete;
    file_reader& operator=(const file_reader&) = delete;
    ~file_reader() { close(); }

    std::string name() const { return path_.string(); }
    /// When it was opened.
    std::uint64_t bytes() const { return bytes_; }

    /// Copies bytes [first, first + count). Throws data_error if they cannot be read.
    void read(std::uint64_t first, std::size_t count, void* to) const {
        std::size_t done = 0;
        while (done < count) {
            const std::size_t n = read_some(first + done, count - done, static_cast<char*>(to) + done);
            if (n == 0) {
                fail<data_error>(what_, ": ", name(), " ends at byte ", first + done, "; it had ", bytes_,
                                 " when it was opened");
            }
            done += n;
        }
    }

  private:
#if defined(_WIN32)
    void open() {
        stream_ = std::make_unique<stream>();
        stream_->file.open(path_, std::ios::binary);
        if (!stream_->file) fail<data_error>(what_, ": cannot open ", name());
    }
    void close() {}
    std::size_t read_some(std::uint64_t first, std::size_t count, char* to) const {
        const std::scoped_lock lock(stream_->mutex);
        stream_->file.clear();
        stream_->file.seekg(static_cast<std::streamoff>(first));
        stream_->file.read(to, static_cast<std::streamsize>(count));
        if (stream_->file.bad()) fail<data_error>(what_, ": cannot read ", name());
        return static_cast<std::size_t>(stream_->file.gcount());
    }
    struct stream {
        std::ifstream file;
        std::mutex mutex;
    };
    std::unique_ptr<stream> stream_;
#else
    void open() {
        handle_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
        if (handle_ < 0) fail<data_error>(what_, ": cannot open ", name(), ": ", std::strerror(errno));
    }
    void close() {
        if (handle_ >= 0) ::close(handle_);
    }
    std::size_t read_some(std::uint64_t first, std::size_t count, char* to) const {
        for (;;) {
            const ssize_t n = ::pread(handle_, to, count, static_cast<off_t>(first));
            if (n >= 0) return static_cast<std::size_t>(n);
            if (errno != EINTR) fail<data_error>(what_, ": cannot read ", name(), ": ", std::strerror(errno));
        }
    }
    int handle_ = -1;
#endif

    const char* what_;
    std::filesystem::path path_;
    std::uint64_t bytes_ = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
