// SPDX-License-Identifier: MIT
/// \file
/// Event files that TensorBoard reads: scalars, histograms and texts.
///
///     ht::tensorboard_file events{"results/tensorboard/amp_bf16"};
///     events.scalar("train/loss", 2.41, step);             // tensorboard --logdir results/tensorboard
///
/// The file is events.out.tfevents.TIME.HOST.PID.COUNT in the folder, a new one for each object; one run a folder. Every event
/// is flushed as it is written, so that TensorBoard can follow a run, and a run that is killed leaves a file that can be read
/// to its last whole event. A process's first file in a folder begins with an event that makes readers drop what an earlier
/// process wrote from the first step on that is written again. Files of new runs have it, too: some readers take a run's first
/// such event for its beginning, and drop nothing.
///
/// A file is a sequence of records, each an Event of TensorFlow's event.proto in protocol buffers' wire format: its length
/// in 8 bytes, the masked CRC-32C of those, the Event, its masked CRC-32C. All numbers are little-endian.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <halftone/observe/metrics/output_file.hpp>
#include <halftone/observe/metrics/sink.hpp>

#if !defined(_WIN32)
#include <fcntl.h>
#include <unistd.h>
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// CRC-32C (Castagnoli), as RFC 3720 defines it.
inline std::uint32_t crc32c(std::string_view bytes) {
    static constexpr auto table = [] {
        std::array<std::uint32_t, 256> t{};
        for (std::uint32_t i = 0; i < 256; ++i) {
            std::uint32_t r = i;
            for (int bit = 0; bit < 8; ++bit) r = (r >> 1) ^ ((r & 1) != 0 ? 0x82f63b78u : 0u);
            t[i] = r;
        }
        return t;
    }();
    std::uint32_t crc = 0xffffffffu;
    for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 255];
    return ~crc;
}
/// The checksum as records have it: rotated, with a constant added, because checksums of checksums are weak.
inline std::uint32_t masked_crc32c(std::string_view bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/// A message in the wire format of protocol buffers.
class wire_message {
  public:
    wire_message& varint(int field, std::uint64_t value) {
        key(field, 0);
        number(value);
        return *this;
    }
    wire_message& real(int field, double value) {
        key(field, 1);
        fixed(std::bit_cast<std::uint64_t>(value), 8);
        return *this;
    }
    wire_message& real32(int field, float value) {
        key(field, 5);
        fixed(std::bit_cast<std::uint32_t>(value), 4);
        return *this;
    }
    wire_message& bytes(int field, std::string_view value) {
        key(field, 2);
        number(value.size());
        text_ += value;
        return *this;
    }
    wire_message& message(int field, const wire_message& inner) { return bytes(field, inner.text_); }
    wire_message& packed(int field, const std::vector<double>& values) {
        wire_message all;
        for (const double v : values) all.fixed(std::bit_cast<std::uint64_t>(v), 8);
        return message(field, all);
    }
    const std::string& text() const { return text_; }

    /// `count` bytes of a number, the lowest first.
    void fixed(std::uint64_t value, int count) {
        for (int i = 0; i < count; ++i) text_ += static_cast<char>((value >> (8 * i)) & 255);
    }

  private:
    void key(int field, unsigned type) { number(static_cast<std::uint64_t>(field) << 3 | type); }
    void number(std::uint64_t value) {
        for (; value >= 128; value >>= 7) text_ += static_cast<char>((value & 127) | 128);
        text_ += static_cast<char>(value);
    }

    std::string text_;
};

/// A record of an event file.
inline std::string event_record(std::string_view event) {
    wire_message length, all;
    length.fixed(event.size(), 8);
    all.fixed(masked_crc32c(length.text()), 4);
    wire_message checksum;
    checksum.fixed(masked_crc32c(event), 4);
    std::string record = length.text() + all.text();
    record += event;
    return record += checksum.text();
}

/// An Event with the parts that follow its time: event.proto's `wall_time` (1), `step` (2), `file_version` (3), `summary`
/// (5).
inline wire_message event_at(double seconds, std::int64_t step) {
    wire_message event;
    event.real(1, seconds);
    if (step != 0) event.varint(2, static_cast<std::uint64_t>(step));
    return event;
}
/// The bytes of a file's first record.
inline std::string version_record(double seconds) {
    return event_record(event_at(seconds, 0).bytes(3, "brain.Event:2").text());
}
/// A SessionLog (7) whose status (1) is START: readers drop events of earlier files from this step on.
inline std::string start_record(double seconds, std::int64_t step) {
    return event_record(event_at(seconds, step).message(7, wire_message().varint(1, 1)).text());
}
/// summary.proto's Summary has values (1): tag (1), simple_value (2), histo (5), tensor (8), metadata (9).
inline std::string value_record(double seconds, std::int64_t step, const wire_message& value) {
    return event_record(event_at(seconds, step).message(5, wire_message().message(1, value)).text());
}
inline wire_message scalar_value(const std::string& tag, double value) {
    return wire_message().bytes(1, tag).real32(2, static_cast<float>(value));
}
inline wire_message histogram_value(const std::string& tag, const metrics_histogram& h) {
    wire_message histogram;
    histogram.real(1, h.min).real(2, h.max).real(3, h.count).real(4, h.sum).real(5, h.sum_squares);
    histogram.packed(6, h.upper).packed(7, h.counts);
    return wire_message().bytes(1, tag).message(5, histogram);
}
/// A tensor of one string, which metadata say is for the plugin of texts.
inline wire_message text_value(const std::string& tag, const std::string& text) {
    constexpr int dt_string = 7;
    const wire_message shape = wire_message().message(2, wire_message().varint(1, 1));
    wire_message tensor;
    tensor.varint(1, dt_string).message(2, shape).bytes(8, text);
    const wire_message metadata = wire_message().message(1, wire_message().bytes(1, "text"));
    return wire_message().bytes(1, tag).message(8, tensor).message(9, metadata);
}

}  // namespace detail

