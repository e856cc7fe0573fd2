// SPDX-License-Identifier: MIT
/// \file
/// Adapters in GGUF files: what is written is what is read, rows of queries and keys in llama.cpp's order, scales, and what is refused. The last
/// case writes what tests/programs/gguf_adapters.py has llama.cpp compute.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <halftone/io/gguf_adapter.hpp>

#include "io/llama_cpp_models.hpp"
#include "io/pretrained_checks.hpp"
#include "nn/lora.hpp"
#include "support/gradient_sink.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"

namespace io_gguf_adapter_tests {

namespace ht = halftone;
namespace fs = std::filesystem;
using namespace lora_test;
using pretrained_checks::message_of;
using tuned = ht::lora<ht::full_fp32, ht::full_fp32>;

/// As llama_config, as it is read from a file; `bias`: a Qwen2.
ht::nn::llama_config config(bool bias) {
    ht::nn::llama_config c = llama_config();
    c.attention_bias = bias;
    return c;
}

template <class Model>
std::vector<double> logits(ht::cpu& device, const Model& model) {
    const batch b;
    ht::inference eval{device};
    return support::doubles(model.logits(eval, b.tokens).view());
}
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
    return most;
}

/// Saves a model's adapters, and loads them into another model with those of the file; how far its logits are off.
template <ht::nn::qk_norm Norm>
double through_a_file(const ht::nn::llama_config& sizes, const ht::adapter_options& options) {
    using model_type = ht::nn::llama<tuned, Norm>;
    const support::temporary_folder folder;
    const fs::path path = folder.path() / "adapter.gguf";
    ht::cpu device{{.threads = 1}};
    std::vector<double> before, plain;
    {
        const ht::add_adapters added{device, options};
        model_type model{device, sizes, 5};
        plain = logits(device, model);
        fill_b(model.parameters());
        before = logits(device, model);
        ht::save_gguf_adapter(model, path);
    }
    CHECK(largest_difference(before, plain) > 1e-3);
    const ht::add_adapters added{device, ht::read_gguf_adapter(path, sizes, Norm)};
    model_type model{device, sizes, 5};
    ht::load_gguf_adapter(model, path);
    return largest_difference(before, logits(device, model));
}

TEST_CASE("gguf adapters: what is written is what is read") {
    constexpr auto none = ht::nn::qk_norm::none, rms = ht::nn::qk_norm::rms;
    CHECK(through_a_file<none>(config(false), {.rank = 3, .alpha = 5}) == 0);
    CHECK(through_a_file<none>(config(true), {.rank = 4, .targets = {"*.k", "h.1.mlp"}}) == 0);
    CHECK(through_a_file<rms>(config(false), {.rank = 2, .alpha = 7, .targets = {"*.attn"}}) == 0);
    // Ranks are those of the tensors; scales that are not alpha / rank are multiplied into B.
    CHECK(through_a_file<none>(config(false), {.rank = 4, .patterns = {{"*.v", 1, {}}}}) < 1e-6);
    CHECK(through_a_file<none>(config(false), {.rank = 3, .alpha = 5, .rank_stabilized = true}) < 1e-6);
    CHECK(through_a_file<none>(config(false), {.rank = 4, .alpha = 8, .patterns = {{"*.q", {}, 3.0}}}) < 1e-6);
}

