// SPDX-License-Identifier: MIT
/// \file
/// How a model generates, from its generation_config.json, its config.json or its GGUF file.
#include <string>

#include <doctest/doctest.h>

#include <halftone/io/pretrained/generation_options.hpp>

#include "io/gguf_writer.hpp"
#include "support/temporary_folder.hpp"

namespace io_generation_options_tests {

namespace ht = halftone;
using ids = std::vector<std::int32_t>;

/// A folder with this generation_config.json.
struct folder_of {
    support::temporary_folder folder;
    explicit folder_of(const std::string& text) { folder.write("generation_config.json", text); }
    ht::generation_options read() const { return ht::read_generation_options(folder.path()); }
    std::string said() const {
        try {
            read();
        } catch (const ht::safetensors_error& e) {
            const std::string line = e.what();
            return line.substr(line.find("json: ") + 6);
        }
        return "nothing";
    }
};

TEST_CASE("generation options: of Qwen2.5, of a Llama, and transformers' defaults") {
    const auto qwen = folder_of(R"({"bos_token_id": 1, "pad_token_id": 2, "do_sample": true, "eos_token_id": [7, 9],
                                    "repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
                                    "transformers_version": "4.37.0", "num_beams": 1, "min_p": null, "typical_p": 1.0})")
                          .read();
    CHECK(qwen.eos == ids{7, 9});
    CHECK(qwen.repetition_penalty == 1.1);
    CHECK(qwen.temperature == 0.7);
    CHECK(qwen.top_p == 0.8);
    CHECK(qwen.top_k == 20);
    CHECK(qwen.max_new_tokens == ht::generation_options{}.max_new_tokens);
    const auto drawn = folder_of(R"({"do_sample": true, "eos_token_id": 3, "max_new_tokens": 99})").read();
    CHECK(drawn.eos == ids{3});
    CHECK(drawn.temperature == 1);
    CHECK(drawn.top_k == 50);
    CHECK(drawn.top_p == 1);
    CHECK(drawn.max_new_tokens == 99);
    CHECK(folder_of(R"({"do_sample": true, "top_k": 0})").read().top_k == 0);
    // Without do_sample the most likely tokens, whatever the temperature is.
    const auto greedy = folder_of(R"({"temperature": 0.6, "top_p": 0.9})").read();
    CHECK(greedy.temperature == 0);
    CHECK(greedy.top_p == 1);
    CHECK(greedy.eos.empty());
}

TEST_CASE("generation options: without the file they are those of config.json, or the ends of a GGUF file's keys") {
    const support::temporary_folder folder;
    const auto config =
        folder.write("config.json", R"({"model_type": "gpt2", "eos_token_id": 50256, "temperature": 0.3})");
    CHECK(ht::read_generation_options(folder.path()).eos == ids{50256});
    CHECK(ht::read_generation_options(folder.path()).temperature == 0);
    folder.write(
        "config.json",
        R"({"eos_token_id": 5, "do_sample": true, "temperature": 0.3, "top_k": 7, "repetition_penalty": 1.3})");
    const auto drawn = ht::read_generation_options(folder.path());
    CHECK(drawn.eos == ids{5});
    CHECK(drawn.temperature == 0.3);
    CHECK(drawn.top_k == 7);
    CHECK(drawn.repetition_penalty == 1.3);
    folder.write("config.json", R"({"num_beams": 3})");
    CHECK_THROWS_AS(ht::read_generation_options(folder.path()), ht::safetensors_error);

    // A generation_config.json is all there is, also for who names the config.json beside it.
    folder.write("generation_config.json", R"({"do_sample": true, "temperature": 0.7})");
    for (const auto& path : {folder.path(), config}) {
        CHECK(ht::read_generation_options(path).temperature == 0.7);
        CHECK(ht::read_generation_options(path).eos.empty());
    }
    CHECK_THROWS_AS(ht::read_generation_options(folder.path() / "none"), ht::io_error);
    CHECK_THROWS_AS(ht::read_generation_options(std::string(300, 'x')), ht::io_error);

    using type = ht::gguf_value_type;
    support::gguf_writer file;
    file.add("tokenizer.ggml.model", "gpt2");
    file.add_texts("tokenizer.ggml.tokens", {"a", "b", "c"});
    file.add("tokenizer.ggml.eos_token_id", type::u32, std::uint32_t{2});
    file.add("tokenizer.ggml.eot_token_id", type::u32, std::uint32_t{1});
    CHECK(ht::read_generation_options(folder.write("model.gguf", file.bytes())).eos == ids{2, 1});
}

TEST_CASE("generation options: what would choose other tokens is refused by the name of the key") {
    CHECK(folder_of(R"({"num_beams": 4})").said() == "num_beams is 4; expected 1");
    CHECK(folder_of(R"({"no_repeat_ngram_size": 3})").said() == "no_repeat_ngram_size is 3; expected 0");
    CHECK(folder_of(R"({"min_p": 0.1})").said() == "min_p is 0.1; expected 0");
    CHECK(folder_of(R"({"suppress_tokens": [1]})").said() ==
          "suppress_tokens is there; halftone does not compute such a model");
    CHECK(folder_of(R"({"eos_token_id": "x"})").said() == "eos_token_id is \"x\"; expected an id, or a list of them");
    CHECK(folder_of(R"({"eos_token_id": [1, -1]})").said() ==
          "eos_token_id is [1,-1]; expected an id, or a list of them");
    CHECK(folder_of(R"({"do_sample": 1})").said() == "do_sample is 1; expected true or false");
    CHECK(folder_of(R"({"do_sample": true, "top_p": 1.5})").said() == "top_p is 1.5; expected at most 1");
    CHECK(folder_of(R"({"do_sample": true, "temperature": 0})").said() ==
          "temperature is 0; expected a number above 0");
    CHECK(folder_of(R"({"max_new_tokens": 18446744073709551615})").said() ==
          "max_new_tokens is 18446744073709551615; expected 1 to 1073741824");
    CHECK(folder_of(R"({"do_sample": true, "top_k": -1})").said() == "top_k is -1; expected 1 to 1073741824");
    CHECK_THROWS_AS(folder_of("[]").read(), ht::safetensors_error);
}

}  // namespace io_generation_options_tests
