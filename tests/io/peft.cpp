// SPDX-License-Identifier: MIT
/// \file
/// Adapters in PEFT's folders (golden/peft_folders, golden/adapters.py): logits, loss and gradients as PEFT has them, the way back, what
/// adapter_config.json says, and what is refused.
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/io/peft.hpp>
#include <halftone/io/pretrained.hpp>

#include "io/pretrained_checks.hpp"
#include "nn/golden_model.hpp"
#include "nn/lora.hpp"
#include "support/temporary_folder.hpp"

namespace io_peft_tests {

namespace ht = halftone;
using golden_model::doubles, golden_model::off;
using pretrained_checks::message_of, pretrained_checks::text_of;
using strings = std::vector<std::string>;
using P = ht::lora<ht::full_fp32, ht::full_fp32>;

const std::filesystem::path golden = HALFTONE_TEST_DATA, folders = golden / "peft_folders";

std::filesystem::path base_folder(const std::string& base) {
    return base == "gpt2" ? golden / "gpt2" : golden / "llama_folders" / base;
}

/// Calls f(config, model type) for a base.
template <class Policy = P, class F>
void with_base(const std::string& base, const F& f) {
    if (base == "gpt2") return f(ht::read_gpt2_config(base_folder(base)), std::type_identity<ht::nn::gpt<Policy>>());
    const ht::nn::llama_config c = ht::read_llama_config(base_folder(base));
    if (base == "qwen3") return f(c, std::type_identity<ht::nn::qwen3<Policy>>());
    f(c, std::type_identity<ht::nn::llama<Policy>>());
}
ht::adapter_options options_of(const std::filesystem::path& folder, const std::string& base) {
    if (base == "gpt2") return ht::read_peft_config(folder, ht::read_gpt2_config(base_folder(base)));
    return ht::read_peft_config(folder, ht::read_llama_config(base_folder(base)),
                                base == "qwen3" ? ht::nn::qk_norm::rms : ht::nn::qk_norm::none);
}
ht::detail::peft_layout layout_of(const std::string& base) {
    if (base == "gpt2") return ht::detail::peft_layout_of(ht::read_gpt2_config(base_folder(base)));
    return ht::detail::peft_layout_of(ht::read_llama_config(base_folder(base)), base == "qwen3");
}

/// A model with the adapters of a folder over its base; f(device, model).
template <class F>
void with_model(const std::string& base, const ht::adapter_options& options, const F& f) {
    with_base(base, [&]<class Model>(const auto& config, std::type_identity<Model>) {
        ht::cpu device{{.threads = 1}};
        const ht::add_adapters added{device, options};
        Model model{device, config, 3};
        ht::load_pretrained(model, base_folder(base));
        f(device, model);
    });
}

struct batch {
    std::vector<std::int32_t> token_ids, target_ids;
    ht::const_view<std::int32_t, 2> tokens, targets;
    explicit batch(golden_model::generator values = {})
        : token_ids(values.ids(26, 32)), target_ids(values.ids(26, 32)) {
        target_ids[3] = -100;
        tokens = {token_ids.data(), {2, 13}}, targets = {target_ids.data(), {2, 13}};
    }
    batch(const batch&) = delete;
};

struct golden_adapter {
    std::string name, base;
    double loss;
    doubles logits{};
    std::map<std::string, doubles> gradients{};
};
std::vector<golden_adapter> golden_adapters() {
    std::vector<golden_adapter> all;
    for (const support::golden_line& line : support::read_golden("adapters.txt")) {
        const auto numbers = [&](std::size_t first) {
            doubles values;
            for (std::size_t i = first; i < line.words.size(); ++i) values.push_back(line.number(i));
            return values;
        };
        if (line.kind == "case") {
            all.push_back({line.words[0], line.words[1], line.number(2)});
        } else if (line.kind == "logits") {
            all.back().logits = numbers(0);
        } else {
            all.back().gradients[line.words[0]] = numbers(1);
        }
    }
    return all;
}

template <class Model>
doubles logits_of(ht::cpu& device, const Model& model) {
    const batch b;
    ht::inference eval{device};
    return support::doubles(model.logits(eval, b.tokens).view());
}

/// The gradients of a store by PEFT's names.
std::map<std::string, doubles> gradients_of(const ht::store& s, const support::gradient_sink& sink,
                                            const ht::detail::peft_layout& layout) {
    const ht::detail::peft_file_names names(s, layout, nullptr);
    const auto options = names.options<ht::save_weights_options>();
    std::map<std::string, doubles> all;
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        const ht::store_entry& e = s.entries()[i];
        if (e.frozen) continue;
        const std::vector<float> g = sink.entry(i);
        for (const auto& piece : ht::detail::stored_pieces(s, e, options)) {
            doubles& of = all[piece.name];
            of.assign(g.begin() + static_cast<std::ptrdiff_t>(piece.first),
                      g.begin() + static_cast<std::ptrdiff_t>(piece.first + piece.count));
            if (!piece.is_transposed) continue;
            const doubles rows = of;
            const auto in = static_cast<std::size_t>(piece.shape[0]), out = static_cast<std::size_t>(piece.shape[1]);
            for (std::size_t r = 0; r < out; ++r) {
                for (std::size_t c = 0; c < in; ++c) of[c * out + r] = rows[r * in + c];
            }
        }
    }
    return all;
}

