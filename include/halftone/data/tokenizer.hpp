// SPDX-License-Identifier: MIT
/// \file
/// Tokenizers of other people's models, from the tokenizer.json of Hugging Face's tokenizers: byte-level byte pairs (GPT-2, Llama 3,
/// Qwen) and word pieces (BERT); and from GGUF files, byte-level byte pairs.
///
///     const auto tokenizer = ht::tokenizer::from_file("Llama-3.2-1B", {.vocabulary = model.config().vocab_size});
///     const std::vector<std::int32_t> ids = tokenizer.encode("Hello there");          // <|begin_of_text|> first
///     std::cout << tokenizer.decode(ids, {.skip_special_tokens = true});
///
///     ht::decode_stream text{tokenizer};                                              // as tokens are generated
///     for (...) std::cout << text(next_id) << std::flush;
///     std::cout << text.finish();
///
/// Ids and texts are those of tokenizers 0.23 (tests/data/tokenizer.cpp). Special tokens that a text spells are text unless
/// encode_options::allow_special says otherwise: what a user types cannot end a turn. truncation and padding of the file are ignored,
/// as transformers ignores them. Everything that halftone does not compute is refused by the name of its key.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/data/tokenizers/file.hpp>
#include <halftone/data/tokenizers/gguf.hpp>
#include <halftone/data/tokenizers/parts.hpp>
#include <halftone/io/file_reader.hpp>
#include <halftone/io/gguf.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How a tokenizer is read.
struct tokenizer_options {
    extent vocabulary =
        0;  ///< the rows of the model's table of tokens: a tokenizer with an id beyond it is refused; 0: not checked
};

/// How a text is encoded.
struct encode_options {
    bool add_special_tokens =
        true;                     ///< those that the file's post_processor puts around a text, such as [CLS] and [SEP]
    bool allow_special = false;   ///< whether special tokens that the text spells become these tokens
    bool refuse_invalid = false;  ///< whether bytes that are not UTF-8 are an error; they are U+FFFD otherwise
};

/// How ids become text.
struct decode_options {
    bool skip_special_tokens = false;
};

/// A tokenizer. Copies share what was read; several threads may use one at once.
class tokenizer {
  public:
    /// From a tokenizer.json, a folder that has one, or a GGUF file. Throws data_error if there is none, it is damaged, has what halftone
    /// does not compute, or ids beyond options.vocabulary; gguf_error and io_error for what is no GGUF file.
    static tokenizer from_file(const std::filesystem::path& path, const tokenizer_options& options = {}) {
        std::error_code failed;  // what cannot be looked at cannot be opened, either
        if (std::filesystem::is_regular_file(path, failed) && detail::is_gguf(path)) {
            const gguf_file file(path);
            return from_gguf(path.string(), read_gguf_tokenizer(file.metadata()), options);
        }
        const auto file = std::filesystem::is_directory(path, failed) ? path / "tokenizer.json" : path;
        const detail::file_reader<data_error> in("tokenizer", file);
        if (in.size() > most_bytes)
            fail<data_error>("tokenizer: ", in.name(), " has ", in.size(), " bytes; expected ", most_bytes, " at most");
        std::string text(static_cast<std::size_t>(in.size()), '\0');
        in.read(text.data(), 0, text.size());
        return from_json(file.string(), text, options);
    }
    /// From the text of a tokenizer.json; `where` begins the messages.
    static tokenizer from_json(const std::string& where, std::string_view text, const tokenizer_options& options = {}) {
        return checked(where, detail::tokenizer_file(where, text).read(), options);
    }
    /// From the keys of a GGUF file, which tell less than a tokenizer.json: added tokens take no white space with them, and texts are
    /// parted, and composed (NFC), as models of tokenizer.ggml.pre are known to.
    static tokenizer from_gguf(const std::string& where, const gguf_tokenizer& keys,
                               const tokenizer_options& options = {}) {
        return checked(where, detail::tokenizer_file(where, detail::tokenizer_json_of(where, keys)).read(), options);
    }

    /// One more than the largest id.
    extent size() const { return static_cast<extent>(parts_->tokens.size()); }
    /// The id of a token, spelt as in the file; nothing if there is none.
    std::optional<std::int32_t> id(const std::string& token) const {
        const auto found = parts_->ids.find(token);
        return found == parts_->ids.end() ? std::nullopt : std::optional(found->second);
    }
    /// A token as it is spelt in the file; empty if there is none of this id.
    std::string_view token(std::int32_t id) const {
        if (id < 0 || id >= size()) return {};
        return parts_->tokens[static_cast<std::size_t>(id)];
    }
    /// Whether an id is that of a special token, which decode_options::skip_special_tokens leaves out. As in tokenizers, one that is
    /// another text when normalized, and is looked for as that, is none.
    bool is_special(std::int32_t id) const {
        const auto found = parts_->added_by_id.find(id);
        return found != parts_->added_by_id.end() && found->second->special &&
               found->second->text == found->second->content;
    }

