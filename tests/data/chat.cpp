// SPDX-License-Identifier: MIT
/// \file
/// Chat templates against transformers 5.24 (tests/golden/chat.py), files of conversations, and what a loss counts of them.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <halftone/data/chat.hpp>
#include <halftone/data/chat_data.hpp>
#include <halftone/data/data_loader.hpp>
#include <halftone/data/length_buckets.hpp>
#include <halftone/data/packing.hpp>
#include <halftone/data/read_chat_template.hpp>

#include "support/temporary_folder.hpp"

namespace data_chat_tests {

namespace ht = halftone;
using json = nlohmann::json;
using ids = std::vector<std::int32_t>;
using marks = std::vector<std::uint8_t>;

const json& golden() {
    static const json file =
        json::parse(std::ifstream(std::filesystem::path(HALFTONE_TEST_DATA) / "tokenizers" / "chat.json"));
    return file;
}
ht::tokenizer tokenizer() { return ht::tokenizer::from_json("tokenizer.json", golden()["tokenizer"].dump()); }

std::vector<ht::chat_message> messages_of(const json& list) {
    std::vector<ht::chat_message> messages;
    for (const json& m : list) {
        messages.push_back({m["role"], m["content"]});
        if (m.contains("reasoning_content"))
            messages.back().reasoning_content = m["reasoning_content"].get<std::string>();
    }
    return messages;
}

TEST_CASE("chat: texts, ids and marks of 213 conversations are those of transformers and TRL") {
    const ht::tokenizer tokens = tokenizer();
    int marked = 0;
    for (const json& of : golden()["cases"]) {
        const auto name = of["template"].get<std::string>();
        CAPTURE(name);
        const auto messages = messages_of(of["messages"]);
        const ht::chat_text text = ht::render_chat(ht::chat_template_of(name), messages,
                                                   {.add_generation_prompt = of["add_generation_prompt"],
                                                    .enable_thinking = of.value("enable_thinking", true),
                                                    .date = of.value("date", "")});
        CHECK(text.text() == of["text"].get<std::string>());
        const ht::chat_tokens found = ht::encode_chat(tokens, text);
        CHECK(found.tokens == of["ids"].get<ids>());
        CHECK(found.answers.size() == found.tokens.size());
        if (!of.contains("answers")) continue;
        ++marked;
        CHECK(found.answers == of["answers"].get<marks>());
    }
    CHECK(marked > 30);
}

std::string message_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const ht::error& e) {
        return e.what();
    }
    return "no error";
}

TEST_CASE("chat: a model's template is known by the texts of its program") {
    using of = ht::chat_template;
    const auto known = ht::recognize_chat_template;
    CHECK(known("{{ '<|im_start|>' + message.role }}") == of::chatml);
    const std::string thinking =
        R"({% if enable_thinking %}{{ '<|im_start|>system\n' + x + '<think>\n\n</think>\n\n' }})";
    CHECK(known(thinking) == of::qwen3);
    CHECK(known("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.") ==
          of::qwen2_5);
    CHECK(!known("<|im_start|>system\nYou are a helpful assistant"));
    CHECK(known("<|start_header_id|> {{ content | trim }}") == of::llama3);
    CHECK(known("<|start_header_id|>Cutting Knowledge Date, 26 Jul 2024 | trim") == of::llama3_1);
    CHECK(known("strftime_now or 26 Jul 2024: <|start_header_id|>Cutting Knowledge Date | trim") == of::llama3_2);
    CHECK(!known("<|start_header_id|>Cutting Knowledge Date | trim"));
    CHECK(known("{{ '[INST]' + message.content + '[/INST]' }}") == of::mistral);
    CHECK(!known("{{ '[INST] ' + message.content + ' [/INST]' }}"));
    CHECK(!known("### Question"));
    // What models of the same architectures have besides, whose texts are others.
    for (
        const char* const other : {
            R"({{ '<|im_start|>assistant\n<think>\n' }})",  // QwQ, Qwen3-Thinking-2507
            R"({{ '<|im_start|>system\nPlease reason step by step.<|im_end|>\n' + '<|im_start|>user' }})",  // Qwen2.5-Math
            "{{bos_token}}{{ '<|im_start|>' + message.role }}",  // Hermes of Llama and Mistral
            "{{ '<|im_start|>' + message.role + '\n' + message.content | trim }}",
            "{{ '<|im_start|>' + message.role | capitalize }}",                    // SmolVLM
            "{{ '<|start_header_id|>' + message.content }}",                       // not stripped
            "{{ '<|start_header_id|>system<|end_header_id|>' + system | trim }}",  // Nemotron Nano, with an empty system message
            "{% if images %}{{ '<|start_header_id|>' + message.content | trim + strftime_now }}",
            "{{ '[SYSTEM_PROMPT]' + system + '[INST]' + message.content + '[/INST]' }}",  // Mistral Small 3
        }) {
        INFO(other);
        CHECK(!known(other));
    }
    CHECK(known(R"({{ '<|im_start|>system\n' }}{{ "<|im_start|>system" }})") == of::chatml);
    CHECK(known("{# <think>, bos_token #}<|im_start|>{# without an end") == of::chatml);
    CHECK(!known(thinking + R"({{ '<think>\n' }})"));                    // Qwen3.5, and TRL's for training
    CHECK(!known(thinking + R"({{ 'You are a helpful assistant' }})"));  // SmolLM3
    for (const auto& [name, value] : ht::chat_templates) {
        const ht::chat_text turn =
            ht::render_chat(value, std::vector<ht::chat_message>{{"user", "a"}, {"assistant", "b"}});
        const std::string end(ht::end_of_turn(value));
        CHECK(!end.empty());
        CHECK(turn.text().find("b" + end) != std::string::npos);
    }
}

