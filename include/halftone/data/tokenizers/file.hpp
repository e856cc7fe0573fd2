// SPDX-License-Identifier: MIT
/// \file
/// Reads a tokenizer.json of Hugging Face's tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/data/data_error.hpp>
#include <halftone/data/tokenizers/parts.hpp>
#include <halftone/io/strict_json.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The pattern by which ByteLevel parts texts, that of GPT-2.
inline constexpr const char* gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Makes the parts of a tokenizer from its file. Throws data_error for what is no tokenizer, and for what halftone does not compute.
class tokenizer_file {
  public:
    /// `where` begins the messages and outlives the reader.
    tokenizer_file(const std::string& where, std::string_view text)
        : tokenizer_file(where, parse_json<data_error>(where, text)) {}
    tokenizer_file(const std::string& where, nlohmann::json file) : where_(where), root_(std::move(file)) {
        if (!root_.is_object()) fail<data_error>(where_, " is no object");
    }

    std::shared_ptr<const tokenizer_parts> read() {
        read_vocabulary();
        if (is_byte_pairs_) read_merges();
        auto parts = std::make_shared<tokenizer_parts>(tokenizer_parts{
            .model = is_byte_pairs_
                         ? decltype(tokenizer_parts::model)(byte_pairs(std::move(pairs_), words_, ignore_merges_))
                         : decltype(tokenizer_parts::model)(read_word_pieces())});
        parts->tokens = std::move(tokens_);
        parts->ids = std::move(ids_);
        read_normalizer(root_.value("normalizer", json()), *parts);
        read_pre_tokenizer(root_.value("pre_tokenizer", json()), *parts);
        if (is_byte_pairs_ && !byte_level_)
            fail<data_error>(where_, ": model is BPE without a ByteLevel pre_tokenizer; expected byte-level BPE");
        if (!is_byte_pairs_ && byte_level_)
            fail<data_error>(where_, ": pre_tokenizer has ByteLevel; expected none for WordPiece");
        read_added_tokens(*parts);
        read_post_processor(root_.value("post_processor", json()), *parts);
        read_decoder(root_.value("decoder", json()), parts->decoder);
        return parts;
    }

  private:
    using json = nlohmann::json;
    // What files have is far below these numbers; without them a small file could take any time or memory.
    static constexpr std::int32_t most_ids = 1 << 22;
    static constexpr int most_steps = 64;                  ///< of the normalizer and the pre-tokenizer
    static constexpr std::size_t most_token_bytes = 1024;  ///< of tokens that each place of a text is compared to
    static constexpr std::size_t most_around = 1024;       ///< tokens around a text

    [[noreturn]] void refuse(const std::string& key, const json& value, const char* expected) const {
        fail<data_error>(where_, ": ", key, " is ", shown(value.dump(-1, ' ', false, json::error_handler_t::replace)),
                         "; expected ", expected);
    }
    const json& at(const json& object, const char* key) const {
        const auto found = object.is_object() ? object.find(key) : object.end();
        return object.is_object() && found != object.end() ? *found : none_;
    }
    std::string text_at(const json& object, const std::string& of, const char* key) const {
        const json& value = at(object, key);
        if (!value.is_string()) refuse(of + '.' + key, value, "a text");
        return value.get<std::string>();
    }
    bool flag_at(const json& object, const std::string& of, const char* key, bool otherwise) const {
        const json& value = at(object, key);
        if (value.is_null()) return otherwise;
        if (!value.is_boolean()) refuse(of + '.' + key, value, "true or false");
        return value.get<bool>();
    }
    /// Refuses a value that changes what a model computes.
    void expect_none(const json& object, const std::string& of, const char* key) const {
        const json& value = at(object, key);
        if (!value.is_null() && value != "" && value != false && value != 0.0) refuse(of + '.' + key, value, "none");
    }
    /// The type of a part of the file.
    std::string type_of(const json& part, const std::string& of) const {
        if (!part.is_object()) refuse(of, part, "an object with a type");
        return text_at(part, of, "type");
    }
    const json& list_at(const json& part, const std::string& of, const char* key) const {
        const json& list = at(part, key);
        if (!list.is_array()) refuse(of + '.' + key, list, "a list");
        return list;
    }

