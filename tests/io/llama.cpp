// SPDX-License-Identifier: MIT
/// \file
/// Llama, Mistral, Qwen2 and Qwen3 in transformers' folders (golden/llama_folders, golden/llama.py): the parameters of the loaded model,
/// the way back, configurations of transformers 4 and 5, and what is refused.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

#include <doctest/doctest.h>

#include <halftone/io/pretrained.hpp>

#include "io/pretrained_checks.hpp"
#include "nn/llama_checks.hpp"
#include "support/temporary_folder.hpp"

namespace io_llama_tests {

namespace ht = halftone;
using pretrained_checks::changed_folder, pretrained_checks::copy_renamed, pretrained_checks::message_of,
    pretrained_checks::text_of, pretrained_checks::values_of;
using namespace llama_test;

const std::filesystem::path folders = std::filesystem::path(HALFTONE_TEST_DATA) / "llama_folders";

/// What reading a folder with another value of a key says.
std::string said_by(pretrained_checks::changed_folder& folder, const char* key, const nlohmann::json& value,
                    const ht::read_llama_options& options = {}) {
    return folder.said(key, value, [&] { ht::read_llama_config(folder.folder.path(), options); });
}

template <ht::nn::qk_norm Norm = ht::nn::qk_norm::none>
void is_as_transformers_saved_it(const std::string& name, ht::extent window = 0) {
    CAPTURE(name);
    ht::cpu device{{.threads = 1}};
    const ht::nn::llama_config c = ht::read_llama_config(folders / name, {.sliding_window = window});
    ht::nn::llama<ht::full_fp32, Norm> model{device, c, 1}, expected{device, config_of(name)};
    behind_masters(expected);
    ht::load_pretrained(model, folders / name, window);
    CHECK(values_of(model.parameters()) == values_of(expected.parameters()));
    // The golden logits are those of the generator's model, so what has no shape is tested by comparing these.
    const batch b(expected);
    ht::inference eval{device};
    CHECK(support::doubles(model.logits(eval, b.tokens).view()) ==
          support::doubles(expected.logits(eval, b.tokens).view()));

    // And back: the tensors of the first folder, in one file or several, and its configuration. $HALFTONE_SAVED_LLAMAS keeps the
    // folders, which golden/llama.py --compare reads by transformers.
    const support::temporary_folder temporary;
    const std::filesystem::path folder = pretrained_checks::kept_or("HALFTONE_SAVED_LLAMAS", temporary);
    for (const bool is_like : {true, false}) {
        const std::filesystem::path saved = folder / (is_like ? "like" : "new") / name;
        ht::save_pretrained(model, saved,
                            {.like = is_like ? folders / name : "", .max_shard_bytes = is_like ? 4096u : 1000000u});
        pretrained_checks::has_tensors_of(saved, folders / name);
        if (is_like) CHECK(nlohmann::json::parse(text_of(saved / "config.json")).contains("initializer_range"));
        const ht::nn::llama_config again = ht::read_llama_config(saved, {.sliding_window = window});
        ht::detail::check_llama_sizes("saved", ht::detail::read_llama_folder(ht::detail::config_reader(saved)), c,
                                      Norm == ht::nn::qk_norm::rms, window);
        CHECK(again.max_position_embeddings == c.max_position_embeddings);
    }
}

TEST_CASE("llama folders: parameters are transformers', and a saved folder has its tensors") {
    for (const char* const name : {"llama", "llama3", "qwen2"}) is_as_transformers_saved_it(name);
    is_as_transformers_saved_it<ht::nn::qk_norm::rms>("qwen3");
    is_as_transformers_saved_it("mistral", 5);
}

TEST_CASE("llama folders: numbers of any type are converted, one tensor at a time") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    ht::nn::llama<ht::amp_bf16> first{device, ht::read_llama_config(folders / "qwen2")},
        second{device, first.config(), 7};
    ht::load_pretrained(first, folders / "qwen2");
    ht::save_pretrained(first, folder.path(), {.type = ht::dtype::bf16});
    CHECK(ht::tensor_files(folder.path()).tensors().front().type == ht::dtype::bf16);
    ht::load_pretrained(second, folder.path());
    const auto exact = values_of(first.parameters()), rounded = values_of(second.parameters());
    for (std::size_t i = 0; i < exact.size(); ++i) CHECK(rounded[i] == static_cast<float>(ht::bfloat16(exact[i])));
    // A number beyond a type's largest is found before the model is written to.
    const float largest = std::numeric_limits<float>::max();
    first.parameters().write(3, 0, reinterpret_cast<const std::byte*>(&largest), 1);
    ht::save_pretrained(first, folder.path());
    ht::nn::llama<ht::pure_bf16> narrow{device, first.config()}, same{device, first.config()};
    CHECK(message_of([&] {
              ht::load_pretrained(narrow, folder.path());
          }).ends_with("0.self_attn.q_proj.bias, 3.40282e+38 for a bfloat16"));
    ht::save_pretrained(narrow, folder.path() / "narrow");
    ht::save_pretrained(same, folder.path() / "same");
    CHECK(text_of(folder.path() / "narrow" / "model.safetensors") ==
          text_of(folder.path() / "same" / "model.safetensors"));
}

