// SPDX-License-Identifier: MIT
/// \file
/// PEFT's adapter_config.json, read into adapter_options for a model of known modules (layout.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/io/peft/layout.hpp>
#include <halftone/io/peft/pattern.hpp>
#include <halftone/io/pretrained/folder.hpp>
#include <halftone/memory/adapters.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

inline constexpr const char *peft_config_name = "adapter_config.json", *peft_weights_name = "adapter_model.safetensors";

/// Names of modules in adapter_config.json, whole or from a dot on, or one regular expression. Throws safetensors_error for another value.
class module_choice {
  public:
    module_choice(const config_reader& config, const char* key) : what_(config.where() + ": " + key) {
        if (!config.has(key)) return;
        const nlohmann::json& value = config[key];
        if (value.is_string()) {
            pattern_.emplace(what_, value.get_ref<const std::string&>());
            shown_ = shown(value.dump());
        } else {
            for (const std::string& name : texts(what_, value)) names_[name] = false;
        }
    }
    explicit module_choice(const std::vector<std::string>& names) {
        for (const std::string& name : names) names_[name] = false;
    }
    bool names(const std::string& module) {
        if (pattern_) {
            const bool matches = pattern_->matches(module);
            is_used_ = is_used_ || matches;
            return matches;
        }
        bool is_named = mark(module);
        for (auto dot = module.find('.'); dot != std::string::npos; dot = module.find('.', dot + 1))
            is_named = mark(module.substr(dot + 1)) || is_named;
        return is_named;
    }
    /// A name that no module has, or the regular expression that matches none.
    std::optional<std::string> unused() const {
        if (pattern_ && !is_used_) return shown_;
        for (const auto& [name, is_used] : names_) {
            if (!is_used) return '"' + shown(name) + '"';
        }
        return std::nullopt;
    }
    /// The elements of a list of texts.
    static std::vector<std::string> texts(const std::string& what, const nlohmann::json& value) {
        std::vector<std::string> all;
        for (const nlohmann::json& each : value.is_array() ? value : nlohmann::json::array({nullptr})) {
            if (!each.is_string())
                fail<safetensors_error>(what, " is ", shown(value.dump()), "; expected a list of names of modules");
            all.push_back(each.get<std::string>());
        }
        return all;
    }

  private:
    bool mark(const std::string& name) {
        const auto found = names_.find(name);
        return found != names_.end() && (found->second = true);
    }
    std::string what_{}, shown_{};
    std::optional<module_pattern> pattern_{};
    bool is_used_ = false;
    std::map<std::string, bool> names_{};
};

/// rank_pattern or alpha_pattern: values by regular expressions, of which the first that matches a module's name, whole
/// or from a dot on, counts.
class peft_patterns {
  public:
    /// `keys` is the file in its own order. Throws safetensors_error.
    peft_patterns(const std::string& where, const nlohmann::ordered_json& keys, const char* key)
        : what_(where + ": " + key) {
        if (!keys.contains(key) || keys[key].is_null()) return;
        if (!keys[key].is_object())
            fail<safetensors_error>(what_, " is ", shown(keys[key].dump()), "; expected an object");
        for (const auto& [name, value] : keys[key].items())
            all_.push_back({name, module_pattern(what_ + "'s \"" + shown(name) + '"', name), value, false});
    }
    /// The value for a module, or nullptr.
    const nlohmann::ordered_json* of(const std::string& module) {
        const nlohmann::ordered_json* first = nullptr;
        for (each& e : all_) {
            if ((first != nullptr && e.is_used) || !e.pattern.matches_suffix(module)) continue;
            e.is_used = true;
            if (first == nullptr) first = &e.value;
        }
        return first;
    }
    /// Throws safetensors_error for one that matched no module.
    void check_used() const {
        for (const each& e : all_) {
            if (!e.is_used)
                fail<safetensors_error>(what_, " has \"", shown(e.name),
                                        "\", which names no linear layer of the model");
        }
    }
    const std::string& what() const { return what_; }

  private:
    struct each {
        std::string name;
        module_pattern pattern;
        nlohmann::ordered_json value;
        bool is_used;
    };
    std::string what_;
    std::vector<each> all_{};
};