TEST_CASE("gguf adapters: names, shapes and keys are llama.cpp's, rows of queries and keys in its order") {
    const support::temporary_folder folder;
    const fs::path path = folder.path() / "adapter.gguf";
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 3, .alpha = 6}};
    ht::nn::llama<tuned> model{device, config(false), 5};
    fill_b(model.parameters());
    ht::save_gguf_adapter(model, path, {.name = "mine"});
    const ht::gguf_file file(path);
    CHECK(file.metadata().text("general.type") == "adapter");
    CHECK(file.metadata().text("general.architecture") == "llama");
    CHECK(file.metadata().text("adapter.type") == "lora");
    CHECK(file.metadata().number("adapter.lora.alpha") == 6);
    CHECK(file.metadata().text("general.name") == "mine");
    CHECK(file.tensors().size() == 2 * 2 * 7);
    CHECK(file.find("blk.1.ffn_down.weight.lora_a")->shape == std::vector<ht::extent>{3, 24});
    CHECK(file.find("blk.1.attn_k.weight.lora_b")->shape == std::vector<ht::extent>{8, 3});
    // Heads of 4: rows 0, 2, 1, 3 of each, as rows i and i + 2 become neighbours.
    const matrix b = values_of(model.parameters(), entry_at(model.parameters(), "h.1.attn.qkv.k.lora_B"));
    const std::vector<float> there = file.read<float>("blk.1.attn_k.weight.lora_b"),
                             of_v = file.read<float>("blk.1.attn_v.weight.lora_b");
    const matrix v = values_of(model.parameters(), entry_at(model.parameters(), "h.1.attn.qkv.v.lora_B"));
    for (ht::extent row = 0; row < 8; ++row) {
        const ht::extent here = row / 4 * 4 + row % 2 * 2 + row % 4 / 2;
        for (ht::extent i = 0; i < 3; ++i) {
            CHECK(static_cast<double>(there[static_cast<std::size_t>(row * 3 + i)]) == b.at(here, i));
            CHECK(static_cast<double>(of_v[static_cast<std::size_t>(row * 3 + i)]) == v.at(row, i));
        }
    }
}

TEST_CASE("gguf adapters: what cannot be read or written is refused by its name") {
    const support::temporary_folder folder;
    const fs::path path = folder.path() / "adapter.gguf";
    const std::string where = path.string();
    ht::cpu device{{.threads = 1}};
    const auto c = config(false);
    const auto said = [&](const ht::gguf_keys& keys,
                          const std::vector<std::pair<std::string, std::vector<ht::extent>>>& tensors) {
        std::vector<float> zeros(1 << 12);
        std::vector<ht::gguf_source> sources;
        for (const auto& [name, shape] : tensors) {
            std::size_t n = 1;
            for (const ht::extent e : shape) n *= static_cast<std::size_t>(e);
            sources.push_back(ht::gguf_source::of(name, ht::ggml_type::f32, shape, {zeros.data(), n}));
        }
        ht::write_gguf(path, keys, sources);
        return message_of([&] { ht::read_gguf_adapter(path, c); });
    };
    using ht::gguf_value_of;
    const ht::gguf_keys good{{"general.type", gguf_value_of("adapter")},
                             {"general.architecture", gguf_value_of("llama")},
                             {"adapter.type", gguf_value_of("lora")}};
    const auto with = [&](const char* key, const char* value) {
        ht::gguf_keys keys = good;
        keys[key] = gguf_value_of(value);
        return keys;
    };
    const std::vector<std::pair<std::string, std::vector<ht::extent>>> pair{{"blk.0.attn_q.weight.lora_a", {2, 16}},
                                                                            {"blk.0.attn_q.weight.lora_b", {16, 2}}};
    CHECK(said(good, pair) == "no error");
    CHECK(said(with("general.type", "model"), pair) == where + ": general.type is \"model\"; expected \"adapter\"");
    CHECK(said(with("general.architecture", "qwen2"), pair) ==
          where + ": general.architecture is \"qwen2\"; expected \"llama\"");
    CHECK(said(with("adapter.type", "other"), pair) == where + ": adapter.type is \"other\"; expected \"lora\"");
    CHECK(said(good, {}) == where + ": has no adapters");
    CHECK(said(good, {pair[0]}) == where + ": there is no 'blk.0.attn_q.weight.lora_b'");
    CHECK(said(good, {pair[1]}) == where + ": there is no 'blk.0.attn_q.weight.lora_a'");
    CHECK(
        said(good, {pair[0], pair[1], {"token_embd.weight.lora_a", {2, 16}}}) ==
        where +
            ": 'token_embd.weight.lora_a' is no adapter of a linear layer of this model; halftone computes no others");
    CHECK(said(good, {{"blk.0.attn_q.weight.lora_a", {32}}, pair[1]}) ==
          where + ": 'blk.0.attn_q.weight.lora_a' is F32 (32); expected a matrix of a type that halftone reads");
    // Without an alpha the scale is 1.
    CHECK(said(good, pair) == "no error");
    const ht::adapter_options o = ht::read_gguf_adapter(path, c);
    CHECK(o.targets == std::vector<std::string>{"h.0.attn.qkv.q"});
    CHECK(o.rank == 2);
    CHECK(o.alpha == 2);
    // Of another model than the file's.
    {
        const ht::add_adapters added{device, {.rank = 2, .targets = {"*.q"}}};
        ht::nn::llama<tuned> model{device, c, 5};
        CHECK(message_of([&] { ht::load_gguf_adapter(model, path); }) ==
              where +
                  ": the adapter of model.layers.0.self_attn.q_proj is multiplied by 1, that of the model by 4; give "
                  "ht::read_gguf_adapter's options to ht::add_adapters before the model is made");
        CHECK(message_of([&] { ht::save_gguf_adapter(model, path, {.type = ht::ggml_type::q8_0}); }) ==
              "save_gguf_adapter: a type of Q8_0; expected F32, F16 or BF16");
    }
    CHECK(said(good, {{"blk.0.attn_q.weight.lora_a", {2, 8}}, pair[1]}) == "no error");
    {
        const ht::add_adapters added{device, ht::read_gguf_adapter(path, c)};
        ht::nn::llama<tuned> model{device, c, 5};
        CHECK(message_of([&] { ht::load_gguf_adapter(model, path); }).find("of another shape or type") !=
              std::string::npos);
    }
    const ht::add_adapters added{device, {.rank = 2, .trained = {"norm"}}};
    ht::nn::llama<tuned> model{device, c, 5};
    CHECK(message_of([&] {
              ht::save_gguf_adapter(model, path);
          }).starts_with("save_gguf_adapter: norm.gain is trained besides the adapters"));
}