    const json& model() const { return at(root_, "model"); }
    /// Ids by text and texts by id.
    void read_vocabulary() {
        if (!model().is_object()) refuse("model", model(), "an object");
        // Files of older versions have no type.
        const json& type = at(model(), "type");
        is_byte_pairs_ = type == "BPE" || (type.is_null() && model().contains("merges"));
        if (!is_byte_pairs_ && type != "WordPiece" && !(type.is_null() && model().contains("max_input_chars_per_word")))
            refuse("model.type", type, "\"BPE\" or \"WordPiece\"");
        const json& vocabulary = at(model(), "vocab");
        if (!vocabulary.is_object() || vocabulary.empty())
            refuse("model.vocab", vocabulary, "an object of ids by token");
        for (const auto& [token, id] : vocabulary.items()) {
            if (!id.is_number_integer() || id < 0 || id >= most_ids)
                fail<data_error>(where_, ": model.vocab: the id of ", shown(token), " is ", shown(id.dump()),
                                 "; expected 0 to ", most_ids - 1);
            name(id.get<std::int32_t>(), token);
        }
        model_size_ = static_cast<std::int32_t>(vocabulary.size());
    }
    void name(std::int32_t id, const std::string& token) {
        const auto place = static_cast<std::size_t>(id);
        if (place >= tokens_.size()) {
            tokens_.resize(place + 1);
            named_.resize(place + 1);
        }
        if (named_[place])
            fail<data_error>(where_, ": model.vocab: the id ", id, " is that of ", shown(tokens_[place]), " and of ",
                             shown(token));
        tokens_[place] = token;
        named_[place] = true;
        ids_.emplace(token, id);
    }
    std::optional<std::int32_t> id_of(const std::string& token) const {
        const auto found = ids_.find(token);
        return found == ids_.end() ? std::nullopt : std::optional(found->second);
    }