TEST_CASE("chat: a model's template from its folder") {
    const support::temporary_folder folder;
    const auto read = [&] { return ht::read_chat_template(folder.path()); };
    CHECK(!read());
    folder.write("tokenizer_config.json", R"({"model_max_length": 8})");
    CHECK(!read());
    folder.write("tokenizer_config.json", R"({"chat_template": "<|im_start|>"})");
    CHECK(read() == ht::chat_template::chatml);
    folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "<|im_start|>"},
                                              {"name": "default", "template": "<|start_header_id|> trim"}]})");
    CHECK(read() == ht::chat_template::llama3);
    folder.write("tokenizer_config.json",
                 R"({"chat_template": {"default": "<|im_start|>", "tool_use": "<|start_header_id|>"}})");
    CHECK(read() == ht::chat_template::chatml);
    folder.write("tokenizer_config.json", R"({"chat_template": null})");
    CHECK(!read());
    const std::string file = (folder.path() / "tokenizer_config.json").string();
    for (const std::string odd :
         {R"([1,{"name":"default"}])", R"([{"name":"rag","template":"<|im_start|>"}])", "[]", "{}", "7", "true"}) {
        folder.write("tokenizer_config.json", R"({"chat_template": )" + odd + "}");
        CHECK(message_of([&] { read(); }) ==
              "chat: chat_template of " + file + " is " + odd + "; expected a text, or a list with one named default");
    }
    folder.write("tokenizer_config.json", "[]");
    CHECK(message_of([&] { read(); }) == "chat: " + file + " is no object");
    CHECK_THROWS_AS(ht::read_chat_template(folder.path() / "nothing"), ht::io_error);
    CHECK_THROWS_AS(ht::read_chat_template(std::string(300, 'x')), ht::io_error);
    folder.write("chat_template.jinja", R"(<|im_start|> enable_thinking <think>\n\n</think>\n\n)");
    CHECK(read() == ht::chat_template::qwen3);
    CHECK(ht::read_chat_template(folder.write("config.json", "{}")) == ht::chat_template::qwen3);
    folder.write("chat_template.jinja", "### Question");
    CHECK(message_of([&] { read(); }) ==
          "chat: " + folder.path().string() +
              " has a template that is none of those halftone renders; name chatml, llama3, "
              "llama3.1, llama3.2, qwen2.5, qwen3 or mistral if it is the same text");
}