TEST_CASE("gguf adapters: files for llama.cpp" * doctest::skip()) {
    using namespace llama_cpp_models;
    const support::temporary_folder temporary;
    const fs::path folder = pretrained_checks::kept_or("HALFTONE_GGUF", temporary);
    ht::cpu device{{.threads = 1}};
    const struct {
        const char* name;
        ht::adapter_options options;
    } adapters[] = {{"plain", {.rank = 4, .alpha = 8}},
                    {"rslora", {.rank = 4, .alpha = 6, .rank_stabilized = true, .targets = {"*.attn"}}},
                    {"patterns", {.rank = 4, .alpha = 8, .patterns = {{"*.v", 2, {}}, {"h.1.mlp", {}, 20.0}}}},
                    {"f16", {.rank = 8, .targets = {"*.q", "*.k"}}}};
    const auto write = [&]<ht::nn::qk_norm Norm>(const real_model& of) {
        ht::nn::llama<tuned, Norm> base{device, of.sizes, 7};
        llama_cpp_models::fill(base.parameters());
        const fs::path like = save_with_tokenizer(base, of, folder);
        ht::save_gguf(base, folder / (std::string(of.name) + "-base.gguf"), {.like = like, .type = ht::ggml_type::f32});
        for (const auto& each : adapters) {
            const ht::add_adapters added{device, each.options};
            ht::nn::llama<tuned, Norm> model{device, of.sizes, 7};
            ht::load_pretrained(model, like);
            const std::vector<std::int32_t> tokens{3, 141, 59, 26, 53, 58, 97, 93, 238};
            fill_b(model.parameters(), 0);
            nlohmann::json found{{"base", computed(device, model, tokens)["logits"]}};
            fill_b(model.parameters(), 0.5);
            const std::string name = std::string(of.name) + '-' + each.name;
            ht::save_gguf_adapter(model, folder / (name + ".gguf"),
                                  {.type = name.ends_with("f16") ? ht::ggml_type::f16 : ht::ggml_type::f32});
            found.update(computed(device, model, tokens));
            std::ofstream(folder / (name + ".json")) << found;
        }
    };
    for (const real_model& of : real_models()) {
        std::string(of.name) == "qwen3" ? write.operator()<ht::nn::qk_norm::rms>(of)
                                        : write.operator()<ht::nn::qk_norm::none>(of);
    }
}

}  // namespace io_gguf_adapter_tests
