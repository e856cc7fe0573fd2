// SPDX-License-Identifier: MIT
/// \file
/// Files of token ids as llm.c and nanoGPT write them.
///
///     const ht::token_file file{"fineweb_val_000000.bin", {.vocabulary = 50257}};
///     const std::vector<std::int32_t> ids = file.read();                   // all of them
///     ht::language_data data{ht::token_view{std::span{ids}}, {.context = 1024, .vocabulary = 50257}};
///
///     const ht::token_windows windows{file, 1024};                         // or read window by window, while training
///     ht::data_loader loader{windows, {.batch_size = 8, .num_workers = 1}, ht::collate_windows};
///
/// llm.c: 256 numbers of 32 bits, of which the first three are a magic number, a version and the number of tokens, then
/// the tokens in 16 bits (magic number 20240520, version 1) or 32 bits (20240801, version 7). nanoGPT: tokens in 16
/// bits and nothing else. Numbers have their lowest byte first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <halftone/data/batch_memory.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/data/data_error.hpp>
#include <halftone/io/file_reader.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What wrote a token file.
enum class token_format {
    automatic,  ///< llm.c if it begins with one of its magic numbers, which no nanoGPT file of GPT-2's tokens does
    llm_c,
    nano_gpt,
};

namespace detail::llm_c {
/// The beginning of llm.c's files, in numbers of 32 bits, and what stands there for tokens of 16 and of 32 bits.
inline constexpr std::uint64_t header_bytes = 1024;
inline constexpr std::int32_t magic_16 = 20240520, version_16 = 1, magic_32 = 20240801, version_32 = 7;
}  // namespace detail::llm_c

/// How a token file is opened.
struct token_file_options {
    extent vocabulary = 50257;  ///< every id must be below it, for which the file is read once; 0: not checked
    token_format format = token_format::automatic;
};

/// An open file of token ids. Several threads may read it at once.
class token_file {
  public:
    /// Throws data_error if the file cannot be read, has no tokens, is not of the format, has another size than it says,
    /// or has an id outside the vocabulary; argument_error for a vocabulary outside its range.
    explicit token_file(const std::filesystem::path& path, const token_file_options& options = {})
        : file_("token_file", path) {
        if (options.vocabulary < 0 || options.vocabulary > INT32_MAX)
            fail<argument_error>("token_file: a vocabulary of ", options.vocabulary, "; expected 0 to ", INT32_MAX);
        if (file_.size() == 0) fail<data_error>("token_file: ", file_.name(), " is empty");
        format_ = options.format == token_format::automatic ? format_of_file() : options.format;
        if (format_ == token_format::llm_c) {
            read_header();
        } else {
            if (file_.size() % 2 != 0) {
                fail<data_error>("token_file: ", file_.name(), " has ", file_.size(),
                                 " bytes; expected an even number, two for each token");
            }
            size_ = static_cast<extent>(file_.size() / 2);
        }
        if (options.vocabulary != 0) check_ids(options.vocabulary);
    }

    /// The number of tokens.
    extent size() const { return size_; }
    token_format format() const { return format_; }
    /// Bytes per token: 2 or 4.
    int width() const { return width_; }

