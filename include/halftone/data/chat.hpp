// SPDX-License-Identifier: MIT
/// \file
/// Conversations as the texts and tokens that models of conversation were trained on: the chat templates of these models, by name.
///
///     const std::vector<ht::chat_message> messages{{"system", "Be brief."}, {"user", "Why is the sky blue?"}};
///     const ht::chat_text prompt = ht::render_chat(ht::chat_template::qwen3, messages, {.add_generation_prompt = true});
///     const ht::chat_tokens ids = ht::encode_chat(tokenizer, prompt);      // ids.tokens; ids.answers: which are of the assistant
///
/// Texts and ids are those of transformers' apply_chat_template with the templates that the models come with, but for what a message
/// spells: a special token in it stays text, so that no content ends a turn. Calls of tools are not rendered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/data/tokenizer.hpp>
#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A turn of a conversation.
struct chat_message {
    std::string role;  ///< "system", "user" or "assistant"
    std::string content;
    std::optional<std::string>
        reasoning_content{};  ///< what Qwen3 thinks before it answers; the other templates have no place for it
    bool is_trained = true;   ///< whether the tokens of an assistant's message are to be predicted
};

/// The models whose templates there are.
enum class chat_template {
    chatml,    ///< <|im_start|> and <|im_end|> alone
    llama3,    ///< Llama 3
    llama3_1,  ///< Llama 3.1 and 3.3, which tell a date
    llama3_2,  ///< Llama 3.2: the date is today's
    qwen2_5,   ///< Qwen2.5, with its own system message where there is none
    qwen3,     ///< Qwen3, which thinks
    mistral,   ///< Mistral with the tokenizer Tekken, version 3 (Mistral Nemo)
};

/// The templates by their names.
inline constexpr std::pair<std::string_view, chat_template> chat_templates[] = {
    {"chatml", chat_template::chatml},     {"llama3", chat_template::llama3},   {"llama3.1", chat_template::llama3_1},
    {"llama3.2", chat_template::llama3_2}, {"qwen2.5", chat_template::qwen2_5}, {"qwen3", chat_template::qwen3},
    {"mistral", chat_template::mistral},
};

namespace detail {

/// The names of all templates, as they stand in a sentence.
inline std::string names_of_chat_templates() {
    std::string names;
    for (const auto& known : chat_templates) {
        if (!names.empty()) names += &known + 1 == std::end(chat_templates) ? " or " : ", ";
        names += known.first;
    }
    return names;
}

}  // namespace detail

/// The template of this name, one of ht::chat_templates. Throws argument_error for others.
inline chat_template chat_template_of(std::string_view name) {
    for (const auto& [known, value] : chat_templates) {
        if (name == known) return value;
    }
    fail<argument_error>("chat_template_of: ", name, "; expected ", detail::names_of_chat_templates());
}

/// The token that ends an answer.
inline std::string_view end_of_turn(chat_template of) {
    switch (of) {
        case chat_template::chatml:
        case chat_template::qwen2_5:
        case chat_template::qwen3:
            return "<|im_end|>";
        case chat_template::llama3:
        case chat_template::llama3_1:
        case chat_template::llama3_2:
            return "<|eot_id|>";
        case chat_template::mistral:
            return "</s>";
    }
    return {};
}

/// How a conversation is rendered, with the names of transformers' apply_chat_template.
struct chat_options {
    bool add_generation_prompt = false;  ///< ends with the beginning of the assistant's turn
    bool enable_thinking = true;         ///< of Qwen3: false puts an empty thought into the generation prompt
    std::string date{};  ///< "26 Jul 2024", which Llama 3.1 tells where this is empty; Llama 3.2 tells today's then
};

/// A rendered conversation: pieces of text.
struct chat_text {
    /// Text of one kind.
    struct piece {
        std::string text;
        bool is_token;   ///< the text is that of one special token
        bool is_answer;  ///< of the assistant, and to be predicted
    };
    std::vector<piece> pieces{};

    /// All of it as one text, as transformers' apply_chat_template returns it.
    std::string text() const {
        std::string all;
        for (const piece& p : pieces) all += p.text;
        return all;
    }
};

/// A conversation's tokens.
struct chat_tokens {
    std::vector<std::int32_t> tokens{};
    std::vector<std::uint8_t>
        answers{};  ///< 1 for a token of an answer that is to be predicted: its text, and the token that ends the turn
};