/// Writes logits beside an adapter, for golden/adapters.py --compare.
void keep_logits(const std::filesystem::path& folder, const doubles& logits) {
    std::ofstream out(folder / "logits.txt");
    out.precision(9);
    for (const double x : logits) out << x << '\n';
}

/// An adapter_config.json in a folder of its own, of PEFT's usual values and changes of them; null: the file lacks the key.
struct written_config {
    support::temporary_folder folder;
    /// `changes` is JSON: the order of its keys is that in the file.
    explicit written_config(const std::string& changes) {
        auto keys = nlohmann::ordered_json::parse(
            R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]})");
        const auto changed = nlohmann::ordered_json::parse(changes);
        for (const auto& [key, value] : changed.items()) {
            if (value.is_null()) {
                keys.erase(key);
            } else {
                keys[key] = value;
            }
        }
        std::ofstream(folder.path() / "adapter_config.json") << keys;
    }
    ht::adapter_options read(const std::string& base) const { return options_of(folder.path(), base); }
};
/// The paths of adapters that a configuration chooses, behind "h.", and what it trains; or what it is refused with, behind the file's name.
std::string chosen(const std::string& changes, const std::string& base = "qwen2") {
    const written_config config(changes);
    std::string text;
    const std::string message = message_of<ht::safetensors_error>([&] {
        const ht::adapter_options o = config.read(base);
        for (const std::string& target : o.targets) text += (text.empty() ? "" : " ") + target.substr(2);
        for (const std::string& trained : o.trained) text += " +" + trained;
    });
    const auto at = message.find("adapter_config.json: ");
    return message == "no error" ? text : message.substr(at == std::string::npos ? 0 : at + 21);
}
/// rank / alpha of the adapters.
std::string sizes(const std::string& changes, const std::string& base = "qwen2") {
    const ht::adapter_options o = written_config(changes).read(base);
    std::string text = ht::detail::sentence(o.rank, '/', o.alpha);
    for (const ht::adapter_pattern& p : o.patterns)
        text += ht::detail::sentence(' ', p.pattern, ' ', p.rank.value_or(o.rank), '/', p.alpha.value_or(o.alpha));
    return text;
}

TEST_CASE("peft: logits, loss and gradients of PEFT's folders, and the way back") {
    const support::temporary_folder temporary;
    const std::filesystem::path kept = pretrained_checks::kept_or("HALFTONE_SAVED_PEFT", temporary);
    const auto cases = golden_adapters();
    CHECK(cases.size() == 9);
    for (const golden_adapter& each : cases) {
        CAPTURE(each.name);
        const ht::adapter_options options = options_of(folders / each.name, each.base);
        with_model(each.base, options, [&](ht::cpu& device, auto& model) {
            const doubles before = logits_of(device, model);
            ht::load_peft(model, folders / each.name);
            const doubles logits = logits_of(device, model);
            CHECK(off(logits, each.logits) <= 1e-5);
            CHECK(off(before, each.logits) > 1e-2);
            const batch b;
            ht::tape tape{device};
            support::gradient_sink sink(model.parameters());
            const auto loss = model.loss(tape, b);
            CHECK(std::fabs(static_cast<double>(loss.item()) - each.loss) <= 1e-5 * each.loss);
            tape.backward(loss, sink);
            const auto gradients = gradients_of(model.parameters(), sink, layout_of(each.base));
            CHECK(gradients.size() == each.gradients.size());
            for (const auto& want : each.gradients) {
                CAPTURE(want.first);
                REQUIRE(gradients.count(want.first) == 1);
                CHECK(off(gradients.at(want.first), want.second) <= 1e-4);
            }

            // And back: the tensors of the folder, and options that choose the same adapters.
            const std::filesystem::path saved = kept / (each.name + '.' + each.base);
            ht::save_peft(model, saved);
            keep_logits(saved, logits);
            const ht::tensor_files ours(saved / "adapter_model.safetensors"),
                theirs(folders / each.name / "adapter_model.safetensors");
            REQUIRE(ours.tensors().size() == theirs.tensors().size());
            for (const ht::tensor_info& t : theirs.tensors()) {
                CAPTURE(t.name);
                const ht::tensor_info* const o = ours.find(t.name);
                REQUIRE(o != nullptr);
                CHECK((o->shape == t.shape && o->type == ht::dtype::f32));
                CHECK(ht::detail::have_equal_values(ours, *o, theirs, t));
            }
            const ht::adapter_options again = options_of(saved, each.base);
            CHECK((again.targets == options.targets && again.trained == options.trained));
            with_model(each.base, again, [&](ht::cpu& other_device, auto& other) {
                ht::load_peft(other, saved);
                CHECK(logits_of(other_device, other) == logits);
            });
        });
    }
}