TEST_CASE("llama folders: loading takes no more host memory than the model and its largest tensor") {
    const auto of_process = [](const std::string& key) {
        std::ifstream in("/proc/self/status");
        for (std::string line; std::getline(in, line);) {
            if (line.starts_with(key)) return std::stoull(line.substr(key.size())) * 1024;
        }
        return 0ull;
    };
    ht::nn::llama_config c{.vocab_size = 65536,
                           .hidden_size = 128,
                           .intermediate_size = 64,
                           .num_hidden_layers = 1,
                           .num_attention_heads = 2,
                           .max_position_embeddings = 32};
    c.tie_word_embeddings = false;  // two tensors of 32 MiB
    const support::temporary_folder folder;
    {
        ht::cpu device{{.threads = 1}};
        ht::save_pretrained(ht::nn::llama<ht::full_fp32>{device, c}, folder.path());
    }
    const std::uint64_t largest = 65536 * 128 * sizeof(float), others = 8u << 20;
    std::ofstream("/proc/self/clear_refs") << 5 << std::flush;  // the peak begins anew
    const std::uint64_t before = of_process("VmRSS:");
    if (before == 0 || of_process("VmHWM:") > before + others) return;  // not Linux, or an emulated one
    {
        std::vector<char> some(largest);
        volatile char* const at = some.data();
        for (std::size_t i = 0; i < largest; i += 4096) at[i] = 1;
    }
    if (of_process("VmRSS:") > before + others) return;  // a sanitizer keeps what is freed
    std::ofstream("/proc/self/clear_refs") << 5 << std::flush;
    ht::cpu device{{.threads = 1}};
    const ht::defer_parameters until_loaded{device};
    ht::nn::llama<ht::amp_bf16> model{device, c};
    ht::load_pretrained(model, folder.path());
    const std::uint64_t peak = of_process("VmHWM:") - before;
    CAPTURE(peak);
    CHECK(peak <= device.memory().usage().peak() + largest + others);
}

