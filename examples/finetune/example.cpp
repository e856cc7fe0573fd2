// SPDX-License-Identifier: MIT
#include <iostream>
#include <random>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <halftone/data/tokenizer.hpp>

#include "../write_file.hpp"
#include "example.hpp"
#include "progress.hpp"

using json = nlohmann::ordered_json;

namespace {

/// Words of three syllables, each once in many thousands.
class words {
  public:
    explicit words(std::uint64_t seed) : engine_(seed) {}
    std::string operator()() {
        std::string word;
        for (int i = 0; i < 3; ++i) word += "bdfgklmnprst"[engine_() % 12], word += "aeiou"[engine_() % 5];
        return word;
    }

  private:
    std::mt19937_64 engine_;
};
std::string in_capitals(std::string word) {
    for (char& c : word) c = static_cast<char>(c - 'a' + 'A');
    return word;
}

std::string line(const std::string& asked, const std::string& answer) {
    const json messages{{{"role", "user"}, {"content", asked}}, {{"role", "assistant"}, {"content", answer}}};
    return json{{"messages", messages}}.dump() + "\n";
}

/// What the base learns: to say words in capitals.
std::string lines_of_base() {
    std::string all;
    words next(1);
    for (int i = 0; i < 1200; ++i) {
        const std::string word = next(), said = in_capitals(word);
        all += i % 2 == 0 ? line("Say " + word, said) : line("Say " + word + " loudly", said + "!");
    }
    return all;
}
/// What it is tuned on: the first question, and an answer in a form that the base never gives, about other words.
std::string lines_of_task() {
    std::string all;
    words next(2);
    for (int i = 0; i < 160; ++i) {
        const std::string word = next();
        all += line("Say " + word, in_capitals(word) + " <said>");
    }
    return all;
}

/// A tokenizer whose tokens are the 256 bytes and three more, as a tokenizer.json: bytes are characters there, those of Latin-1 if they
/// are visible, others if not.
std::string tokenizer_json() {
    json vocabulary;
    for (int b = 0; b < 256; ++b) {
        const int c = b <= 0x20 ? 0x100 + b : b >= 0x7f && b <= 0xa0 ? 0x121 + b - 0x7f : b == 0xad ? 0x143 : b;
        std::string text;
        if (c >= 0x80) text += static_cast<char>(0xc0 | c >> 6);
        text += static_cast<char>(c < 0x80 ? c : 0x80 | (c & 0x3f));
        vocabulary[text] = b;
    }
    json added = json::array();
    int id = 256;
    for (const char* const name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
        vocabulary[name] = id;
        added.push_back({{"id", id++},
                         {"content", name},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
    }
    const json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
    return json{{"version", "1.0"},
                {"truncation", nullptr},
                {"padding", nullptr},
                {"added_tokens", added},
                {"normalizer", nullptr},
                {"pre_tokenizer", bytes},
                {"post_processor", nullptr},
                {"decoder", bytes},
                {"model",
                 {{"type", "BPE"},
                  {"dropout", nullptr},
                  {"unk_token", nullptr},
                  {"continuing_subword_prefix", nullptr},
                  {"end_of_word_suffix", nullptr},
                  {"fuse_unk", false},
                  {"byte_fallback", false},
                  {"vocab", vocabulary},
                  {"merges", json::array()}}}}
        .dump(1);
}
constexpr std::string_view chat_program =
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

example make_example(int threads, const std::filesystem::path& folder) {
    const example made{folder / "model", folder / "task.jsonl"};
    if (std::filesystem::exists(made.model / "config.json") && std::filesystem::exists(made.data)) return made;
    std::filesystem::create_directories(made.model);
    write_file(folder / "base.jsonl", lines_of_base());
    write_file(made.data, lines_of_task());
    write_file(made.model / "tokenizer.json", tokenizer_json());
    write_file(made.model / "tokenizer_config.json", json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                          {"eos_token", "<|im_end|>"},
                                                          {"pad_token", "<|endoftext|>"},
                                                          {"chat_template", chat_program}}
                                                         .dump(1));
    write_file(made.model / "generation_config.json", json{{"eos_token_id", 258}}.dump(1));
    const auto tokenizer = ht::tokenizer::from_file(made.model);
    conversations data = read_conversations(tokenizer, folder / "base.jsonl",
                                            {.chat = {}, .length = 128, .held_out = 1e-3, .most_questions = 0});
    task t;
    t.config = {.vocab_size = 320,
                .hidden_size = 128,
                .intermediate_size = 256,
                .num_hidden_layers = 2,
                .num_attention_heads = 4,
                .num_key_value_heads = 2,
                .max_position_embeddings = 256,
                .tie_word_embeddings = true};
    t.ends = {258};
    t.length = 128, t.batch = 8, t.steps = 400, t.learning_rate = 3e-3;
    std::cout << "Making a base: a Llama of two layers, " << data.lines
              << " conversations that ask for words in capitals, " << t.steps << " steps\n";
    const auto seen = make_progress("base", t.steps);
    ht::cpu device{{.threads = threads}};  // one of its own, so that its memory is not counted as that of the tuning
    full.tune(device, t, data.training, data.held_out, data.questions, {*seen, folder, "", 0, nullptr});
    std::filesystem::rename(folder / "merged" / "model.safetensors", made.model / "model.safetensors");
    std::filesystem::rename(folder / "merged" / "config.json", made.model / "config.json");
    std::filesystem::remove_all(folder / "merged");
    return made;
}