TEST_CASE("peft: names of targets are whole or begin at a dot; all-linear, regular expressions, the model's own") {
    CHECK(chosen("{}") == "0.attn.qkv.q 1.attn.qkv.q");
    CHECK(chosen(R"({"target_modules": ["self_attn.q_proj", "model.layers.1.mlp.up_proj"]})") ==
          "0.attn.qkv.q 1.attn.qkv.q 1.mlp.gate_up.up");
    const std::string all =
        "0.attn.qkv.q 0.attn.qkv.k 0.attn.qkv.v 0.attn.proj 0.mlp.gate_up.gate 0.mlp.gate_up.up 0.mlp.down "
        "1.attn.qkv.q 1.attn.qkv.k 1.attn.qkv.v 1.attn.proj 1.mlp.gate_up.gate 1.mlp.gate_up.up 1.mlp.down";
    CHECK(chosen(R"({"target_modules": "all-linear"})") == all);
    CHECK(chosen(R"({"target_modules": "ALL-Linear"})", "llama") == all);
    CHECK(chosen(R"({"target_modules": "all-linear"})", "gpt2") ==
          "0.attn.qkv 0.attn.proj 0.mlp.up 0.mlp.down 1.attn.qkv 1.attn.proj 1.mlp.up 1.mlp.down");
    CHECK(chosen(R"({"target_modules": null})") == "0.attn.qkv.q 0.attn.qkv.v 1.attn.qkv.q 1.attn.qkv.v");
    CHECK(chosen(R"({"target_modules": null})", "gpt2") == "0.attn.qkv 1.attn.qkv");
    CHECK(chosen(R"({"target_modules": ".*1.*(gate|down)_proj"})") == "1.mlp.gate_up.gate 1.mlp.down");
    CHECK(chosen(R"({"target_modules": ["c_proj"]})", "gpt2") == "0.attn.proj 0.mlp.down 1.attn.proj 1.mlp.down");
    CHECK(chosen(R"({"target_modules": ["mlp.c_proj"]})", "gpt2") == "0.mlp.down 1.mlp.down");
    const auto refused = [](const char* name) {
        return ht::detail::sentence("target_modules has \"", name, "\", which names no layer of the model");
    };
    for (const char* const name : {"proj", "attn.q_proj", "all-linear", "nope"}) {
        CAPTURE(name);
        CHECK(chosen(nlohmann::json{{"target_modules", {"q_proj", name}}}.dump()) == refused(name));
    }
    CHECK(chosen(R"({"target_modules": "q_proj"})") ==
          refused("q_proj"));  // an expression, which matches no whole name
    CHECK(chosen(R"({"target_modules": ["model.layers.2.self_attn.q_proj"]})") ==
          refused("model.layers.2.self_attn.q_proj"));
    CHECK(chosen(R"({"target_modules": ["c_attn"]})") == refused("c_attn"));
    for (const char* const name :
         {"embed_tokens", "lm_head", "norm", "input_layernorm", "self_attn", "model.layers.0"}) {
        CAPTURE(name);
        const std::string message = chosen(nlohmann::json{{"target_modules", {"q_proj", name}}}.dump());
        CHECK(message.find("target_modules names ") == 0);
        CHECK(message.find(std::string(name) +
                           ", which can have no adapter; expected linear layers of the model's blocks") !=
              std::string::npos);
    }
    CHECK(chosen(R"({"target_modules": ["wte"]})", "gpt2") ==
          "target_modules names transformer.wte, which can have no adapter; expected linear layers of the model's "
          "blocks");
    CHECK(chosen(R"({"target_modules": ".*"})")
              .find("target_modules names model.embed_tokens, which can have no adapter") == 0);
    CHECK(
        chosen(R"({"target_modules": ".*self_attn.*"})").find("target_modules names model.layers.0.self_attn, which") ==
        0);
    CHECK(chosen(R"({"target_modules": []})") == "target_modules leaves no layer that has an adapter");
    CHECK(chosen(R"({"target_modules": [1]})") == "target_modules is [1]; expected a list of names of modules");
    CHECK(chosen(R"({"target_modules": {"q_proj": 1}})").find("target_modules is {") == 0);
}