TEST_CASE("llama folders: configurations of transformers 4 and of 5") {
    changed_folder llama(folders / "llama3");
    const ht::extent positions = ht::read_llama_config(llama.folder.path()).max_position_embeddings;
    CHECK(ht::read_llama_config(llama.folder.path(), {.at_most = positions - 1}).max_position_embeddings ==
          positions - 1);
    CHECK(ht::read_llama_config(llama.folder.path(), {.at_most = positions + 1}).max_position_embeddings == positions);
    CHECK(ht::read_llama_config(llama.folder.path()).rope_scaling.factor == 8);
    llama.config.erase("rope_parameters");
    llama.set("rope_scaling", {{"type", "llama3"},
                               {"factor", 4.0},
                               {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0},
                               {"original_max_position_embeddings", 16}});
    CHECK(ht::read_llama_config(llama.folder.path()).rope_scaling.factor == 4);
    CHECK(ht::read_llama_config(llama.folder.path()).rope_theta == 10000);
    llama.config["rope_scaling"] = nullptr;
    llama.set("rope_theta", 250.0);
    CHECK(ht::read_llama_config(llama.folder.path()).rope_theta == 250);
    CHECK(ht::read_llama_config(llama.folder.path()).rope_scaling.factor == 1);
    llama.set("rope_parameters", {{"rope_type", "default"}});  // without theta: that beside it
    CHECK(ht::read_llama_config(llama.folder.path()).rope_theta == 10000);
    llama.config["rope_theta"] = 250.0;
    llama.set("rope_parameters", {{"rope_type", "default"}});
    CHECK(ht::read_llama_config(llama.folder.path()).rope_theta == 250);
    llama.set("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 300}});
    CHECK(ht::read_llama_config(llama.folder.path()).rope_theta == 300);
    // Of both, transformers 5.24 takes rope_scaling, without the theta of the other.
    llama.config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 300}};
    const nlohmann::json scaling = {{"rope_type", "llama3"},
                                    {"factor", 8.0},
                                    {"low_freq_factor", 1.0},
                                    {"high_freq_factor", 4.0},
                                    {"original_max_position_embeddings", 16}};
    llama.set("rope_scaling", scaling);
    CHECK(ht::read_llama_config(llama.folder.path()).rope_scaling.factor == 8);
    CHECK(ht::read_llama_config(llama.folder.path()).rope_theta == 250);
    llama.set("rope_scaling", nlohmann::json::object());
    CHECK(ht::read_llama_config(llama.folder.path()).rope_theta == 300);
    llama.config.erase("rope_scaling");
    // What is absent.
    for (const char* const key :
         {"head_dim", "tie_word_embeddings", "rms_norm_eps", "num_key_value_heads", "hidden_act"}) {
        llama.set(key, nullptr);
        CHECK_NOTHROW(ht::read_llama_config(llama.folder.path()));
    }
    llama.set("num_key_value_heads", nullptr);
    CHECK(ht::read_llama_config(llama.folder.path()).num_key_value_heads == 4);
    llama.set("head_dim", nullptr);
    CHECK(ht::read_llama_config(llama.folder.path()).head_dim == 4);
    CHECK(ht::read_llama_config(llama.folder.path(), {.context = 20}).max_position_embeddings == 20);
    CHECK(message_of([&] {
              ht::read_llama_config(llama.folder.path(), {.context = 33});
          }).starts_with("read_llama_config: a context of 33; expected at most the 32 of "));
    CHECK(ht::read_model_type(folders / "qwen3") == "qwen3");
    llama.set("model_type", "falcon");
    CHECK(message_of([&] { ht::read_model_type(llama.folder.path()); })
              .ends_with("model_type is \"falcon\"; expected \"bert\", \"gpt2\", \"llama\", \"mistral\", \"qwen2\" or "
                         "\"qwen3\""));
}

TEST_CASE("llama folders: what halftone does not compute is refused by the name of the key") {
    changed_folder llama(folders / "llama");
    const auto rope = [&](nlohmann::json parameters) { return said_by(llama, "rope_parameters", parameters); };
    CHECK(rope({{"rope_type", "yarn"}, {"factor", 2.0}}) ==
          "rope_parameters's rope_type is \"yarn\"; expected \"default\" or \"llama3\"");
    CHECK(rope({{"rope_type", "dynamic"}}).ends_with("is \"dynamic\"; expected \"default\" or \"llama3\""));
    CHECK(rope({{"rope_type", "longrope"}}).ends_with("is \"longrope\"; expected \"default\" or \"llama3\""));
    CHECK(rope({{"rope_type", "linear"}, {"factor", 2.0}})
              .ends_with("is \"linear\"; expected \"default\" or \"llama3\""));
    CHECK(rope({{"rope_type", "llama3"}, {"factor", 2.0}}) == "low_freq_factor is missing");
    CHECK(rope({{"rope_type", "default"}, {"rope_theta", -1.0}}) == "rope_theta is -1.0; expected a number above 0");
    CHECK(rope({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}) ==
          "partial_rotary_factor is 0.5; expected 1");
    CHECK(rope({{"full_attention", {{"rope_type", "default"}}}}).ends_with("expected the same for all"));
    CHECK(rope("yes") == "rope_parameters is \"yes\"; expected an object");
    CHECK(said_by(llama, "hidden_act", "gelu") == "hidden_act is \"gelu\"; expected \"silu\"");
    CHECK(said_by(llama, "attention_bias", true) == "attention_bias is true; expected false");
    CHECK(said_by(llama, "mlp_bias", true) == "mlp_bias is true; expected false");
    CHECK(said_by(llama, "attention_dropout", 0.5) == "attention_dropout is 0.5; expected 0.0");
    CHECK(said_by(llama, "quantization_config", {{"bits", 4}}).starts_with("quantization_config is there"));
    CHECK(said_by(llama, "num_experts", 8).starts_with("num_experts is there"));
    CHECK(said_by(llama, "num_local_experts", 8).starts_with("num_local_experts is there"));
    CHECK(said_by(llama, "model_type", "gemma").starts_with("model_type is \"gemma\"; expected"));
    CHECK(said_by(llama, "vocab_size", nullptr) == "vocab_size is missing, or no integer");
    CHECK(said_by(llama, "head_dim", 0) == "head_dim is 0; expected 1 to 16777216");
    CHECK(said_by(llama, "tie_word_embeddings", "yes") == "tie_word_embeddings is \"yes\"; expected true or false");
    CHECK(said_by(llama, "tie_word_embeddings", true) == "no error");

    changed_folder qwen(folders / "qwen2");
    CHECK(said_by(qwen, "use_sliding_window", true).starts_with("use_sliding_window is true; expected false"));
    CHECK(said_by(qwen, "layer_types", {"full_attention", "sliding_attention"})
              .starts_with("layer_types has \"sliding_attention\""));
    CHECK(said_by(qwen, "sliding_window", 4) == "no error");  // which use_sliding_window turns off

    // A window is given to the calls; a shorter context does without it.
    changed_folder mistral(folders / "mistral");
    const std::string overlooked =
        "sliding_window is 5, which ht::nn::llama does not apply by itself: take a context of at most as many tokens, "
        "or "
        "give ht::sliding_window to every call and its size to the reader";
    CHECK(said_by(mistral, "sliding_window", 5) == overlooked);
    CHECK(said_by(mistral, "sliding_window", 5, {.context = 5}) == "no error");
    CHECK(said_by(mistral, "sliding_window", 5, {.sliding_window = 5}) == "no error");
    CHECK(said_by(mistral, "sliding_window", 5, {.sliding_window = 4}) == overlooked);
    CHECK(said_by(mistral, "sliding_window", nullptr) == "no error");
    ht::cpu device{{.threads = 1}};
    mistral.set("sliding_window", 5);
    ht::nn::llama<ht::full_fp32> windowed{device, config_of("mistral")};
    CHECK(message_of([&] { ht::load_pretrained(windowed, mistral.folder.path()); }).ends_with(overlooked));
    CHECK_NOTHROW(ht::load_pretrained(windowed, mistral.folder.path(), 5));
}

