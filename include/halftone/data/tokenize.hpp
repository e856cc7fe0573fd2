// SPDX-License-Identifier: MIT
/// \file
/// Texts to a file of tokens, which token_file and language_data read (token_file.hpp).
///
///     const auto tokenizer = ht::tokenizer::from_file("gpt2");
///     const std::vector<std::string> texts = ...;                           // or anything with size() and [index]
///     const ht::extent count = ht::tokenize(tokenizer, texts, "train.bin", {.behind_each = "<|endoftext|>", .num_workers = 4});
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/data/token_file.hpp>
#include <halftone/data/tokenizer.hpp>
#include <halftone/io/file.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Writes a token file. Nothing of its name exists before commit().
class token_file_writer {
  public:
    /// `vocabulary`: every id is below it. llm.c's files have tokens of 16 bits where that suffices, and of 32 bits otherwise; nanoGPT's
    /// have 16. Throws argument_error for a vocabulary that the format has no numbers for, io_error if the file cannot be made.
    token_file_writer(const std::filesystem::path& path, extent vocabulary, token_format format = token_format::llm_c)
        : file_(path),
          vocabulary_(vocabulary),
          format_(format == token_format::nano_gpt ? format : token_format::llm_c) {
        constexpr extent of_16_bits = 65536;
        if (vocabulary < 1 ||
            vocabulary > (format_ == token_format::nano_gpt ? of_16_bits : std::numeric_limits<std::int32_t>::max())) {
            fail<argument_error>(
                "token_file_writer: a vocabulary of ", vocabulary,
                format_ == token_format::nano_gpt ? "; nanoGPT's files have ids of 16 bits" : "; expected 1 or more");
        }
        width_ = vocabulary <= of_16_bits ? 2 : 4;
        if (format_ == token_format::llm_c) write_header(0, false);
    }

    /// Throws argument_error for an id outside the vocabulary, data_error beyond the 2,147,483,647 tokens that a file of llm.c can have,
    /// io_error.
    void write(std::span<const std::int32_t> ids) {
        constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
        if (format_ == token_format::llm_c && static_cast<std::int64_t>(ids.size()) > most - size_)
            fail<data_error>("token_file_writer: more than ", most,
                             " tokens, which is all that a file of llm.c can have");
        std::vector<unsigned char> bytes;
        bytes.reserve(ids.size() * static_cast<std::size_t>(width_));
        for (const std::int32_t id : ids) {
            if (id < 0 || id >= vocabulary_)
                fail<argument_error>("token_file_writer: the id ", id, "; the vocabulary has 0 to ", vocabulary_ - 1);
            append(bytes, id, width_);
        }
        file_.write(bytes.data(), bytes.size());
        size_ += static_cast<extent>(ids.size());
    }
    /// The tokens written so far.
    extent size() const { return size_; }
    /// Gives the file its name. Throws data_error if it has no tokens, io_error.
    void commit() {
        if (size_ == 0) fail<data_error>("token_file_writer: there are no tokens");
        if (format_ == token_format::llm_c) write_header(static_cast<std::int32_t>(size_), true);
        file_.commit();
    }

  private:
    static void append(std::vector<unsigned char>& bytes, std::int32_t value, int width) {
        for (int i = 0; i < width; ++i)
            bytes.push_back(static_cast<unsigned char>(static_cast<std::uint32_t>(value) >> 8 * i));
    }
    void write_header(std::int32_t count, bool over) {
        using namespace detail::llm_c;
        std::vector<unsigned char> bytes;
        for (const std::int32_t value :
             {width_ == 2 ? magic_16 : magic_32, width_ == 2 ? version_16 : version_32, count})
            append(bytes, value, 4);
        bytes.resize(header_bytes);
        if (over)
            file_.replace_beginning(bytes.data(), bytes.size());
        else
            file_.write(bytes.data(), bytes.size());
    }

    detail::durable_file file_;
    extent vocabulary_;
    token_format format_;
    int width_ = 2;
    extent size_ = 0;
};

/// How texts become a token file.
struct tokenize_options {
    std::string behind_each{};  ///< a token put behind each text, "<|endoftext|>", say; none if empty
    encode_options encode{.add_special_tokens = false};
    token_format format = token_format::llm_c;
    int num_workers = 0;                           ///< threads beside the caller's; the file is the same for any number
    std::function<void(extent texts)> progress{};  ///< called now and then with the number of texts that are done
};

/// Writes the tokens of texts[0] to texts[texts.size() - 1], in this order, and returns how many there are. With workers `texts[i]` is
/// called by several threads at once. Throws argument_error for a token that the tokenizer does not have, data_error if there are no
/// tokens, io_error, and what a text throws; the file is then as it was before.
template <class Texts>
extent tokenize(const tokenizer& tokenizer, const Texts& texts, const std::filesystem::path& to,
                const tokenize_options& options = {}) {
    constexpr int most_workers = 1024;  // of a data_loader, too
    if (options.num_workers < 0 || options.num_workers > most_workers)
        fail<argument_error>("tokenize: ", options.num_workers, " workers; expected 0 to ", most_workers);
    const auto last = options.behind_each.empty() ? std::nullopt : tokenizer.id(options.behind_each);
    if (!last && !options.behind_each.empty())
        fail<argument_error>("tokenize: the tokenizer has no token ", options.behind_each);
    token_file_writer file(to, tokenizer.size(), options.format);
    const auto count = static_cast<extent>(texts.size());
    const extent threads = 1 + options.num_workers, each = 64;
    const auto part = [&](extent first) {
        std::vector<std::int32_t> ids;
        for (extent i = first; i < std::min(count, first + each); ++i) {
            tokenizer.encode(std::string_view(texts[i]), options.encode, ids);
            if (last) ids.push_back(*last);
        }
        return ids;
    };
    for (extent done = 0; done < count;) {
        std::vector<std::future<std::vector<std::int32_t>>> others;
        for (extent t = 1; t < threads && done + t * each < count; ++t)
            others.push_back(std::async(std::launch::async, part, done + t * each));
        file.write(part(done));
        for (auto& other : others) file.write(other.get());
        done = std::min(count, done + each * static_cast<extent>(1 + others.size()));
        if (options.progress) options.progress(done);
    }
    const extent tokens = file.size();
    file.commit();
    return tokens;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