TEST_CASE("peft: layers that are left out, and those that are trained themselves") {
    CHECK(chosen(R"({"layers_to_transform": [1]})") == "1.attn.qkv.q");
    CHECK(chosen(R"({"layers_to_transform": 0, "layers_pattern": "layers"})") == "0.attn.qkv.q");
    CHECK(chosen(R"({"layers_to_transform": [1], "layers_pattern": ["h"], "target_modules": ["c_attn"]})", "gpt2") ==
          "1.attn.qkv");
    CHECK(chosen(R"({"layers_to_transform": []})") == "0.attn.qkv.q 1.attn.qkv.q");
    CHECK(chosen(R"({"layers_to_transform": [0, 2]})") == "layers_to_transform has 2; expected 0 to 1");
    CHECK(chosen(R"({"layers_to_transform": [true]})") == "layers_to_transform has true; expected 0 to 1");
    CHECK(chosen(R"({"layers_to_transform": [0], "layers_pattern": ["blocks"]})") ==
          R"(layers_pattern is ["blocks"]; expected "layers")");
    CHECK(chosen(R"({"layers_to_transform": [0], "target_modules": ".*q_proj"})") ==
          "layers_to_transform is there, and target_modules is no list: PEFT refuses both together");
    CHECK(chosen(R"({"exclude_modules": ["1.self_attn.q_proj", "nothing"]})") == "0.attn.qkv.q");
    CHECK(chosen(R"({"exclude_modules": ".*[.]0[.].*"})") == "1.attn.qkv.q");
    CHECK(chosen(R"({"target_modules": ["q_proj", "lm_head"], "exclude_modules": ["lm_head"]})") ==
          "0.attn.qkv.q 1.attn.qkv.q");
    CHECK(chosen(R"({"exclude_modules": ["q_proj"]})") == "target_modules leaves no layer that has an adapter");
    // "norm" is the end of other names, too; of norms of heads only in a Qwen3.
    CHECK(chosen(R"({"modules_to_save": ["model.norm"]})") == "0.attn.qkv.q 1.attn.qkv.q +norm");
    CHECK(chosen(R"({"modules_to_save": ["norm"], "layers_to_transform": [0]})") ==
          "0.attn.qkv.q +h.0.attn.norm +h.0.mlp.norm +h.1.attn.norm +h.1.mlp.norm +norm");
    CHECK(chosen(R"({"modules_to_save": ["0.self_attn.q_norm", "1.self_attn.k_norm"]})", "qwen3") ==
          "0.attn.qkv.q 1.attn.qkv.q +h.0.attn.q_norm +h.1.attn.k_norm");
    CHECK(chosen(R"({"modules_to_save": ["norm", "input_layernorm"]})") == chosen(R"({"modules_to_save": ["norm"]})"));
    CHECK(chosen(R"({"modules_to_save": ["q_norm"]})") ==
          "modules_to_save has \"q_norm\", which names no module of the model");
    CHECK(chosen(R"({"modules_to_save": ["lm_head", "embed_tokens"]})", "llama") ==
          "0.attn.qkv.q 1.attn.qkv.q +embed.tokens +head");
    // A layer of both has no adapter, and PEFT says nothing of it.
    CHECK(chosen(R"({"target_modules": ["q_proj", "o_proj"], "modules_to_save": ["1.self_attn.o_proj"]})") ==
          "0.attn.qkv.q 0.attn.proj 1.attn.qkv.q +h.1.attn.proj");
    CHECK(chosen(R"({"modules_to_save": ["1.self_attn"]})") == "0.attn.qkv.q +h.1.attn.qkv +h.1.attn.proj");
    CHECK(chosen(R"({"modules_to_save": ["1.mlp.up_proj"]})") ==
          "modules_to_save has model.layers.1.mlp.up_proj without model.layers.1.mlp.gate_proj: halftone computes them "
          "as one product, and "
          "trains them together");
    CHECK(chosen(R"({"modules_to_save": ["proj"]})") ==
          "target_modules names model.layers.0.self_attn.q_proj, which modules_to_save has, too; "
          "halftone trains a layer or its adapter");
    for (const char* const base : {"qwen2", "gpt2"}) {
        const std::string table = base == std::string("gpt2") ? "wte" : "embed_tokens";
        for (const std::string& name : {table, std::string("lm_head")}) {
            const std::string message =
                chosen(nlohmann::json{{"modules_to_save", {name}}, {"target_modules", nullptr}}.dump(), base);
            CAPTURE(message);
            CHECK(message.find("modules_to_save has \"" + name + "\", which is ") == 0);
            CHECK(message.find(": the model's head is its table of tokens, and PEFT trains one of them apart") !=
                  std::string::npos);
        }
    }
    CHECK(chosen(R"({"modules_to_save": "norm"})") ==
          "modules_to_save is \"norm\"; expected a list of names of modules");
}