TEST_CASE("llama folders: a folder of another model is refused, whatever its shapes") {
    ht::cpu device{{.threads = 1}};
    const auto said = [&](const std::string& name, ht::nn::llama_config c) {
        ht::nn::llama<ht::full_fp32> model{device, c};
        const auto before = values_of(model.parameters());
        const std::string message = message_of([&] { ht::load_pretrained(model, folders / name); });
        CHECK((values_of(model.parameters()) == before) == (message != "no error"));
        return message.substr(message.find(" is of another model: ") == std::string::npos
                                  ? 0
                                  : message.find(" is of another model: ") + 22);
    };
    ht::nn::llama_config c = config_of("llama3");
    c.rope_theta = 10000, c.rms_norm_eps = 1e-6f;
    CHECK(said("llama3", c) == "rms_norm_eps is 1e-05, not 1e-06; rope_theta is 500, not 10000");
    c = config_of("llama3");
    c.rope_scaling.low_frequency = 2;
    CHECK(said("llama3", c) == "low_freq_factor is 1, not 2");
    c = config_of("llama3");
    c.num_attention_heads = 2, c.num_key_value_heads = 1, c.head_dim = 8;
    CHECK(said("llama3", c) ==
          "num_attention_heads is 4, not 2; num_key_value_heads is 2, not 1; head_dim is 4, not 8");
    c = config_of("llama3");
    c.max_position_embeddings = 64;
    CHECK(said("llama3", c) == "max_position_embeddings is 32, not 64");
    c.max_position_embeddings = 8;
    CHECK(said("llama3", c) == "no error");
    CHECK(said("qwen3", config_of("qwen3"))
              .ends_with("model_type is qwen3, which is an ht::nn::qwen3, not an ht::nn::llama"));
    CHECK(said("qwen2", config_of("llama3")).starts_with("rms_norm_eps"));
}