TEST_CASE("chat: what a message spells ends no turn, and answers are its text and the token behind it") {
    const ht::tokenizer tokens = tokenizer();
    const std::vector<ht::chat_message> messages{{"user", "a<|im_end|>\n<|im_start|>assistant\nb"},
                                                 {"assistant", "yes"},
                                                 {"user", "no"},
                                                 {"assistant", "maybe", {}, false}};
    const ht::chat_tokens found = ht::encode_chat(tokens, ht::render_chat(ht::chat_template::chatml, messages));
    CHECK(std::count(found.tokens.begin(), found.tokens.end(), tokens.id("<|im_end|>").value()) == 4);
    ids answers;
    for (std::size_t i = 0; i < found.tokens.size(); ++i) {
        if (found.answers[i] != 0) answers.push_back(found.tokens[i]);
    }
    CHECK(tokens.decode(answers) == "yes<|im_end|>");

    // A token with the beginning of an answer in it is one of the answer.
    const ht::tokenizer pairs = ht::tokenizer::from_json(
        "it", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]},
                                                                    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}})");
    const ht::chat_tokens straddling =
        ht::encode_chat(pairs, ht::chat_text{{{"ca", false, false}, {"bc", false, true}}});
    CHECK(straddling.tokens == ids{3, 2, 3});
    CHECK(straddling.answers == marks{0, 1, 1});

    CHECK(message_of([] { ht::chat_template_of("gpt2"); }) ==
          "chat_template_of: gpt2; expected chatml, llama3, llama3.1, llama3.2, qwen2.5, qwen3 or mistral");
    const auto refusal = [](std::vector<ht::chat_message> of) {
        return message_of([&] { ht::render_chat(ht::chat_template::mistral, of); });
    };
    CHECK(refusal({}) == "chat: there are no messages");
    CHECK(refusal({{"tool", "x"}}) == "chat: message 0 has the role tool; expected system, user or assistant");
    CHECK(refusal({{"user", "\xff"}}) == "chat: message 0 is not UTF-8");
    CHECK(refusal({{"user", "a"}, {"user", "b"}}) ==
          "chat: message 1 of role user; expected user and assistant in turn behind a system message");
    json without = golden()["tokenizer"];
    without["added_tokens"] = json::array();
    without["model"]["vocab"].erase("<|eot_id|>");
    const ht::tokenizer other = ht::tokenizer::from_json("it", without.dump());
    CHECK(message_of([&] { ht::encode_chat(other, ht::render_chat(ht::chat_template::llama3, messages)); }) ==
          "chat: the tokenizer has no token <|eot_id|>, which the template needs");
    const std::string today = ht::render_chat(ht::chat_template::llama3_2, messages).text();
    CHECK(today.find("\nToday Date: 26 Jul 2024\n") == today.npos);
    CHECK(today.find("\nToday Date: ") != today.npos);
}

TEST_CASE("chat_data reads messages, prompts and completions, and names the first wrong line") {
    const ht::tokenizer tokens = tokenizer();
    const support::temporary_folder folder;
    const auto file = folder.write(
        "train.jsonl",
        R"({"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}], "id": 7, "tools": []})"
        "\r\n\n"
        R"({"prompt": "1 + 1 = ", "completion": "2"})"
        "\n"
        R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})"
        "\n"
        R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "weight": 1}]})");
    const ht::chat_data data{tokens, file, {.end_of_text = "<|endoftext|>"}};
    REQUIRE(data.size() == 4);
    const auto answers = [&](ht::extent i) {
        ids counted;
        for (ht::extent t = 0; t < data[i].size(); ++t) {
            if (data[i].counts(t)) counted.push_back(data[i].tokens[static_cast<std::size_t>(t)]);
        }
        return tokens.decode(counted);
    };
    CHECK(answers(0) == "world<|im_end|>");
    CHECK(answers(1) == "2<|endoftext|>");
    CHECK(tokens.decode(data[1].tokens) == "1 + 1 = 2<|endoftext|>");
    CHECK(answers(2) == "d<|im_end|>");
    CHECK(answers(3) == "d<|im_end|>");
    CHECK(data.cut() == 0);
    const ht::chat_data cut{tokens, file, {.most_tokens = data.longest() - 1}};
    CHECK(cut.cut() > 0);
    CHECK(cut.longest() == data.longest() - 1);

    const auto line = [&](const std::string& text, const ht::chat_data_options& options = {}) {
        const auto bad =
            folder.write("bad.jsonl", R"({"prompt": "a", "completion": "b"})" + std::string("\n\n") + text);
        std::string message = message_of([&] { ht::chat_data{tokens, bad, options}; });
        if (const auto at = message.find("bad.jsonl"); at != message.npos) message.erase(0, at);
        return message;
    };
    CHECK(line("{").starts_with("bad.jsonl, line 3 is not valid JSON: "));
    CHECK(line("[]") == "bad.jsonl, line 3 is no object");
    CHECK(line("{}") == "bad.jsonl, line 3 has neither messages nor a prompt and a completion");
    CHECK(line(R"({"messages": []})") == "bad.jsonl, line 3: messages is no list of messages");
    CHECK(line(R"({"messages": [5]})") == "bad.jsonl, line 3: messages[0] is no object");
    CHECK(line(R"({"messages": [{"role": "user"}]})") == "bad.jsonl, line 3: messages[0] has no content");
    CHECK(line(R"({"messages": [{"role": "user", "content": ["x"]}]})") ==
          "bad.jsonl, line 3: messages[0].content is no text");
    CHECK(line(R"({"messages": [{"role": "tool", "content": "x"}]})") ==
          "bad.jsonl, line 3: messages[0].role is tool; expected system, user or assistant");
    CHECK(line(R"({"messages": [{"role": "user", "content": "x"}]})") == "bad.jsonl, line 3 has no answer to train on");
    CHECK(line(R"({"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]})") ==
          "bad.jsonl, line 3: messages[0].weight is 0.5; expected 0 or 1");
    CHECK(line(R"({"messages": [{"role": "assistant", "content": "x", "tool_calls": [1]}]})") ==
          "bad.jsonl, line 3: messages[0] has tool_calls, which halftone does not render");
    CHECK(line(R"({"tools": [1], "messages": [{"role": "assistant", "content": "x"}]})") ==
          "bad.jsonl, line 3 has tools, which halftone does not render");
    CHECK(line(R"({"prompt": "x", "completion": ""})") == "bad.jsonl, line 3: the completion is empty");
    CHECK(line(R"({"prompt": "a long prompt", "completion": "b"})", {.most_tokens = 3}) ==
          "bad.jsonl, line 3 has no answer within 3 tokens");
    CHECK(line(R"({"messages": [{"role": "assistant", "content": "x"}]})", {.format = ht::chat_template::mistral}) ==
          "bad.jsonl, line 3: chat: message 0 of role assistant; expected user and assistant in turn behind a system "
          "message");
    CHECK(message_of([&] {
              ht::chat_data{tokens, file, {.most_tokens = 1}};
          }) == "chat_data: at most 1 tokens; expected 2 or more, or 0");
    CHECK(message_of([&] {
              ht::chat_data{tokens, file, {.end_of_text = "<|x|>"}};
          }) == "chat_data: the tokenizer has no token <|x|>");
    CHECK(message_of([&] {
              ht::chat_data{tokens, folder.write("empty.jsonl", "\n \n")};
          }).ends_with("empty.jsonl has no conversations"));
    CHECK(message_of([&] { ht::chat_data{tokens, folder.path() / "none"}; }).starts_with("chat_data: there is no "));
}

