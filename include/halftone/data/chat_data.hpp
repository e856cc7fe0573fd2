// SPDX-License-Identifier: MIT
/// \file
/// Conversations from files of JSON lines as documents to train on: a loss counts the answers alone.
///
///     const ht::chat_data data{tokenizer, "train.jsonl", {.format = ht::chat_template::qwen3}};
///     const ht::packed_rows rows{data, {.length = 4096}};                        // or ht::bucketed_data
///
/// A line is an object with "messages", a list of {"role": ..., "content": ...}, as OpenAI's and TRL's files have it (an assistant's "weight" of
/// 0 keeps a message from being predicted, "reasoning_content" is Qwen3's thought); or with "prompt" and "completion", both such lists, of which
/// the completion is predicted, or both texts, which no template changes. Other names in a line are not read. All is read, and
/// refused by the file's name and the line's number, before anything is trained.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/data/chat.hpp>
#include <halftone/data/data_error.hpp>
#include <halftone/data/document.hpp>
#include <halftone/data/text.hpp>
#include <halftone/io/strict_json.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a line of a file says.
struct chat_line {
    std::vector<chat_message> messages{};  ///< empty for a prompt and a completion that are texts
    std::string prompt{}, completion{};
};

/// How conversations become documents.
struct chat_data_options {
    chat_template format = chat_template::chatml;
    chat_options rendering{};
    std::string end_of_text{};  ///< the token behind a completion that is a text; none if empty
    extent most_tokens = 0;     ///< a longer conversation ends there; 0: none is cut
};

namespace detail {

/// Reads lines. All functions throw data_error, which begins with `where`.
class chat_line_reader {
  public:
    explicit chat_line_reader(const std::string& where) : where_(where) {}

    chat_line read(std::string_view text) const {
        using json = nlohmann::json;
        const json line = parse_json<data_error>(where_, text);
        if (!line.is_object()) fail<data_error>(where_, " is no object");
        for (const char* const unknown : {"tools", "documents"}) {
            if (line.contains(unknown) && !line[unknown].is_null() && !line[unknown].empty())
                fail<data_error>(where_, " has ", unknown, ", which halftone does not render");
        }
        chat_line read;
        if (line.contains("messages")) {
            read.messages = messages(line["messages"], "messages");
        } else if (!line.contains("prompt") || !line.contains("completion")) {
            fail<data_error>(where_, " has neither messages nor a prompt and a completion");
        } else if (line["prompt"].is_string() && line["completion"].is_string()) {
            read.prompt = line["prompt"].get<std::string>();
            read.completion = line["completion"].get<std::string>();
            if (read.completion.empty()) fail<data_error>(where_, ": the completion is empty");
            return read;
        } else {
            read.messages = messages(line["prompt"], "prompt");
            for (chat_message& m : read.messages) m.is_trained = false;
            for (chat_message& m : messages(line["completion"], "completion")) read.messages.push_back(std::move(m));
        }
        const bool any = std::any_of(read.messages.begin(), read.messages.end(),
                                     [](const chat_message& m) { return m.role == "assistant" && m.is_trained; });
        if (!any) fail<data_error>(where_, " has no answer to train on");
        return read;
    }

  private:
    std::vector<chat_message> messages(const nlohmann::json& list, const char* key) const {
        if (!list.is_array() || list.empty()) fail<data_error>(where_, ": ", key, " is no list of messages");
        std::vector<chat_message> read;
        for (std::size_t i = 0; i < list.size(); ++i) {
            const std::string of = sentence(key, '[', i, ']');
            if (!list[i].is_object()) fail<data_error>(where_, ": ", of, " is no object");
            for (const char* const unknown : {"tool_calls", "tool_call_id"}) {
                if (list[i].contains(unknown) && !list[i][unknown].is_null())
                    fail<data_error>(where_, ": ", of, " has ", unknown, ", which halftone does not render");
            }
            chat_message m{text(list[i], of, "role"), text(list[i], of, "content")};
            if (!is_chat_role(m.role))
                fail<data_error>(where_, ": ", of, ".role is ", shown(m.role), "; expected system, user or assistant");
            if (list[i].contains("reasoning_content") && !list[i]["reasoning_content"].is_null())
                m.reasoning_content = text(list[i], of, "reasoning_content");
            if (list[i].contains("weight")) {
                const nlohmann::json& weight = list[i]["weight"];
                if (weight != 0 && weight != 1)
                    fail<data_error>(where_, ": ", of, ".weight is ", shown(weight.dump()), "; expected 0 or 1");
                m.is_trained = weight == 1;
            }
            read.push_back(std::move(m));
        }
        return read;
    }
    std::string text(const nlohmann::json& object, const std::string& of, const char* key) const {
        if (!object.contains(key)) fail<data_error>(where_, ": ", of, " has no ", key);
        if (!object[key].is_string()) fail<data_error>(where_, ": ", of, '.', key, " is no text");
        return object[key].get<std::string>();
    }