namespace detail {

inline bool is_chat_role(std::string_view role) { return role == "system" || role == "user" || role == "assistant"; }

/// Without white space at both ends, as Python's strip.
inline std::string_view stripped(std::string_view text) {
    const auto is_blank = [](char32_t c) { return unicode::is_space(c) || (c >= 0x1C && c <= 0x1F); };
    const std::size_t first = unicode::end_of_run(text, 0, is_blank);
    return text.substr(first, unicode::begin_of_run(text, text.size(), first, is_blank) - first);
}
inline std::string_view without_leading_newlines(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}
inline std::string_view without_trailing_newlines(std::string_view text) {
    return text.substr(0, text.find_last_not_of('\n') + 1);
}

/// Today's date in the machine's time zone: "26 Jul 2024".
inline std::string date_of_today() {
    constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const std::time_t now = std::time(nullptr);
    std::tm day{};
#if defined(_WIN32)
    localtime_s(&day, &now);
#else
    localtime_r(&now, &day);
#endif
    return sentence(day.tm_mday < 10 ? "0" : "", day.tm_mday, ' ', months[day.tm_mon], ' ', day.tm_year + 1900);
}

/// Renders a conversation whose messages are valid UTF-8 and of known roles.
class chat_renderer {
  public:
    chat_renderer(chat_template of, std::span<const chat_message> messages, const chat_options& options)
        : of_(of), messages_(messages), options_(options) {}

    chat_text render() {
        switch (of_) {
            case chat_template::chatml:
            case chat_template::qwen2_5:
            case chat_template::qwen3:
                chatml();
                break;
            case chat_template::llama3:
            case chat_template::llama3_1:
            case chat_template::llama3_2:
                llama();
                break;
            case chat_template::mistral:
                mistral();
                break;
        }
        return std::move(text_);
    }

  private:
    void token(std::string_view name, bool is_answer = false) {
        text_.pieces.push_back({std::string(name), true, is_answer});
    }
    void text(std::string_view text, bool is_answer = false) {
        if (!text.empty()) text_.pieces.push_back({std::string(text), false, is_answer});
    }
    static bool is_answer(const chat_message& m) { return m.role == "assistant" && m.is_trained; }