/// Throws safetensors_error for what halftone does not compute: every key that is set and not known to be harmless.
inline void refuse_other_adapters(const config_reader& config) {
    if (!config.has("peft_type") || config["peft_type"] != "LORA")
        fail<safetensors_error>(config.where(), ": peft_type is ",
                                config.has("peft_type") ? shown(config["peft_type"].dump()) : "missing",
                                "; expected \"LORA\"");
    config.expect("bias", "none");
    config.expect("task_type", "CAUSAL_LM", {nullptr});
    // PEFT changes the weights of the base when it loads "pissa", "olora" and "loftq", and does not load "corda". With
    // path_initial_model_for_weight_conversion it saves them as true.
    config.expect("init_lora_weights", true, {nullptr, false, "gaussian", "orthogonal", "eva", "lora_ga", "mica"});
    static constexpr std::array known{"alpha_pattern",
                                      "auto_mapping",
                                      "base_model_name_or_path",
                                      "bias",
                                      "corda_config",
                                      "eva_config",
                                      "exclude_modules",
                                      "fan_in_fan_out",
                                      "inference_mode",
                                      "init_lora_weights",
                                      "layers_pattern",
                                      "layers_to_transform",
                                      "loftq_config",
                                      "lora_alpha",
                                      "lora_dropout",
                                      "lora_ga_config",
                                      "megatron_core",
                                      "modules_to_save",
                                      "peft_type",
                                      "peft_version",
                                      "qalora_group_size",
                                      "r",
                                      "rank_pattern",
                                      "revision",
                                      "runtime_config",
                                      "target_modules",
                                      "task_type",
                                      "use_rslora"};
    for (const auto& [key, value] : config.keys().items()) {
        const bool is_known = std::find(known.begin(), known.end(), std::string_view(key)) != known.end();
        if (is_known || value.is_null() || value == false || value == nlohmann::json::array()) continue;
        fail<safetensors_error>(config.where(), ": ", shown(key), " is ", shown(value.dump()),
                                "; halftone does not know what an adapter computes with it");
    }
}

inline double peft_alpha(const std::string& what, const nlohmann::json& value) {
    if (!value.is_number() || !std::isfinite(value.get<double>()))
        fail<safetensors_error>(what, " is ", shown(value.dump()), "; expected a finite number");
    return value.get<double>();
}
inline extent peft_rank(const std::string& what, const nlohmann::json& value) {
    constexpr extent most = extent{1} << 24;
    if (!value.is_number_integer() || value < 1 || value > most)
        fail<safetensors_error>(what, " is ", shown(value.dump()), "; expected 1 to ", most);
    return value.get<extent>();
}

/// The blocks of layers_to_transform; none: all.
inline std::set<extent> peft_blocks(const config_reader& config, const peft_layout& model) {
    std::set<extent> blocks;
    const char* const key = "layers_to_transform";
    if (config.has(key)) {
        const nlohmann::json& there = config[key];
        for (const nlohmann::json& each : there.is_array() ? there : nlohmann::json::array({there})) {
            if (!each.is_number_integer() || each < 0 || each >= model.layers)
                fail<safetensors_error>(config.where(), ": ", key, " has ", shown(each.dump()), "; expected 0 to ",
                                        model.layers - 1);
            blocks.insert(each.get<extent>());
        }
        if (config.has("target_modules") && config["target_modules"].is_string())
            fail<safetensors_error>(config.where(), ": ", key,
                                    " is there, and target_modules is no list: PEFT refuses both together");
    }
    config.expect("layers_pattern", model.blocks,
                  {nullptr, nlohmann::json::array(), nlohmann::json::array({model.blocks}), ""});
    return blocks;
}

/// The modules that PEFT saves whole, in place of an adapter: those whose names end with an entry of modules_to_save, at any character,
/// and all within them. Throws safetensors_error for what halftone cannot train.
inline std::set<const peft_module*> saved_modules(const config_reader& config, const peft_layout& model) {
    std::set<const peft_module*> saved;
    if (!config.has("modules_to_save")) return saved;
    const std::string what = config.where() + ": modules_to_save";
    for (const std::string& entry : module_choice::texts(what, config["modules_to_save"])) {
        bool is_used = false;
        std::set<std::string> within;
        for (const std::string& name : model.containers()) {
            if (name.ends_with(entry)) within.insert(name + '.');
        }
        for (const peft_module& m : model.modules) {
            const bool is_within = std::any_of(within.begin(), within.end(),
                                               [&m](const std::string& begin) { return m.there.starts_with(begin); });
            if (!is_within && !m.there.ends_with(entry)) continue;
            if (model.tied.count(m.there) != 0)
                fail<safetensors_error>(what, " has \"", shown(entry), "\", which is ", m.there,
                                        ": the model's head is its table of tokens, and PEFT trains one of them apart");
            saved.insert(&m);
            is_used = true;
        }
        if (!is_used) fail<safetensors_error>(what, " has \"", shown(entry), "\", which names no module of the model");
    }
    std::map<std::string, const peft_module*> layers;
    for (const peft_module* const m : saved) layers[m->layer] = m;
    for (const peft_module& m : model.modules) {
        const auto found = layers.find(m.layer);
        if (found != layers.end() && saved.count(&m) == 0)
            fail<safetensors_error>(what, " has ", found->second->there, " without ", m.there,
                                    ": halftone computes them as one product, and trains them together");
    }
    return saved;
}