TEST_CASE("llama folders: files without a prefix, with old constants, and with a tied head that is stored are read") {
    using names = std::vector<std::string>;
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    const auto file = folder.path() / "model.safetensors";
    ht::nn::llama<ht::full_fp32> expected{device, config_of("llama3")};
    ht::load_pretrained(expected, folders / "llama3");
    const auto loads = [&] {
        ht::nn::llama<ht::full_fp32> model{device, config_of("llama3"), 3};
        const std::string message = message_of([&] { ht::load_pretrained(model, file); });
        if (message == "no error") CHECK(values_of(model.parameters()) == values_of(expected.parameters()));
        return message;
    };
    copy_renamed(folders / "llama3", file, [](const std::string& n) { return names{n.substr(6)}; });
    CHECK(loads() == "no error");
    copy_renamed(folders / "llama3", file,
                 [](const std::string& n) { return names{n == "model.embed_tokens.weight" ? "lm_head.weight" : n}; });
    CHECK(loads() == "no error");
    copy_renamed(folders / "llama3", file, [](const std::string& n) {
        return n == "model.embed_tokens.weight" ? names{n, "lm_head.weight"}
               : n == "model.norm.weight"       ? names{n, "model.layers.0.self_attn.rotary_emb.inv_freq"}
                                                : names{n};
    });
    CHECK(loads() == "no error");
    copy_renamed(folders / "llama3", file, [](const std::string& n) { return names{"module." + n}; });
    CHECK(loads().find("missing: model.embed_tokens.weight, ") != std::string::npos);
    copy_renamed(folders / "llama3", file, [](const std::string& n) {
        return n.ends_with("0.self_attn.k_proj.weight")   ? names{}
               : n.ends_with("0.self_attn.q_proj.weight") ? names{n, "extra"}
                                                          : names{n};
    });
    CHECK(loads().ends_with("is of another model: missing: model.layers.0.self_attn.k_proj.weight; unexpected: extra"));
    // A head of its own beside a configuration that says tied.
    ht::nn::llama_config untied = config_of("llama3");
    untied.tie_word_embeddings = false;
    ht::nn::llama<ht::full_fp32> apart{device, untied, 5};
    ht::save_pretrained(apart, folder.path() / "apart");
    std::filesystem::copy_file(folder.path() / "apart" / "model.safetensors", file,
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(
        loads().ends_with("lm_head.weight has other values than model.embed_tokens.weight, so this head was trained "
                          "apart; load it into a model "
                          "without tie_word_embeddings"));
}

TEST_CASE("llama folders: a head of its own beside a configuration that ties it is a model's without a tied head") {
    ht::cpu device{{.threads = 1}};
    ht::nn::llama_config untied = config_of("llama3");
    untied.tie_word_embeddings = false;
    const ht::nn::llama<ht::full_fp32> expected{device, untied, 5};
    changed_folder tied(folders / "llama3");
    const std::filesystem::path& folder = tied.folder.path();
    ht::save_pretrained(expected, folder, {.like = folders / "llama3"});
    CHECK(nlohmann::json::parse(text_of(folder / "config.json"))["tie_word_embeddings"] == false);
    tied.set("tie_word_embeddings", true);  // as transformers saves such a model
    CHECK(!ht::read_llama_config(folder).tie_word_embeddings);
    CHECK(ht::read_llama_config(folder / "config.json").tie_word_embeddings);
    ht::nn::llama<ht::full_fp32> with_table{device, config_of("llama3")},
        model{device, ht::read_llama_config(folder), 6};
    CHECK(message_of([&] {
              ht::load_pretrained(with_table, folder);
          }).ends_with("so this head was trained apart; load it into a model without tie_word_embeddings"));
    ht::load_pretrained(model, folder);
    CHECK(values_of(model.parameters()) == values_of(expected.parameters()));
    ht::save_pretrained(model, folder / "again", {.like = folder});
    CHECK(nlohmann::json::parse(text_of(folder / "again" / "config.json"))["tie_word_embeddings"] == false);
    pretrained_checks::has_tensors_of(folder / "again", folder);
    // The same numbers once more are the table.
    copy_renamed(folders / "llama3", folder / "model.safetensors", [](const std::string& n) {
        return n == "model.embed_tokens.weight" ? std::vector<std::string>{n, "lm_head.weight"}
                                                : std::vector<std::string>{n};
    });
    CHECK(ht::read_llama_config(folder).tie_word_embeddings);
    // Without the head there is none to take, whatever the configuration says; transformers makes a random one.
    copy_renamed(folders / "llama3", folder / "model.safetensors",
                 [](const std::string& n) { return std::vector<std::string>{n}; });
    CHECK(message_of([&] {
              ht::load_pretrained(model, folder);
          }).ends_with("config.json is of another model: tie_word_embeddings is 1, not 0"));
    tied.set("tie_word_embeddings", false);
    CHECK(message_of([&] {
              ht::load_pretrained(model, folder);
          }).ends_with(" is of another model: missing: lm_head.weight"));
}

TEST_CASE(
    "llama folders: keys that are not there are the defaults of transformers' class, those that are null are none") {
    changed_folder mistral(folders / "mistral");
    mistral.config["max_position_embeddings"] = 8192;
    CHECK(said_by(mistral, "sliding_window", nullptr).starts_with("sliding_window is 4096, which ht::nn::llama"));
    mistral.config["sliding_window"] = nullptr;
    mistral.set("num_key_value_heads", nullptr);
    CHECK(ht::read_llama_config(mistral.folder.path()).num_key_value_heads == 8);
    changed_folder qwen3(folders / "qwen3");
    qwen3.config.erase("num_key_value_heads");
    qwen3.set("head_dim", nullptr);
    CHECK(ht::read_llama_config(qwen3.folder.path()).head_dim == 128);
    CHECK(ht::read_llama_config(qwen3.folder.path()).num_key_value_heads == 32);
    qwen3.config["head_dim"] = qwen3.config["num_key_value_heads"] = nullptr;
    qwen3.set("hidden_size", 4 * qwen3.config["num_attention_heads"].get<int>());
    CHECK(ht::read_llama_config(qwen3.folder.path()).head_dim == 4);
    CHECK(ht::read_llama_config(qwen3.folder.path()).num_key_value_heads == qwen3.config["num_attention_heads"]);
}

TEST_CASE("llama folders: a scaling's original context that is no integer is saved as it is") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    for (const double original : {16.0, 20.5, 1e30}) {
        CAPTURE(original);
        ht::nn::llama_config c = config_of("llama3");
        c.rope_scaling.original_context = original;
        ht::save_pretrained(ht::nn::llama<ht::full_fp32>{device, c, 1}, folder.path());
        CHECK(ht::read_llama_config(folder.path()).rope_scaling.original_context == original);
    }
}