TEST_CASE("peft: rank, alpha, dropout, and the first pattern that matches") {
    CHECK(sizes("{}") == "4/8");
    CHECK(sizes(R"({"r": null, "lora_alpha": null})") == "8/8");
    CHECK(sizes(R"({"lora_alpha": -2.5})") == "4/-2.5");
    CHECK(sizes(R"({"rank_pattern": {"q_proj": 2}})") == "4/8 h.0.attn.qkv.q 2/8 h.1.attn.qkv.q 2/8");
    CHECK(sizes(R"({"rank_pattern": {"layers.1.self_attn.q_proj": 3, "q_proj": 2}})") ==
          "4/8 h.0.attn.qkv.q 2/8 h.1.attn.qkv.q 3/8");
    CHECK(sizes(R"({"rank_pattern": {"q_proj": 2, "layers.1.self_attn.q_proj": 3}})") ==
          "4/8 h.0.attn.qkv.q 2/8 h.1.attn.qkv.q 2/8");
    CHECK(sizes(R"({"alpha_pattern": {"model.layers.[1-9].*": 16, ".*q_proj": 9}})") ==
          "4/8 h.0.attn.qkv.q 4/9 h.1.attn.qkv.q 4/16");
    CHECK(sizes(R"({"rank_pattern": {"down_proj": 2}})") == "4/8");
    for (const char* const key : {"layers.0", "proj", "self_attn"}) {
        for (const char* const pattern : {"rank_pattern", "alpha_pattern"}) {
            CHECK(chosen(nlohmann::json{{pattern, {{key, 2}}}}.dump()) ==
                  ht::detail::sentence(pattern, " has \"", key, "\", which names no linear layer of the model"));
        }
    }
    const ht::adapter_options o = written_config(R"({"use_rslora": true, "lora_dropout": 0.05})").read("qwen2");
    CHECK((o.rank_stabilized && o.dropout == 0.05f));
    CHECK(chosen(R"({"r": 0})") == "r is 0; expected 1 to 16777216");
    CHECK(chosen(R"({"r": 2.5})") == "r is 2.5; expected 1 to 16777216");
    CHECK(chosen(R"({"rank_pattern": {"q_proj": 0}})") ==
          "rank_pattern of model.layers.0.self_attn.q_proj is 0; expected 1 to 16777216");
    CHECK(chosen(R"({"rank_pattern": [2]})") == "rank_pattern is [2]; expected an object");
    CHECK(chosen(R"({"lora_alpha": "8"})") == "lora_alpha is \"8\"; expected a finite number");
    CHECK(chosen(R"({"alpha_pattern": {"q_proj": true}})") ==
          "alpha_pattern of model.layers.0.self_attn.q_proj is true; expected a finite number");
    CHECK(chosen(R"({"lora_dropout": 1})") == "lora_dropout is 1; expected at least 0 and less than 1");
    CHECK(chosen(R"({"use_rslora": 1})") == "use_rslora is 1; expected true or false");
}

TEST_CASE("peft: what changes the computation otherwise is refused by its key") {
    CHECK(chosen(R"({"peft_type": null})") == "peft_type is missing; expected \"LORA\"");
    CHECK(chosen(R"({"peft_type": "IA3"})") == "peft_type is \"IA3\"; expected \"LORA\"");
    CHECK(chosen(R"({"bias": "lora_only"})") == "bias is \"lora_only\"; expected \"none\"");
    CHECK(chosen(R"({"task_type": "SEQ_CLS"})") == "task_type is \"SEQ_CLS\"; expected \"CAUSAL_LM\"");
    for (const char* const changes :
         {R"({"use_dora": true})", R"({"use_qalora": true})", R"({"alora_invocation_tokens": [1, 2]})",
          R"({"trainable_token_indices": [0]})", R"({"layer_replication": [[0, 2]]})",
          R"({"target_parameters": ["w"]})", R"({"lora_bias": true})", R"({"arrow_config": {}})",
          R"({"ensure_weight_tying": true})", R"({"megatron_config": {"a": 1}})", R"({"use_bdlora": {}})",
          R"({"velora_config": {}})", R"({"kasa_config": {}})", R"({"monteclora_config": {}})",
          R"({"key_of_a_later_version": 2})"}) {
        const nlohmann::json changed = nlohmann::json::parse(changes);
        CHECK(chosen(changes) == changed.begin().key() + " is " + changed.begin()->dump() +
                                     "; halftone does not know what an adapter computes with it");
    }
    // Not set, or of no influence on an adapter that is trained.
    CHECK(
        chosen(
            R"({"use_dora": false, "layer_replication": [], "qalora_group_size": 16, "megatron_core": "megatron.core", "revision": "main",
                     "eva_config": {"rho": 2}, "loftq_config": {}, "inference_mode": true, "fan_in_fan_out": true, "auto_mapping": {"a": "b"},
                     "base_model_name_or_path": "x", "peft_version": "0.21.2", "key_of_a_later_version": false})") ==
        "0.attn.qkv.q 1.attn.qkv.q");
    for (const char* const fine : {R"("eva")", R"("gaussian")", "true", "false", R"("lora_ga")"})
        CHECK(chosen(std::string(R"({"init_lora_weights": )") + fine + "}") == "0.attn.qkv.q 1.attn.qkv.q");
    // PEFT changes the base's weights when it loads these.
    for (const char* const other : {"pissa", "pissa_niter_4", "olora", "loftq", "corda"}) {
        CHECK(chosen(nlohmann::json{{"init_lora_weights", other}}.dump()) ==
              ht::detail::sentence("init_lora_weights is \"", other, "\"; expected true"));
    }
    const support::temporary_folder empty;
    CHECK_THROWS_AS(options_of(empty.path(), "qwen2"), ht::io_error);
    std::ofstream(empty.path() / "adapter_config.json") << R"({"peft_type": "LORA", "r": 2, "r": 4})";
    CHECK(message_of([&] { options_of(empty.path(), "qwen2"); }).find("has the name 'r' twice") != std::string::npos);
}