/// The modules that have adapters, in the model's order. Throws safetensors_error.
inline std::vector<const peft_module*> adapted_modules(const config_reader& config, const peft_layout& model,
                                                       const std::set<const peft_module*>& saved) {
    const std::string what = config.where() + ": target_modules";
    std::string lower = config.has("target_modules") && config["target_modules"].is_string()
                            ? config["target_modules"].get<std::string>()
                            : "";
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool is_all = lower == "all-linear";
    module_choice targets = is_all                         ? module_choice(std::vector<std::string>{})
                            : config.has("target_modules") ? module_choice(config, "target_modules")
                                                           : module_choice(model.usual_targets);
    module_choice excluded(config, "exclude_modules");
    std::vector<module_pattern> instead;  // of modules_to_save, by PEFT's expression
    if (config.has("modules_to_save")) {
        for (const std::string& entry : module_choice::texts(what, config["modules_to_save"]))
            instead.emplace_back(config.where() + ": modules_to_save", "(^|.*\\.)" + entry + "($|\\..*)");
    }
    const std::set<extent> blocks = peft_blocks(config, model);
    const auto is_chosen = [&](const std::string& name) {
        const bool is_target = is_all || targets.names(name);
        return is_target && !excluded.names(name) &&
               std::none_of(instead.begin(), instead.end(),
                            [&name](const module_pattern& p) { return p.matches(name); });
    };
    const auto refuse = [&](const std::string& name) {
        fail<safetensors_error>(what, " names ", name,
                                ", which can have no adapter; expected linear layers of the model's blocks");
    };
    std::vector<const peft_module*> adapted;
    for (const peft_module& m : model.modules) {
        if (!is_chosen(m.there) || (is_all && m.adapter.empty())) continue;
        if (m.adapter.empty()) refuse(m.there);
        if (!blocks.empty() && blocks.count(m.block) == 0) continue;
        if (saved.count(&m) != 0)
            fail<safetensors_error>(what, " names ", m.there,
                                    ", which modules_to_save has, too; halftone trains a layer or its adapter");
        adapted.push_back(&m);
    }
    for (const std::string& name : model.containers()) {
        if (!is_all && is_chosen(name)) refuse(name);
    }
    if (const auto unused = targets.unused())
        fail<safetensors_error>(what, " has ", *unused, ", which names no layer of the model");
    if (adapted.empty()) fail<safetensors_error>(what, " leaves no layer that has an adapter");
    return adapted;
}

/// What an adapter_config.json says of a model with these modules; `keys` is the same file in its own order.
inline adapter_options peft_options_in(const config_reader& config, const nlohmann::ordered_json& keys,
                                       const peft_layout& model) {
    refuse_other_adapters(config);
    const std::string& where = config.where();
    adapter_options o;
    o.targets.clear();
    if (config.has("r")) o.rank = peft_rank(where + ": r", config["r"]);
    if (config.has("lora_alpha")) o.alpha = peft_alpha(where + ": lora_alpha", config["lora_alpha"]);
    if (config.has("lora_dropout"))
        o.dropout = static_cast<float>(peft_alpha(where + ": lora_dropout", config["lora_dropout"]));
    if (!(o.dropout >= 0 && o.dropout < 1))
        fail<safetensors_error>(where, ": lora_dropout is ", o.dropout, "; expected at least 0 and less than 1");
    o.rank_stabilized = config.flag("use_rslora", false);
    const std::set<const peft_module*> saved = saved_modules(config, model);
    const std::vector<const peft_module*> adapted = adapted_modules(config, model, saved);
    peft_patterns ranks(where, keys, "rank_pattern"), alphas(where, keys, "alpha_pattern");
    for (const peft_module& m : model.modules) {
        if (m.adapter.empty()) continue;
        adapter_pattern own{m.adapter};
        if (const auto* const rank = ranks.of(m.there)) own.rank = peft_rank(ranks.what() + " of " + m.there, *rank);
        if (const auto* const alpha = alphas.of(m.there))
            own.alpha = peft_alpha(alphas.what() + " of " + m.there, *alpha);
        if (std::find(adapted.begin(), adapted.end(), &m) == adapted.end()) continue;
        o.targets.push_back(m.adapter);
        if (own.rank.value_or(o.rank) != o.rank || own.alpha.value_or(o.alpha) != o.alpha) o.patterns.push_back(own);
    }
    ranks.check_used(), alphas.check_used();
    for (const peft_module& m : model.modules) {
        if (saved.count(&m) != 0 && (o.trained.empty() || o.trained.back() != m.layer)) o.trained.push_back(m.layer);
    }
    return o;
}
inline adapter_options peft_options_in(const std::filesystem::path& folder, const peft_layout& model) {
    const std::string file = (folder / peft_config_name).string(),
                      text = read_small_file(folder / peft_config_name, most_header_bytes);
    const config_reader config(file, text);
    return peft_options_in(config, nlohmann::ordered_json::parse(text), model);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