    const std::string& where_;
};

}  // namespace detail

/// A line of such a file; `where` begins the messages. Throws data_error.
inline chat_line parse_chat_line(const std::string& where, std::string_view text) {
    return detail::chat_line_reader(where).read(text);
}

/// A file's conversations as tokens, in memory: 5 bytes each.
class chat_data {
  public:
    /// Throws data_error for a file that cannot be read or has no lines, and for the first line that is wrong, by its number, counted from 1;
    /// argument_error for options out of range.
    chat_data(const tokenizer& tokenizer, const std::filesystem::path& file, const chat_data_options& options = {}) {
        if (options.most_tokens < 0 || options.most_tokens == 1)
            fail<argument_error>("chat_data: at most ", options.most_tokens, " tokens; expected 2 or more, or 0");
        const auto end = options.end_of_text.empty() ? std::nullopt : tokenizer.id(options.end_of_text);
        if (!end && !options.end_of_text.empty())
            fail<argument_error>("chat_data: the tokenizer has no token ", options.end_of_text);
        const std::string text = detail::read_file("chat_data", file, most_bytes);
        std::size_t number = 0;
        for (std::size_t first = 0; first < text.size(); ++number) {
            const std::size_t last = std::min(text.find('\n', first), text.size());
            const std::string_view line = std::string_view(text).substr(first, last - first);
            if (line.find_first_not_of(" \t\r") != line.npos)
                add(tokenizer, line, "chat_data: " + file.string() + ", line " + std::to_string(number + 1), options,
                    end);
            first = last + 1;
        }
        if (begins_.size() == 1) fail<data_error>("chat_data: ", file.string(), " has no conversations");
    }

    /// The number of conversations.
    extent size() const { return static_cast<extent>(begins_.size()) - 1; }
    /// A conversation; the memory is this object's.
    document operator[](extent index) const {
        const std::size_t first = begins_[static_cast<std::size_t>(index)],
                          count = begins_[static_cast<std::size_t>(index) + 1] - first;
        return {std::span(tokens_).subspan(first, count), 0, std::span(answers_).subspan(first, count)};
    }
    /// The number of tokens of all conversations.
    extent tokens() const { return static_cast<extent>(tokens_.size()); }
    /// The number of tokens that a loss counts.
    extent answers() const {
        return static_cast<extent>(std::count(answers_.begin(), answers_.end(), std::uint8_t{1}));
    }
    /// The number of conversations that were cut at most_tokens.
    extent cut() const { return cut_; }
    /// The tokens of the longest conversation.
    extent longest() const {
        extent most = 0;
        for (extent i = 0; i < size(); ++i) most = std::max(most, (*this)[i].size());
        return most;
    }

  private:
    static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 34;

    void add(const tokenizer& tokenizer, std::string_view line, const std::string& where,
             const chat_data_options& options, const std::optional<std::int32_t>& end) {
        const chat_line read = parse_chat_line(where, line);
        chat_tokens ids;
        try {
            ids = encode_chat(tokenizer, read.messages.empty()
                                             ? of_texts(read)
                                             : render_chat(options.format, read.messages, options.rendering));
        } catch (const data_error& e) {
            fail<data_error>(where, ": ", e.what());
        }
        if (read.messages.empty() && end) ids.tokens.push_back(*end), ids.answers.push_back(1);
        const auto most = static_cast<std::size_t>(options.most_tokens);
        if (most != 0 && ids.tokens.size() > most) {
            ids.tokens.resize(most);
            ids.answers.resize(most);
            ++cut_;
        }
        if (!document{ids.tokens, 0, ids.answers}.counts_any())
            fail<data_error>(where, " has no answer within ", ids.tokens.size(), " tokens");
        tokens_.insert(tokens_.end(), ids.tokens.begin(), ids.tokens.end());
        answers_.insert(answers_.end(), ids.answers.begin(), ids.answers.end());
        begins_.push_back(tokens_.size());
    }
    static chat_text of_texts(const chat_line& read) {
        chat_text made;
        if (!read.prompt.empty()) made.pieces.push_back({read.prompt, false, false});
        made.pieces.push_back({read.completion, false, true});
        return made;
    }

    std::vector<std::int32_t> tokens_;
    std::vector<std::uint8_t> answers_;
    std::vector<std::size_t> begins_{0};
    extent cut_ = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