TEST_CASE("peft: regular expressions are Python's") {
    const auto matches = [](const std::string& pattern, const std::string& name) {
        return ht::detail::module_pattern("file: key", pattern).matches(name);
    };
    // What re.fullmatch of Python 3.11 says.
    struct {
        const char *pattern, *name;
        bool want;
    } const cases[]{{"a|ab", "ab", true},
                    {"(a|ab)(c|bcd)", "abcd", true},
                    {"a.c", "a.c", true},
                    {"a{2,3}", "aaaa", false},
                    {"a{,3}", "aaa", true},
                    {"a{,3}", "", true},
                    {"(a{2}){2}", "aaaa", true},
                    {"(?:ab)+?", "abab", true},
                    {"[^a-c]+", "xyz", true},
                    {"[]a]+", "a", true},
                    {"[^]a]+", "b", true},
                    {"[a-]+", "a-a", true},
                    {"[\\d_]+", "1_2", true},
                    {"\\w+\\.\\d", "layers.0", true},
                    {"\\D+", "a1", false},
                    {".*\\bup.*", "mlp.up_proj", true},
                    {".*\\bproj", "up_proj", false},
                    {"\\Aa\\Z", "a", true},
                    {"^a$", "a", true},
                    {"a^b", "ab", false},
                    {"(?!.*gate).*_proj", "up_proj", true},
                    {"(?!.*gate).*_proj", "gate_proj", false},
                    {"(?=up).*", "up_proj", true},
                    {"(?P<n>a)b", "ab", true},
                    {"(a*)*b", "aaab", true},
                    {"(a*)*", "aaac", false},
                    {"", "", true},
                    {"(|a){5}", "aa", true},
                    {"\\.", "a", false}};
    for (const auto& each : cases) {
        CAPTURE(each.pattern);
        CHECK(matches(each.pattern, each.name) == each.want);
    }
    for (const char* const pattern :
         {"(?<=a)b", "(?i)a", "(a)\\1",    "a++",   "a**",       "*a",      "(a",
          "a)",      "[a",    "a\\",       "[b-a]", "[\\d-a]",   "\\p",     "a{b}",
          "a{3,2}",  "(?>a)", "\xC3\xA9*", "^*",    "(?=(?=a))", "a{2}{2}", "((((((((a*)*)*)*)*)*)*)*)",
          "(?P=a)",  "{1}"}) {
        CAPTURE(pattern);
        const std::string message = message_of<ht::safetensors_error>([&] { matches(pattern, "a"); });
        CHECK(message.find("file: key is the regular expression ") == 0);
        CHECK(message.ends_with("; halftone does not read it: list the names of the layers instead"));
    }
    // In a time that does not grow with the number of ways to match.
    CHECK(!matches("(.*)*(.*)*(.*)*(.*)*(.*)*x", std::string(60, 'a')));
    CHECK(!matches("(a|aa|a?)+(a|aa|a?)+(a|aa|a?){0,99999}y", std::string(60, 'a')));
}

/// A copy of a golden adapter with other tensors.
struct with_tensors {
    support::temporary_folder folder;
    template <class Name>
    with_tensors(const std::string& name, const Name& named) {
        std::filesystem::copy(folders / name / "adapter_config.json", folder.path() / "adapter_config.json");
        pretrained_checks::copy_renamed(folders / name / "adapter_model.safetensors",
                                        folder.path() / "adapter_model.safetensors", named);
    }
    const std::filesystem::path& path() const { return folder.path(); }
};