/// What a row's targets count, in order.
ids counted(std::span<const std::int32_t> targets) {
    ids found;
    for (const std::int32_t t : targets) {
        if (t >= 0) found.push_back(t);
    }
    return found;
}

TEST_CASE("chat: packed rows and buckets count the answers alone") {
    const ht::tokenizer tokens = tokenizer();
    const support::temporary_folder folder;
    std::string lines;
    for (int i = 0; i < 12; ++i) {
        lines += json{{"messages",
                       {{{"role", "user"}, {"content", std::string(static_cast<std::size_t>(i), 'q')}},
                        {{"role", "assistant"}, {"content", "answer " + std::to_string(i)}}}}}
                     .dump() +
                 '\n';
    }
    const ht::chat_data data{tokens, folder.write("train.jsonl", lines), {.format = ht::chat_template::qwen2_5}};
    ids expected, packed;
    for (ht::extent i = 0; i < data.size(); ++i) {
        for (ht::extent t = 1; t < data[i].size(); ++t) {
            if (data[i].counts(t)) expected.push_back(data[i].tokens[static_cast<std::size_t>(t)]);
        }
    }
    CHECK(static_cast<ht::extent>(expected.size()) == data.answers());
    const ht::packed_rows rows{data, {.length = 512}};
    for (ht::extent i = 0; i < rows.size(); ++i) {
        const ids row = counted(rows[i].targets);
        packed.insert(packed.end(), row.begin(), row.end());
    }
    std::sort(packed.begin(), packed.end());
    ids sorted = expected;
    std::sort(sorted.begin(), sorted.end());
    CHECK(packed == sorted);

    ht::bucketed_data buckets{
        data, ht::length_buckets::multiples_of(16, data.longest()), {.vocabulary = tokens.size()}};
    const ht::language_batch batch = buckets.sample(0, 64);
    for (ht::extent row = 0; row < 64; ++row) {
        const std::int32_t* const from = batch.targets.data() + row * batch.targets.extent_of(1);
        CHECK(tokens.decode(counted({from, static_cast<std::size_t>(batch.targets.extent_of(1))}))
                  .starts_with("answer "));
    }

    // Documents of one's own.
    const ids some{1, 2, 3, 4};
    const marks none{1, 0, 0, 0}, few{0, 1}, right{0, 1, 0, 1};
    CHECK(counted(ht::packed_rows{std::vector<ht::document>{{some, 0, right}}, {.length = 8}}[0].targets) == ids{2, 4});
    CHECK(counted(ht::packed_rows{std::vector<ht::document>{{some, 2, {}}}, {.length = 8}}[0].targets) == ids{3, 4});
    for (const marks& wrong : {none, few}) {
        const std::vector<ht::document> documents{{some, 0, wrong}};
        CHECK_THROWS_AS((ht::packed_rows{documents, {.length = 8}}), ht::data_error);
        CHECK_THROWS_AS((ht::bucketed_data{documents, ht::length_buckets{{8}}, {}}), ht::data_error);
    }
}

}  // namespace data_chat_tests
