// SPDX-License-Identifier: MIT
/// \file
/// GGUF files for llama.cpp: tokenizers that such a file cannot have are refused, special tokens are those that a folder names, and the last
/// case writes what tests/programs/gguf_models.py has llama.cpp compute.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <halftone/amp.hpp>
#include <halftone/data/tokenizer.hpp>
#include <halftone/io/pretrained/save_gguf.hpp>

#include "io/llama_cpp_models.hpp"
#include "io/pretrained_checks.hpp"
#include "support/temporary_folder.hpp"

namespace io_gguf_for_llama_cpp_tests {

namespace ht = halftone;
namespace fs = std::filesystem;
using json = nlohmann::json;
using pretrained_checks::message_of, pretrained_checks::text_of;
using namespace llama_cpp_models;

using type = ht::ggml_type;

const fs::path golden = HALFTONE_TEST_DATA;

/// A copy of a folder of chat_models of which JSON files are changed.
struct changed_chat_model {
    support::temporary_folder folder;
    explicit changed_chat_model(const std::string& name) { fs::copy(golden / "chat_models" / name, folder.path()); }
    template <class F>
    void change(const char* file, const F& f) const {
        json there = json::parse(text_of(folder.path() / file));
        f(there);
        std::ofstream(folder.path() / file) << there;
    }
    /// What its tokenizer is in a GGUF file.
    ht::gguf_tokenizer keys(const std::string& pre = "") const {
        return ht::detail::gguf_tokenizer_of_folder(folder.path(), 384, pre);
    }
    /// What that throws, behind the folder's name.
    std::string said() const {
        const std::string message = message_of([&] { keys(); });
        const auto at = message.find(folder.path().string());
        return at == std::string::npos ? message : message.substr(at + folder.path().string().size());
    }
};

TEST_CASE("gguf: tokenizers that a file cannot have are refused by what is wrong") {
    using ends_of = std::optional<std::int64_t>;
    const auto with = [](const char* name, const char* file, const auto& change) {
        const changed_chat_model m(name);
        m.change(file, change);
        return m.said();
    };
    const char* const tokenizer = "tokenizer.json";
    CHECK(changed_chat_model("llama3").said() == "no error");
    CHECK(changed_chat_model("gpt2").keys().pre == "gpt-2");
    const std::string unknown = "/tokenizer.json: parts texts in a way that halftone has no tokenizer.ggml.pre for; ";
    CHECK(with("llama3", tokenizer, [](json& t) { t["model"]["ignore_merges"] = false; }).starts_with(unknown));
    CHECK(with("llama3", tokenizer, [](json& t) { t["normalizer"] = {{"type", "NFC"}}; }).starts_with(unknown));
    CHECK(with("gpt2", tokenizer, [](json& t) { t["pre_tokenizer"]["add_prefix_space"] = true; }).starts_with(unknown));
    CHECK(with("qwen2", tokenizer, [](json& t) { t["normalizer"] = nullptr; }) == "no error");
    CHECK(with("qwen2", tokenizer, [](json& t) { t["normalizer"] = {{"type", "NFD"}}; }).starts_with(unknown));
    CHECK(with("qwen2", tokenizer, [](json& t) {
              t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\p{L}+";
          }).starts_with(unknown));
    CHECK(with("qwen2", tokenizer, [](json& t) { t["added_tokens"][1]["lstrip"] = true; })
              .starts_with(
                  "/tokenizer.json: added_tokens: <|im_start|> is looked for with lstrip, rstrip or single_word, or "
                  "normalized"));
    CHECK(with("qwen2", tokenizer, [](json& t) { t["model"]["vocab"]["one more"] = 390; }) ==
          "/tokenizer.json: the largest id is 390; the model's table has 384 rows");
    CHECK(with("llama3", tokenizer,
               [](json& t) {
                   t["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"a", 64}}, {"sep", {"b", 65}}};
               }) ==
          "/tokenizer.json: post_processor puts other tokens around a text than bos_token alone, as llama.cpp does it");
    // What stands behind a text is eos, whichever of the ends it is.
    changed_chat_model behind("llama3");
    behind.change(tokenizer, [](json& t) {
        t["post_processor"] = {
            {"type", "BertProcessing"}, {"cls", {"<|begin_of_text|>", 368}}, {"sep", {"<|end_of_text|>", 369}}};
    });
    CHECK(behind.keys().add_eos == true);
    CHECK(behind.keys().eos == ends_of{369});
    CHECK(behind.keys().eot == ends_of{373});
    // Ids: by name, else of the other files; without any the file is refused.
    changed_chat_model ids("qwen2");
    ids.change("tokenizer_config.json", [](json& t) {
        t["bos_token"] = {{"content", "<|im_start|>"}};
        t["eos_token"] = "no such token";
        t["unk_token"] = "<|endoftext|>";
    });
    CHECK(ids.keys().bos == ends_of{369});
    CHECK(ids.keys().eos == ends_of{370});
    CHECK(ids.keys().eot == ends_of{368});
    CHECK(ids.keys().unknown == ends_of{368});
    CHECK(ids.keys().add_bos == false);
    fs::remove(ids.folder.path() / "tokenizer_config.json");
    fs::remove(ids.folder.path() / "generation_config.json");
    ids.change("config.json", [](json& t) {
        t["eos_token_id"] = 368;
        t["bos_token_id"] = 9999;
    });
    CHECK(ids.keys().eos == ends_of{368});
    CHECK(!ids.keys().bos);
    ids.change("config.json", [](json& t) { t["eos_token_id"] = nullptr; });
    CHECK(ids.said().starts_with(": names no token that ends a text, for which llama.cpp takes token 11; "));
    // .pre is taken as it is.
    ids.change("config.json", [](json& t) { t["eos_token_id"] = 5; });
    ids.change(tokenizer, [](json& t) { t["normalizer"] = {{"type", "NFD"}}; });
    CHECK(ids.keys("tekken").pre == "tekken");
    fs::remove(ids.folder.path() / tokenizer);
    CHECK(ids.said() == "/tokenizer.json");
    CHECK(message_of([&] { ids.keys(); }).starts_with("tokenizer: there is no "));
    const json words = json::parse(text_of(golden / "tokenizers" / "bert.json"))["tokenizer"];
    CHECK(message_of([&] { ht::detail::gguf_tokenizer_of("it", words, 100000); }) ==
          "it: model.type is \"WordPiece\"; expected \"BPE\", of bytes");
    // Of a merge that is there twice the last place counts.
    CHECK(ht::detail::gguf_merges_of("it", json::array({"#version: 0.2", "a b", "c d", "a b"})) ==
          std::vector<std::string>{"c d", "a b"});
    CHECK(message_of([&] {
              ht::detail::gguf_merges_of("it", json::array({json::array({"a ", "b"})}));
          }) == "it: model.merges[0] has a token with a blank, which no GGUF file has");
}

TEST_CASE("gguf: files for llama.cpp" * doctest::skip()) {
    const support::temporary_folder temporary;
    const fs::path folder = pretrained_checks::kept_or("HALFTONE_GGUF", temporary);
    ht::cpu device{{.threads = 1}};
    const std::vector<std::string> texts{
        "Hello there, what is 1234 + 56?",
        "  two blanks\n\n\tand lines  ",
        "it's THE cat's",
        "\xc3\xa9t\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x99\x82",
        "",
        "<|im_start|>user\nhi<|im_end|>\n<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><think>"};
    const auto write = [&]<ht::nn::qk_norm Norm>(const real_model& of) {
        ht::nn::llama<ht::full_fp32, Norm> model{device, of.sizes, 7};
        fill(model.parameters());
        const fs::path like = save_with_tokenizer(model, of, folder);
        const auto tokenizer = ht::tokenizer::from_file(like);
        for (const type t : {type::f32, type::f16, type::bf16, type::q8_0, type::q4_0}) {
            const fs::path path = folder / (std::string(of.name) + '-' + ht::name(t) + ".gguf");
            ht::save_gguf(model, path, {.like = like, .type = t});
            ht::nn::llama<ht::full_fp32, Norm> back{device, ht::read_llama_config(path)};
            ht::load_pretrained(back, path);
            json found = computed(device, back, {3, 141, 59, 26, 53, 58, 97, 93, 238});
            found["texts"] = texts;
            for (const std::string& text : texts) {
                found["ids"].push_back(tokenizer.encode(text));
                found["special_ids"].push_back(tokenizer.encode(text, {.allow_special = true}));
            }
            found["ends"] = ht::read_generation_options(like).eos;
            std::ofstream(fs::path(path).replace_extension(".json")) << found;
        }
        ht::save_gguf(model, folder / (std::string(of.name) + "-bare.gguf"), {.type = type::f32});
        std::ofstream(folder / (std::string(of.name) + "-bare.json")) << computed(device, model, {3, 141, 59, 26, 53});
    };
    for (const real_model& of : real_models()) {
        std::string(of.name) == "qwen3" ? write.operator()<ht::nn::qk_norm::rms>(of)
                                        : write.operator()<ht::nn::qk_norm::none>(of);
    }
}

}  // namespace io_gguf_for_llama_cpp_tests