TEST_CASE("peft: tensors that are missing, too much, of another rank; adapters of other layers or scales") {
    const std::string q0 = "base_model.model.model.layers.0.self_attn.q_proj.";
    with_model("qwen2", options_of(folders / "suffixes", "qwen2"), [&](ht::cpu& device, auto& model) {
        const doubles before = logits_of(device, model);
        const auto said = [&](const std::filesystem::path& folder) {
            return message_of<ht::safetensors_error>([&] { ht::load_peft(model, folder); });
        };
        const auto keep = [](const std::string& n) { return strings{n}; };
        const with_tensors one_less(
            "suffixes", [&](const std::string& n) { return n == q0 + "lora_A.weight" ? strings{} : strings{n}; });
        CHECK(said(one_less.path())
                  .ends_with("adapter_model.safetensors is of another model: missing: " + q0 + "lora_A.weight"));
        const with_tensors one_more("suffixes", [&](const std::string& n) {
            return n == q0 + "lora_A.weight" ? strings{n, q0 + "base_layer.weight"} : strings{n};
        });
        CHECK(said(one_more.path()).ends_with("unexpected: " + q0 + "base_layer.weight"));
        const with_tensors unprefixed("suffixes", [](const std::string& n) { return strings{n.substr(17)}; });
        CHECK(said(unprefixed.path()).find("missing: " + q0 + "lora_A.weight") != std::string::npos);
        const with_tensors swapped("suffixes", [&](const std::string& n) {
            const bool is_q = n.find("q_proj") != std::string::npos;
            const auto at = n.find(is_q ? "q_proj" : "v_proj");
            return strings{n.substr(0, at) + (is_q ? "v_proj" : "q_proj") + n.substr(at + 6)};
        });
        CHECK(said(swapped.path()).find("of another shape or type: " + q0 + "lora_B.weight (8, 2), which is (16, 2)") !=
              std::string::npos);
        const auto other = [&](const char* key, const nlohmann::json& value) {
            const with_tensors folder("suffixes", keep);
            auto config = nlohmann::json::parse(text_of(folder.path() / "adapter_config.json"));
            config[key] = value;
            std::ofstream(folder.path() / "adapter_config.json") << config;
            const std::string message = said(folder.path());
            const auto at = message.find("adapter_config.json: ");
            return at == std::string::npos ? message : message.substr(at + 21);
        };
        const std::string q = "model.layers.0.self_attn.q_proj",
                          remedy = "; give ht::read_peft_config's options to ht::add_adapters before the model is made";
        CHECK(other("r", 4) == "the adapter of " + q + " has rank 4, that of the model 2" + remedy);
        CHECK(other("lora_alpha", 4) ==
              "the adapter of " + q + " is multiplied by 2, that of the model by 1.5" + remedy);
        CHECK(other("alpha_pattern", {{"1.self_attn.v_proj", 5}}) ==
              "the adapter of model.layers.1.self_attn.v_proj is multiplied by 2.5, that of the model by 1.5" + remedy);
        CHECK(other("target_modules", {"q_proj"}) ==
              "model.layers.0.self_attn.v_proj has no adapter, and the model has one at h.0.attn.qkv.v" + remedy);
        CHECK(other("target_modules", {"q_proj", "v_proj", "k_proj"}) ==
              "model.layers.0.self_attn.k_proj has an adapter, and the model has none at h.0.attn.qkv.k" + remedy);
        CHECK(other("modules_to_save", {"model.norm"}) ==
              "model.norm is in modules_to_save, and the model does not train it" + remedy);
        const support::temporary_folder pickled;
        std::filesystem::copy(folders / "suffixes" / "adapter_config.json", pickled.path() / "adapter_config.json");
        std::ofstream(pickled.path() / "adapter_model.bin") << "x";
        CHECK(message_of([&] {
                  ht::load_peft(model, pickled.path());
              }).find("has adapter_model.bin, a pickle of Python") != std::string::npos);

        // All or nothing; and names with the adapter's in them.
        CHECK(logits_of(device, model) == before);
        const with_tensors named(
            "suffixes", [](const std::string& n) { return strings{n.substr(0, n.size() - 6) + "default.weight"}; });
        ht::load_peft(model, named.path());
        const doubles after = logits_of(device, model);
        CHECK(after != before);
        ht::load_peft(model, folders / "suffixes");
        CHECK(logits_of(device, model) == after);
    });
}

TEST_CASE("peft: adapters made here, in folders that say no more than they have to") {
    const support::temporary_folder temporary;
    const std::filesystem::path kept = pretrained_checks::kept_or("HALFTONE_SAVED_PEFT", temporary);
    const struct {
        const char *name, *base;
        ht::adapter_options options;
        nlohmann::json targets, ranks, alphas, saved;
    } cases[]{{"one",
               "qwen2",
               {.rank = 3, .alpha = 5, .targets = {"h.1.attn.qkv.k"}},
               {"model.layers.1.self_attn.k_proj"},
               {},
               {},
               {}},
              {"many",
               "qwen2",
               {.rank = 2,
                .alpha = 3,
                .rank_stabilized = true,
                .patterns = {{"*.v", 1, 9.0}, {"h.1.mlp", {}, 2.5}, {"h.1.mlp.gate_up.gate", 4, {}}}},
               {"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"},
               {{"v_proj", 1}, {"model.layers.1.mlp.gate_proj", 4}},
               {{"v_proj", 9},
                {"model.layers.1.mlp.gate_proj", 2.5},
                {"model.layers.1.mlp.up_proj", 2.5},
                {"model.layers.1.mlp.down_proj", 2.5}},
               {}},
              {"trained",
               "llama",
               {.rank = 2, .dropout = 0.05f, .targets = {"*.attn"}, .trained = {"head", "norm", "h.0.mlp.norm"}},
               {"k_proj", "o_proj", "q_proj", "v_proj"},
               {},
               {},
               {"lm_head", "model.layers.0.post_attention_layernorm", "model.norm"}},
              {"norms",
               "qwen3",
               {.rank = 2, .alpha = 1, .targets = {"*.gate", "*.proj"}, .trained = {"*.q_norm", "*.k_norm"}},
               {"gate_proj", "o_proj"},
               {},
               {},
               {"k_norm", "q_norm"}},
              {"conv",
               "gpt2",
               {.rank = 2,
                .targets = {"*.down", "h.0.attn.proj"},
                .patterns = {{"*.down", 3, {}}},
                .trained = {"*.qkv", "embed.positions"}},
               {"mlp.c_proj", "transformer.h.0.attn.c_proj"},
               {{"mlp.c_proj", 3}},
               {},
               {"c_attn", "transformer.wpe"}}};
    for (const auto& each : cases) {
        CAPTURE(each.name);
        with_model(each.base, each.options, [&](ht::cpu& device, auto& model) {
            ht::store& s = model.parameters();
            lora_test::fill_b(s, 0.3);
            for (std::size_t i = 0; i < s.entries().size(); ++i) {
                if (s.entries()[i].frozen || s.entries()[i].is_adapter) continue;
                std::vector<float> values = support::read_masters(s, i);
                for (float& v : values) v += 0.125f;
                support::write_masters(s, i, values);
            }
            s.refresh();
            const doubles logits = logits_of(device, model);
            const std::filesystem::path saved = kept / (std::string(each.name) + '.' + each.base);
            ht::save_peft(model, saved, {.base = each.base});
            keep_logits(saved, logits);
            const auto config = nlohmann::json::parse(text_of(saved / "adapter_config.json"));
            const auto or_none = [](const nlohmann::json& j) { return j.is_null() ? nlohmann::json::object() : j; };
            CHECK(config["target_modules"] == each.targets);
            CHECK(config["rank_pattern"] == or_none(each.ranks));
            CHECK(config["alpha_pattern"] == or_none(each.alphas));
            CHECK(config["modules_to_save"] == each.saved);
            CHECK(config["base_model_name_or_path"] == each.base);
            CHECK(config["r"] == each.options.rank);
            CHECK(config["lora_dropout"] == (each.options.dropout == 0 ? 0 : 0.05));
            CHECK(config["fan_in_fan_out"] == (each.base == std::string("gpt2")));
            with_model(each.base, options_of(saved, each.base), [&](ht::cpu& other_device, auto& other) {
                ht::load_peft(other, saved);
                CHECK(logits_of(other_device, other) == logits);
                // Its bytes are the same each time; and in bfloat16 it is read, too.
                ht::save_peft(other, temporary.path() / "again", {.base = each.base});
                for (const char* const file : {"adapter_config.json", "adapter_model.safetensors"})
                    CHECK(text_of(temporary.path() / "again" / file) == text_of(saved / file));
                ht::save_peft(other, temporary.path() / "again", {.type = ht::dtype::bf16});
                ht::load_peft(other, temporary.path() / "again");
                const double rounded = off(logits_of(other_device, other), logits);
                CHECK((rounded > 0 && rounded < 0.02));
            });
        });
    }
}