    void chatml() {
        if (of_ == chat_template::qwen2_5 && messages_[0].role != "system")
            chatml_turn("system", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", false);
        for (std::size_t i = 0; i < messages_.size(); ++i) {
            const chat_message& m = messages_[i];
            const bool thinks = of_ == chat_template::qwen3 && m.role == "assistant";
            chatml_turn(m.role, thinks ? with_thought(i) : m.content, is_answer(m));
        }
        if (!options_.add_generation_prompt) return;
        token("<|im_start|>");
        text("assistant\n");
        if (of_ == chat_template::qwen3 && !options_.enable_thinking) text("<think>\n\n</think>\n\n");
    }
    void chatml_turn(std::string_view role, std::string_view content, bool is_answer) {
        token("<|im_start|>");
        text(role);
        text("\n");
        text(content, is_answer);
        token(end_of_turn(of_), is_answer);
        text("\n");
    }
    /// Qwen3 keeps its thoughts behind the last question only, and there the last message has one, if only an empty one.
    std::string with_thought(std::size_t i) const {
        std::string_view content = messages_[i].content, thought;
        constexpr std::string_view begin = "<think>", end = "</think>";
        if (messages_[i].reasoning_content) {
            thought = *messages_[i].reasoning_content;
        } else if (const std::size_t first = content.find(end); first != content.npos) {
            thought = without_trailing_newlines(content.substr(0, first));
            if (const std::size_t opened = thought.rfind(begin); opened != thought.npos)
                thought.remove_prefix(opened + begin.size());
            thought = without_leading_newlines(thought);
            content = without_leading_newlines(content.substr(content.rfind(end) + end.size()));
        }
        const bool is_last = i + 1 == messages_.size();
        if (i <= last_question() || (!is_last && thought.empty())) return std::string(content);
        return "<think>\n" + std::string(without_leading_newlines(without_trailing_newlines(thought))) +
               "\n</think>\n\n" + std::string(without_leading_newlines(content));
    }
    std::size_t last_question() const {
        for (std::size_t i = messages_.size(); i-- > 0;) {
            const std::string& content = messages_[i].content;
            const bool is_response = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
            if (messages_[i].role == "user" && !is_response) return i;
        }
        return messages_.size() - 1;
    }

    void llama() {
        std::size_t first = 0;
        token("<|begin_of_text|>");
        if (of_ != chat_template::llama3) {
            const bool has_system = messages_[0].role == "system";
            const std::string date = !options_.date.empty()           ? options_.date
                                     : of_ == chat_template::llama3_1 ? "26 Jul 2024"
                                                                      : date_of_today();
            llama_header("system");
            text("Cutting Knowledge Date: December 2023\nToday Date: " + date + "\n\n");
            if (has_system) text(stripped(messages_[0].content));
            token(end_of_turn(of_));
            first = has_system ? 1 : 0;
        }
        for (const chat_message& m : messages_.subspan(first)) {
            llama_header(m.role);
            text(stripped(m.content), is_answer(m));
            token(end_of_turn(of_), is_answer(m));
        }
        if (options_.add_generation_prompt) llama_header("assistant");
    }
    void llama_header(std::string_view role) {
        token("<|start_header_id|>");
        text(role);
        token("<|end_header_id|>");
        text("\n\n");
    }

    /// A Mistral's system message stands before the question, if that is the last message, and nowhere otherwise.
    void mistral() {
        const bool has_system = messages_[0].role == "system";
        token("<s>");
        for (std::size_t i = has_system ? 1 : 0; i < messages_.size(); ++i) {
            const chat_message& m = messages_[i];
            if ((m.role == "user") != ((i - (has_system ? 1 : 0)) % 2 == 0))
                fail<data_error>("chat: message ", i, " of role ", m.role,
                                 "; expected user and assistant in turn behind a system message");
            if (m.role == "assistant") {
                text(m.content, is_answer(m));
                token(end_of_turn(of_), is_answer(m));
                continue;
            }
            token("[INST]");
            if (has_system && i + 1 == messages_.size()) text(messages_[0].content + "\n\n");
            text(m.content);
            token("[/INST]");
        }
    }

    chat_template of_;
    std::span<const chat_message> messages_;
    const chat_options& options_;
    chat_text text_;
};

}  // namespace detail

/// A conversation's text. Throws data_error for no messages, for a role that is none of the three, for bytes that are not UTF-8, and, for
/// Mistrals, for roles that do not take turns.
inline chat_text render_chat(chat_template of, std::span<const chat_message> messages,
                             const chat_options& options = {}) {
    if (messages.empty()) fail<data_error>("chat: there are no messages");
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const chat_message& m = messages[i];
        if (!detail::is_chat_role(m.role))
            fail<data_error>("chat: message ", i, " has the role ", detail::shown(m.role),
                             "; expected system, user or assistant");
        for (const std::string& text : {m.content, m.reasoning_content.value_or("")}) {
            if (detail::unicode::first_invalid(text.data(), text.data() + text.size()) != text.data() + text.size())
                fail<data_error>("chat: message ", i, " is not UTF-8");
        }
    }
    return detail::chat_renderer(of, messages, options).render();
}

/// A rendered conversation's tokens. Text between special tokens is encoded as one, so that ids are those of the whole text; a token with
/// the beginning of an answer in it is one of the answer. Throws data_error for a tokenizer without one of the template's tokens.
inline chat_tokens encode_chat(const tokenizer& tokenizer, const chat_text& chat) {
    chat_tokens made;
    std::string run;                                   // the text since the last special token
    std::vector<std::pair<std::size_t, bool>> begins;  // where in it an answer, or what is none, begins
    const auto finish = [&] {
        const std::size_t before = made.tokens.size();
        tokenizer.encode(run, {.add_special_tokens = false}, made.tokens);
        made.answers.resize(made.tokens.size());
        for (std::size_t i = 0; i < begins.size(); ++i) {
            // The tokens of what stands before are the first of all, but for the last of them, which may reach beyond.
            std::size_t first = before;
            for (const std::int32_t id :
                 tokenizer.encode(std::string_view(run).substr(0, begins[i].first), {.add_special_tokens = false})) {
                if (first == made.tokens.size() || made.tokens[first] != id) break;
                ++first;
            }
            std::fill(made.answers.begin() + static_cast<std::ptrdiff_t>(first), made.answers.end(),
                      static_cast<std::uint8_t>(begins[i].second));
        }
        run.clear();
        begins.clear();
    };
    for (const chat_text::piece& p : chat.pieces) {
        if (!p.is_token) {
            if (begins.empty() ? p.is_answer : begins.back().second != p.is_answer)
                begins.emplace_back(run.size(), p.is_answer);
            run += p.text;
            continue;
        }
        finish();
        const auto id = tokenizer.id(p.text);
        if (!id) fail<data_error>("chat: the tokenizer has no token ", p.text, ", which the template needs");
        made.tokens.push_back(*id);
        made.answers.push_back(p.is_answer);
    }
    finish();
    return made;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