    /// The ids of a text in UTF-8. Throws data_error for bytes that are not, with refuse_invalid, and if the file's pattern takes too
    /// long on this text.
    std::vector<std::int32_t> encode(std::string_view text, const encode_options& options = {}) const {
        std::vector<std::int32_t> ids;
        encode(text, options, ids);
        return ids;
    }
    /// Appends the ids of a text.
    void encode(std::string_view text, const encode_options& options, std::vector<std::int32_t>& to) const {
        std::string replaced;
        const char* const end = text.data() + text.size();
        if (const char* const invalid = detail::unicode::first_invalid(text.data(), end); invalid != end) {
            if (options.refuse_invalid)
                fail<data_error>("tokenizer: the text is not UTF-8 at byte ", invalid - text.data(), " of ",
                                 text.size());
            detail::unicode::append_valid(replaced, text);
            text = replaced;
        }
        if (options.add_special_tokens) to.insert(to.end(), parts_->before.begin(), parts_->before.end());
        parts_->encode(text, options.allow_special, to);
        if (options.add_special_tokens) to.insert(to.end(), parts_->behind.begin(), parts_->behind.end());
    }

    /// The text of some ids. Ids that no token has are left out, as a model's table may be larger than its vocabulary; bytes that are
    /// not UTF-8 are U+FFFD.
    std::string decode(std::span<const std::int32_t> ids, const decode_options& options = {}) const;

  private:
    friend class decode_stream;
    static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 28;
    explicit tokenizer(std::shared_ptr<const detail::tokenizer_parts> parts) : parts_(std::move(parts)) {}
    static tokenizer checked(const std::string& where, std::shared_ptr<const detail::tokenizer_parts> parts,
                             const tokenizer_options& options) {
        tokenizer made(std::move(parts));
        if (options.vocabulary != 0 && made.size() > options.vocabulary)
            fail<data_error>(where, ": the largest id is ", made.size() - 1, "; the model's table has ",
                             options.vocabulary, " rows");
        return made;
    }

    std::shared_ptr<const detail::tokenizer_parts> parts_;
};

/// Text from ids that come one by one. All that it returns, one after another, is what tokenizer::decode makes of all ids.
class decode_stream {
  public:
    explicit decode_stream(tokenizer of, const decode_options& options = {})
        : tokenizer_(std::move(of)), options_(options) {}

    /// The text that is certain with this id: bytes of an incomplete character wait for the next.
    std::string operator()(std::int32_t id) {
        const auto& parts = *tokenizer_.parts_;
        const std::string token(text_of(id));
        std::string text;
        if (token.empty() || (options_.skip_special_tokens && tokenizer_.is_special(id))) return text;
        if (parts.decoder.by == detail::token_decoder::kind::bytes) {
            waiting_ += alphabet_.bytes(token).value_or(token);
            waiting_.erase(0, detail::unicode::append_valid(text, waiting_, true));
        } else {
            text = parts.decoder.by == detail::token_decoder::kind::word_pieces ? word_piece(token)
                                                                                : (first_ ? "" : " ") + token;
            first_ = false;
        }
        return text;
    }
    /// What still waits: U+FFFD for an incomplete character. The next id begins a new text.
    std::string finish() {
        std::string text;
        detail::unicode::append_valid(text, waiting_);
        waiting_.clear();
        first_ = true;
        return text;
    }

  private:
    /// What a token is spelt as for the decoder: an added one as it is looked for.
    std::string_view text_of(std::int32_t id) const {
        const auto added = tokenizer_.parts_->added_by_id.find(id);
        return added == tokenizer_.parts_->added_by_id.end() ? tokenizer_.token(id) : added->second->text;
    }
    std::string word_piece(std::string token) const {
        const auto& decoder = tokenizer_.parts_->decoder;
        if (!first_) {
            if (token.compare(0, decoder.prefix.size(), decoder.prefix) == 0)
                token.erase(0, decoder.prefix.size());
            else
                token.insert(0, 1, ' ');
        }
        if (!decoder.cleanup) return token;
        static constexpr std::pair<std::string_view, std::string_view> replaced[] = {
            {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
            {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
        };
        for (const auto& [from, to] : replaced) {
            for (std::size_t at = 0; (at = token.find(from, at)) != token.npos; at += to.size())
                token.replace(at, from.size(), to);
        }
        return token;
    }

    tokenizer tokenizer_;
    decode_options options_;
    detail::byte_alphabet alphabet_;
    std::string waiting_;
    bool first_ = true;
};

inline std::string tokenizer::decode(std::span<const std::int32_t> ids, const decode_options& options) const {
    decode_stream stream(*this, options);
    std::string text;
    for (const std::int32_t id : ids) text += stream(id);
    return text + stream.finish();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