TEST_CASE("peft: what is not saved, and the earlier adapter that stays") {
    const support::temporary_folder folder;
    using strings_of_base = std::pair<const char*, strings>;
    const auto said = [&](const std::string& base, const ht::adapter_options& options) {
        std::string message;
        with_model(base, options, [&](ht::cpu&, auto& model) {
            message = message_of([&] { ht::save_peft(model, folder.path() / "out"); });
        });
        return message;
    };
    CHECK(said("qwen2", {.targets = {"*.q"}, .trained = {"h.0.attn.qkv.weight"}}) ==
          "save_peft: h.0.attn.qkv is trained and has an adapter, too, at h.0.attn.qkv.q; PEFT knows one or the other");
    for (const auto& [base, trained] :
         {strings_of_base{"qwen2", {"embed"}}, strings_of_base{"gpt2", {"embed.tokens"}}}) {
        CHECK(said(base, {.targets = {"*.down"}, .trained = trained}) ==
              "save_peft: embed.tokens is trained, and is the head's weight, too; PEFT would train the one apart from "
              "the other");
    }
    CHECK(!std::filesystem::exists(folder.path() / "out"));
    with_model("qwen2", options_of(folders / "suffixes", "qwen2"), [&](ht::cpu& device, auto& model) {
        ht::save_peft(model, folder.path() / "out");
        const std::string before = text_of(folder.path() / "out" / "adapter_model.safetensors");
        ht::load_peft(model, folders / "suffixes");
        std::filesystem::create_directory(folder.path() / "out" /
                                          "adapter_config.json.part");  // no file can be written there
        CHECK_THROWS_AS(ht::save_peft(model, folder.path() / "out"), ht::io_error);
        CHECK(text_of(folder.path() / "out" / "adapter_model.safetensors") == before);
        CHECK_THROWS_AS(ht::save_peft(model, folder.path() / "out", {.type = ht::dtype::i32}), ht::argument_error);
        // A model that waits for its parameters gets those of the base, then those of the adapter.
        const doubles logits = logits_of(device, model);
        const ht::add_adapters added{device, options_of(folders / "suffixes", "qwen2")};
        const ht::defer_parameters until_loaded{device};
        ht::nn::llama<P> late{device, ht::read_llama_config(base_folder("qwen2"))};
        ht::load_pretrained(late, base_folder("qwen2"));
        ht::load_peft(late, folders / "suffixes");
        CHECK(logits_of(device, late) == logits);
        ht::merge_adapters(model);
        const char* const merged = "the adapters are a part of the weights since they were merged";
        CHECK(message_of<ht::state_error>([&] { ht::save_peft(model, folder.path() / "out"); }) ==
              std::string("save_peft: ") + merged);
        CHECK(message_of<ht::state_error>([&] { ht::load_peft(model, folders / "suffixes"); }) ==
              std::string("load_peft: ") + merged);
    });
    with_base<ht::full_fp32>("qwen2", [&]<class Model>(const auto& config, std::type_identity<Model>) {
        ht::cpu device{{.threads = 1}};
        Model model{device, config, 3};
        CHECK_THROWS_WITH_AS(ht::load_peft(model, folders / "suffixes"),
                             "load_peft: the model has no adapters; it gets them while an ht::add_adapters exists",
                             ht::state_error);
    });
}

}  // namespace io_peft_tests