    void read_merges() {
        for (const char* const key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
            expect_none(model(), "model", key);
        const json& merges = list_at(model(), "model", "merges");
        pairs_.merges = merge_table(merges.size());
        std::size_t number = 0;  // of the merge, for its rank
        for (const json& merge : merges) {
            if (merge.is_string() && merge.get_ref<const std::string&>().rfind("#version", 0) == 0) continue;
            const auto [left, right] = pair_of(merge, number);
            const auto a = id_of(left), b = id_of(right), both = id_of(left + right);
            if (!a || !b || !both) {
                fail<data_error>(where_, ": model.merges[", number, "]: ",
                                 shown(!a   ? left
                                       : !b ? right
                                            : left + right),
                                 " is not in the vocabulary");
            }
            pairs_.merges.add(*a, *b, {static_cast<std::uint32_t>(number), *both});
            ++number;
        }
        read_bytes();
        ignore_merges_ = flag_at(model(), "model", "ignore_merges", false);
    }
    /// A merge is two texts, or, in older files, one with a blank between the two.
    std::pair<std::string, std::string> pair_of(const json& merge, std::size_t number) const {
        if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
            return {merge[0].get<std::string>(), merge[1].get<std::string>()};
        if (merge.is_string()) {
            const std::string& text = merge.get_ref<const std::string&>();
            const std::size_t blank = text.find(' ');
            if (blank != text.npos && text.find(' ', blank + 1) == text.npos)
                return {text.substr(0, blank), text.substr(blank + 1)};
        }
        refuse(sentence("model.merges[", number, ']'), merge, "two tokens");
    }
    /// The ids of bytes, and the tokens that are bytes.
    void read_bytes() {
        const byte_alphabet alphabet;
        bool all = true;
        for (unsigned byte = 0; byte < 256; ++byte) {
            std::string character;
            unicode::append(character, alphabet[static_cast<unsigned char>(byte)]);
            pairs_.byte_ids[byte] = id_of(character).value_or(-1);
            all = all && pairs_.byte_ids[byte] >= 0;
        }
        for (std::size_t id = 0; id < tokens_.size(); ++id) {
            if (!named_[id] || tokens_[id].empty()) continue;
            if (auto bytes = alphabet.bytes(tokens_[id]))
                words_.emplace_back(std::move(*bytes), static_cast<std::int32_t>(id));
        }
        if (all) return;
        expect_none(model(), "model", "byte_fallback");
        pairs_.fuse_unknown = flag_at(model(), "model", "fuse_unk", false);
        if (!at(model(), "unk_token").is_null()) pairs_.unknown = unknown_token();
    }
    std::int32_t unknown_token() const {
        const std::string token = text_at(model(), "model", "unk_token");
        const auto id = id_of(token);
        if (!id) fail<data_error>(where_, ": model.unk_token: ", shown(token), " is not in the vocabulary");
        return *id;
    }

    word_pieces read_word_pieces() const {
        word_piece_model made;
        const std::string prefix = text_at(model(), "model", "continuing_subword_prefix");
        made.unknown = unknown_token();
        const json& most = at(model(), "max_input_chars_per_word");
        if (!most.is_number_unsigned()) refuse("model.max_input_chars_per_word", most, "a number");
        made.most_characters = most.get<std::size_t>();
        made.first = token_table(ids_.size());
        made.continuing = token_table(ids_.size());
        for (const auto& [token, id] : ids_) {
            check_token("model.vocab", token);
            if (!token.empty()) made.first.add(token, id);
            if (token.size() > prefix.size() && token.compare(0, prefix.size(), prefix) == 0)
                made.continuing.add(token.substr(prefix.size()), id);
        }
        return word_pieces(std::move(made));
    }

    void count_step() {
        if (++steps_ > most_steps)
            fail<data_error>(where_, ": normalizer and pre_tokenizer have more than ", most_steps, " steps");
    }
    void check_token(const char* of, std::string_view text) const {
        if (text.size() > most_token_bytes)
            fail<data_error>(where_, ": ", of, ": ", shown(text), " has ", text.size(), " bytes; expected ",
                             most_token_bytes, " at most");
    }

    void read_normalizer(const json& part, tokenizer_parts& parts) {
        if (part.is_null()) return;
        count_step();
        const std::string type = type_of(part, "normalizer");
        if (type == "Sequence") {
            for (const json& inner : list_at(part, "normalizer", "normalizers")) read_normalizer(inner, parts);
        } else if (type == "NFC") {
            parts.normalizer.add(normalization::nfc);
        } else if (type == "NFD") {
            parts.normalizer.add(normalization::nfd);
        } else if (type == "Lowercase") {
            parts.normalizer.add(normalization::lower_case);
        } else if (type == "BertNormalizer") {
            const bool lower = flag_at(part, "normalizer", "lowercase", true);
            if (flag_at(part, "normalizer", "clean_text", true)) parts.normalizer.add(normalization::bert_clean_text);
            if (flag_at(part, "normalizer", "handle_chinese_chars", true))
                parts.normalizer.add(normalization::bert_spaces);
            if (flag_at(part, "normalizer", "strip_accents", lower))
                parts.normalizer.add(normalization::bert_strip_accents);
            if (lower) parts.normalizer.add(normalization::lower_case);
        } else {
            refuse("normalizer.type", type, "NFC, NFD, Lowercase, BertNormalizer or a Sequence of them");
        }
    }

    void read_pre_tokenizer(const json& part, tokenizer_parts& parts) {
        if (part.is_null()) return;
        count_step();
        if (byte_level_)
            fail<data_error>(where_, ": pre_tokenizer has a step behind ByteLevel; expected ByteLevel at the end");
        const std::string type = type_of(part, "pre_tokenizer");
        if (type == "Sequence") {
            for (const json& inner : list_at(part, "pre_tokenizer", "pretokenizers")) read_pre_tokenizer(inner, parts);
        } else if (type == "ByteLevel") {
            if (flag_at(part, "pre_tokenizer", "add_prefix_space", true))
                parts.splitter.add({split_step::kind::prefix_space});
            if (flag_at(part, "pre_tokenizer", "use_regex", true))
                parts.splitter.add(by_pattern(gpt2_pattern, parts, split_step::keep::all));
            byte_level_ = true;
        } else if (type == "Split") {
            read_split(part, parts);
        } else if (type == "BertPreTokenizer") {
            parts.splitter.add({split_step::kind::spaces, split_step::keep::between});
            parts.splitter.add({split_step::kind::bert_punctuation});
        } else if (type == "WhitespaceSplit") {
            parts.splitter.add({split_step::kind::spaces, split_step::keep::between});
        } else if (type == "Digits") {
            const bool single = flag_at(part, "pre_tokenizer", "individual_digits", false);
            parts.splitter.add(
                {split_step::kind::digits, single ? split_step::keep::all : split_step::keep::contiguous});
        } else {
            refuse("pre_tokenizer.type", type,
                   "ByteLevel, Split, BertPreTokenizer, WhitespaceSplit, Digits or a Sequence of them");
        }
    }
    split_step by_pattern(std::string_view text, const tokenizer_parts& parts, split_step::keep keep) const {
        return {split_step::kind::pattern, keep,
                std::make_shared<const pattern>(where_ + ": pre_tokenizer", text, parts.categories)};
    }
    void read_split(const json& part, tokenizer_parts& parts) const {
        const json& given = at(part, "pattern");
        const bool is_text = given.is_object() && given.contains("String");
        std::string text = text_at(given, "pre_tokenizer.pattern", is_text ? "String" : "Regex");
        if (is_text) {
            std::string quoted;
            for (const char c : text) {
                const char small = static_cast<char>(c | 32);
                const bool plain =
                    static_cast<unsigned char>(c) >= 128 || (small >= 'a' && small <= 'z') || (c >= '0' && c <= '9');
                if (!plain) quoted += '\\';
                quoted += c;
            }
            text = std::move(quoted);
        }
        const bool inverted = flag_at(part, "pre_tokenizer", "invert", false);
        const std::string behavior = text_at(part, "pre_tokenizer", "behavior");
        split_step::keep keep = split_step::keep::all;
        if (behavior == "Removed")
            keep = inverted ? split_step::keep::matches : split_step::keep::between;
        else if (behavior == "Contiguous" && !inverted)
            keep = split_step::keep::contiguous;
        else if (behavior != "Isolated")
            refuse("pre_tokenizer.behavior", behavior, "Isolated, Removed, or Contiguous without invert");
        parts.splitter.add(by_pattern(text, parts, keep));
    }

    /// An added token's id is that of the model's token of this text, or the next one; that in the file does not count.
    void read_added_tokens(tokenizer_parts& parts) const {
        const json& list = at(root_, "added_tokens");
        if (list.is_null()) return;
        if (!list.is_array()) refuse("added_tokens", list, "a list");
        std::int32_t next = model_size_;
        std::unordered_map<std::int32_t, std::size_t>
            places;  // in parts.added, by id: a token that comes again replaces the first
        for (const json& entry : list) {
            added_token token = read_added_token(entry, parts);
            if (token.content.empty()) continue;
            const auto known = parts.ids.find(token.content);
            token.id = known != parts.ids.end() ? known->second : next++;
            const auto place = static_cast<std::size_t>(token.id);
            if (known == parts.ids.end()) {
                if (place >= parts.tokens.size()) parts.tokens.resize(place + 1);
                if (!parts.tokens[place].empty())
                    fail<data_error>(where_, ": added_tokens: ", shown(token.content), " gets the id ", token.id,
                                     ", which is that of ", shown(parts.tokens[place]));
                parts.tokens[place] = token.content;
                parts.ids.emplace(token.content, token.id);
            }
            const auto [again, is_new] = places.emplace(token.id, parts.added.size());
            if (is_new)
                parts.added.push_back(std::move(token));
            else
                parts.added[again->second] = std::move(token);
        }
        for (const added_token& token : parts.added) {
            parts.added_by_id.emplace(token.id, &token);
            if (!(token.normalized ? parts.normalized : parts.as_written).add(token))
                fail<data_error>(where_, ": added_tokens: ", shown(token.content),
                                 " is, normalized, empty or the same as another");
        }
    }
    added_token read_added_token(const json& entry, const tokenizer_parts& parts) const {
        if (!entry.is_object()) refuse("added_tokens", entry, "objects");
        added_token token;
        token.content = text_at(entry, "added_tokens", "content");
        token.single_word = flag_at(entry, "added_tokens", "single_word", false);
        token.takes_left = flag_at(entry, "added_tokens", "lstrip", false);
        token.takes_right = flag_at(entry, "added_tokens", "rstrip", false);
        token.special = flag_at(entry, "added_tokens", "special", false);
        token.normalized = flag_at(entry, "added_tokens", "normalized", !token.special);
        token.text = token.content;
        if (token.normalized) {
            std::string memory;
            token.text = parts.normalizer(token.content, memory);
        }
        check_token("added_tokens", token.text);
        return token;
    }

    void read_post_processor(const json& part, tokenizer_parts& parts) const {
        if (part.is_null()) return;
        const std::string type = type_of(part, "post_processor");
        if (type == "Sequence") {
            for (const json& inner : list_at(part, "post_processor", "processors")) read_post_processor(inner, parts);
        } else if (type == "BertProcessing" || type == "RobertaProcessing") {
            put_around(parts, parts.before, token_and_id(part, "cls", parts));
            put_around(parts, parts.behind, token_and_id(part, "sep", parts));
        } else if (type == "TemplateProcessing") {
            read_template(part, parts);
        } else if (type != "ByteLevel") {
            refuse("post_processor.type", type,
                   "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or a Sequence of them");
        }
    }
    void put_around(const tokenizer_parts& parts, std::vector<std::int32_t>& to, std::int32_t id) const {
        if (parts.before.size() + parts.behind.size() == most_around)
            fail<data_error>(where_, ": post_processor puts more than ", most_around, " tokens around a text");
        to.push_back(id);
    }
    void check_id(const json& id, const char* of, const tokenizer_parts& parts) const {
        if (!id.is_number_integer() || id < 0 || id >= parts.tokens.size()) refuse(of, id, "the id of a token");
    }
    std::int32_t token_and_id(const json& part, const char* key, const tokenizer_parts& parts) const {
        const json& pair = at(part, key);
        if (!pair.is_array() || pair.size() != 2)
            refuse(std::string("post_processor.") + key, pair, "a token and its id");
        check_id(pair[1], "post_processor", parts);
        return pair[1].get<std::int32_t>();
    }
    void read_template(const json& part, tokenizer_parts& parts) const {
        bool text_was = false;
        for (const json& piece : list_at(part, "post_processor", "single")) {
            if (piece.is_object() && piece.contains("Sequence")) {
                if (text_was || text_at(piece["Sequence"], "post_processor.single", "id") != "A")
                    refuse("post_processor.single", piece, "the text once");
                text_was = true;
                continue;
            }
            const std::string token = text_at(at(piece, "SpecialToken"), "post_processor.single", "id");
            const json& ids = at(at(at(part, "special_tokens"), token.c_str()), "ids");
            if (!ids.is_array()) refuse("post_processor.special_tokens", ids, "ids of each special token");
            for (const json& id : ids) {
                check_id(id, "post_processor.special_tokens", parts);
                put_around(parts, text_was ? parts.behind : parts.before, id.get<std::int32_t>());
            }
        }
        if (!text_was) refuse("post_processor.single", at(part, "single"), "the text once");
    }

    void read_decoder(const json& part, token_decoder& decoder) const {
        if (part.is_null()) return;
        const std::string type = type_of(part, "decoder");
        if (type == "ByteLevel") {
            decoder.by = token_decoder::kind::bytes;
        } else if (type == "WordPiece") {
            decoder.by = token_decoder::kind::word_pieces;
            decoder.prefix = text_at(part, "decoder", "prefix");
            decoder.cleanup = flag_at(part, "decoder", "cleanup", true);
        } else if (type == "Sequence" && list_at(part, "decoder", "decoders").size() == 1) {
            read_decoder(part["decoders"][0], decoder);
        } else {
            refuse("decoder.type", type, "ByteLevel or WordPiece");
        }
    }

    const std::string& where_;
    const json none_{};
    json root_;
    bool is_byte_pairs_ = false, byte_level_ = false, ignore_merges_ = false;
    std::int32_t model_size_ = 0;
    int steps_ = 0;
    std::vector<std::string> tokens_;
    std::vector<bool> named_;
    std::unordered_map<std::string, std::int32_t> ids_;
    byte_pair_model pairs_;
    std::vector<std::pair<std::string, std::int32_t>> words_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