    /// Copies the ids [first, first + count). Throws data_error if the file cannot be read any more.
    void copy(extent first, extent count, std::int32_t* to) const {
        constexpr extent at_once = 16384;
        unsigned char bytes[4 * at_once];
        for (extent done = 0; done < count;) {
            const extent n = std::min(at_once, count - done);
            file_.read(bytes, header_ + static_cast<std::uint64_t>(first + done) * static_cast<std::uint64_t>(width_),
                       static_cast<std::size_t>(n * width_));
            for (extent i = 0; i < n; ++i) {
                const unsigned char* const b = bytes + i * width_;
                to[done + i] = width_ == 2 ? b[0] | b[1] << 8 : number_of(b);
            }
            done += n;
        }
    }
    /// All ids, in memory.
    std::vector<std::int32_t> read() const {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(size_));
        copy(0, size_, ids.data());
        return ids;
    }

  private:
    static std::int32_t number_of(const unsigned char* b) {
        return static_cast<std::int32_t>(std::uint32_t{b[0]} | std::uint32_t{b[1]} << 8 | std::uint32_t{b[2]} << 16 |
                                         std::uint32_t{b[3]} << 24);
    }
    std::int32_t number_at(std::uint64_t byte) const {
        unsigned char b[4];
        file_.read(b, byte, 4);
        return number_of(b);
    }

    token_format format_of_file() const {
        if (file_.size() < 4) return token_format::nano_gpt;
        const std::int32_t magic = number_at(0);
        // llm.c's magic numbers are dates of 2024. As two tokens they would be 308 and a number above GPT-2's vocabulary.
        return magic >= 20240101 && magic <= 20241231 ? token_format::llm_c : token_format::nano_gpt;
    }
    void read_header() {
        using namespace detail::llm_c;
        if (file_.size() < header_bytes) {
            fail<data_error>("token_file: ", file_.name(), " has ", file_.size(), " bytes; expected a header of ",
                             header_bytes);
        }
        const std::int32_t magic = number_at(0), version = number_at(4), count = number_at(8);
        if (magic != magic_16 && magic != magic_32) {
            fail<data_error>("token_file: ", file_.name(), " begins with the number ", magic, "; expected ", magic_16,
                             " or ", magic_32, ", those of llm.c's token files");
        }
        const std::int32_t expected_version = magic == magic_16 ? version_16 : version_32;
        if (version != expected_version)
            fail<data_error>("token_file: ", file_.name(), " is of version ", version, "; expected ", expected_version);
        width_ = magic == magic_16 ? 2 : 4;
        header_ = header_bytes;
        if (count < 1) fail<data_error>("token_file: ", file_.name(), " says ", count, " tokens; expected 1 or more");
        const std::uint64_t expected = header_ + static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(width_);
        if (file_.size() != expected) {
            fail<data_error>("token_file: ", file_.name(), " says ", count, " tokens, which take ", expected,
                             " bytes with the header; it has ", file_.size());
        }
        size_ = count;
    }
    void check_ids(extent vocabulary) const {
        std::vector<std::int32_t> ids(std::size_t{1} << 16);
        for (extent first = 0; first < size_; first += static_cast<extent>(ids.size())) {
            const extent n = std::min(static_cast<extent>(ids.size()), size_ - first);
            copy(first, n, ids.data());
            for (extent i = 0; i < n; ++i) {
                const std::int32_t id = ids[static_cast<std::size_t>(i)];
                if (id < 0 || id >= vocabulary) {
                    fail<data_error>("token_file: ", file_.name(), ": token number ", first + i, " is ",
                                     static_cast<std::uint32_t>(id), "; the vocabulary has 0 to ", vocabulary - 1);
                }
            }
        }
    }

    detail::file_reader<data_error> file_;
    token_format format_ = token_format::nano_gpt;
    int width_ = 2;
    std::uint64_t header_ = 0;
    extent size_ = 0;
};

/// Consecutive windows of a token file that do not overlap: a map_source (data_loader.hpp), whose samples are context + 1
/// ids, read when they are asked for.
class token_windows {
  public:
    /// The file must outlive it. Throws argument_error for an invalid context, and data_error for a file without a
    /// complete window.
    token_windows(const token_file& file, extent context) : file_(&file), context_(context) {
        if (context < 1) fail<argument_error>("token_windows: a context of ", context, "; expected 1 token or more");
        if (file.size() <= context) {
            fail<data_error>("token_windows: the file has ", file.size(), " tokens; a context of ", context, " needs ",
                             static_cast<std::uint64_t>(context) + 1, " or more");
        }
    }

    extent context() const { return context_; }
    /// The number of windows.
    extent size() const { return (file_->size() - 1) / context_; }
    std::vector<std::int32_t> operator[](extent index) const {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(context_) + 1);
        file_->copy(index * context_, context_ + 1, ids.data());
        return ids;
    }

  private:
    const token_file* file_;
    extent context_;
};

/// A data loader's function: windows of n + 1 ids as rows of n tokens, and for each of them the id that follows.
inline language_batch collate_windows(std::span<const std::vector<std::int32_t>> windows, batch_memory& memory) {
    if (windows.empty()) return {};
    const auto time = static_cast<extent>(windows[0].size()) - 1;
    const shape<2> s{static_cast<extent>(windows.size()), time};
    const auto tokens = memory.make<std::int32_t>(s), targets = memory.make<std::int32_t>(s);
    for (std::size_t row = 0; row < windows.size(); ++row) {
        std::copy_n(windows[row].begin(), time, tokens.data() + static_cast<extent>(row) * time);
        std::copy_n(windows[row].begin() + 1, time, targets.data() + static_cast<extent>(row) * time);
    }
    return {tokens, targets};
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