TEST_CASE("llama folders: heads that do not divide the width are saved as a Mistral's, which transformers loads") {
    ht::cpu device{{.threads = 1}};
    ht::nn::llama_config c = config_of("llama3");
    c.num_attention_heads = 3, c.num_key_value_heads = 1, c.head_dim = 4;
    REQUIRE(c.hidden_size % 3 != 0);
    const support::temporary_folder folder;
    ht::nn::llama<ht::full_fp32> model{device, c, 1}, again{device, c, 2};
    ht::save_pretrained(model, folder.path());
    CHECK(ht::read_model_type(folder.path()) == "mistral");
    const auto config = nlohmann::json::parse(text_of(folder.path() / "config.json"));
    CHECK(config["architectures"][0] == "MistralForCausalLM");
    CHECK((config.contains("sliding_window") && config["sliding_window"].is_null()));
    ht::load_pretrained(again, folder.path());
    CHECK(values_of(model.parameters()) == values_of(again.parameters()));
}

TEST_CASE("folders: what a download or a clone has left undone is named") {
    const char* const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 988097824\n";
    const std::string is_pointer = " is a pointer of Git LFS in place of the file, which git lfs pull fetches";
    const support::temporary_folder folder;
    const auto write = [&](const char* name, const std::string& text) {
        std::ofstream(folder.path() / name, std::ios::binary) << text;
        return (folder.path() / name).string();
    };
    const auto weights = [&] { return message_of([&] { ht::tensor_files files(folder.path()); }); };
    const std::string nothing =
        "io: there is no model.safetensors and no model.safetensors.index.json in " + folder.path().string();
    CHECK(weights() == nothing);
    CHECK_THROWS_WITH_AS(ht::read_model_type(folder.path()),
                         ("io: there is no " + (folder.path() / "config.json").string()).c_str(), ht::io_error);
    std::filesystem::create_symlink("of_a_cache_that_is_gone", folder.path() / "model.safetensors");
    CHECK(weights() == nothing);
    std::filesystem::remove(folder.path() / "model.safetensors");
    write("pytorch_model.bin", "PK");
    CHECK(weights() ==
          nothing + "; it has pytorch_model.bin, which is not read: transformers' save_pretrained writes the other");
    const std::string file = write("model.safetensors", pointer);
    CHECK(weights() == file + is_pointer);
    CHECK(message_of([&] { ht::read_model_type(file); }) ==
          file + ": is a file of weights; expected a folder of transformers, or its config.json");
    const std::string config = write("config.json", pointer);
    CHECK(message_of([&] { ht::read_model_type(folder.path()); }) == config + is_pointer);
    const std::string gguf = write("model.gguf", pointer);
    CHECK(message_of([&] { ht::read_model_type(gguf); }) == gguf + is_pointer);
}

}  // namespace io_llama_tests