/// Options of an event file.
struct tensorboard_options {
    write_errors on_error = write_errors::stop;
    std::function<void(const std::string&)> on_note{};  ///< gets a line where the run goes on without what failed
    double (*now)() = nullptr;                          ///< returns seconds since 1970; nullptr: the system's clock
};

namespace detail {

/// A new event file, and whether it is this process's first in its folder.
struct new_event_file {
    std::filesystem::path path;
    bool is_first = false;
};

/// Whether one of these files is in a folder.
inline bool has_one_of(const std::filesystem::path& folder, const std::set<std::filesystem::path>& files) {
    return std::any_of(files.begin(), files.end(), [&](const std::filesystem::path& file) {
        std::error_code error;
        return file.parent_path() == folder && std::filesystem::exists(file, error);
    });
}
/// The first of stem.0, stem.1, ... that no file has; it exists then, empty, so that no other object takes it.
inline new_event_file make_event_file(const std::filesystem::path& folder, const std::string& stem) {
    static std::mutex lock;
    static std::set<std::filesystem::path> own;  // files of this process
    const std::lock_guard<std::mutex> held(lock);
    const std::filesystem::path where = (std::filesystem::absolute(folder) / "").lexically_normal().parent_path();
    const bool is_first = !has_one_of(where, own);
    for (int count = 0;; ++count) {
        const std::string name = stem + '.' + std::to_string(count);
        const std::filesystem::path path = folder / name;
        errno = 0;
#if defined(_WIN32)
        if (std::filesystem::exists(path)) continue;
#else
        const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (file < 0 && errno == EEXIST) continue;
        if (file >= 0) ::close(file);
#endif
        own.insert(where / name);
        return {path, is_first};  // what else is wrong with it, who opens it tells
    }
}

}  // namespace detail

/// A folder's event file. Numbers are stored as floats, as TensorBoard has them.
class tensorboard_file final : public metrics_sink {
  public:
    /// Makes the folder and the file. Throws output_error, as the following do; unless the options say that the run goes
    /// on. What was written before stays, to the last whole event.
    explicit tensorboard_file(const std::filesystem::path& folder, const tensorboard_options& options = {})
        : now_(options.now != nullptr ? options.now : &system_seconds), attempt_(options.on_error, options.on_note) {
        attempt_([&] {
            output_folder made(folder);
            const detail::new_event_file made_file = detail::make_event_file(folder, name_at(now_()));
            begins_ = made_file.is_first;
            file_.emplace(made_file.path, std::ios::trunc);
            file_->write(detail::version_record(now_()));
            made.keep();
        });
    }

    /// Empty if the file could not be made.
    std::filesystem::path path() const { return file_ ? file_->path() : std::filesystem::path(); }

    void scalar(const std::string& tag, double value, std::int64_t step) override {
        write_value(step, detail::scalar_value(tag, value));
    }
    void histogram(const std::string& tag, const metrics_histogram& h, std::int64_t step) override {
        write_value(step, detail::histogram_value(tag, h));
    }
    void text(const std::string& tag, const std::string& text, std::int64_t step) override {
        write(detail::value_record(now_(), step, detail::text_value(tag, text)));
    }

  private:
    static double system_seconds() {
        return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    }
    static std::string name_at(double seconds) {
        std::string host = "localhost", process = "0";
#if !defined(_WIN32)
        char name[256] = {};
        if (gethostname(name, sizeof name - 1) == 0 && name[0] != 0) host = name;
        process = std::to_string(getpid());
#endif
        std::string time = std::to_string(static_cast<long long>(seconds));
        time.insert(0, time.size() < 10 ? 10 - time.size() : 0, '0');
        return "events.out.tfevents." + time + "." + host + "." + process;
    }
    void write_value(std::int64_t step, const detail::wire_message& value) {
        if (begins_) write(detail::start_record(now_(), step));
        begins_ = false;
        write(detail::value_record(now_(), step, value));
    }
    void write(const std::string& record) {
        if (file_) attempt_([&] { file_->write(record); });
    }

    double (*now_)();
    detail::write_attempts attempt_;
    std::optional<detail::growing_file> file_;
    bool begins_ = false;  ///< what this process writes into the folder, and no step of it has been written yet
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
