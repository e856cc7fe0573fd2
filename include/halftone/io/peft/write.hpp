// SPDX-License-Identifier: MIT
/// \file
/// The names of a model's adapters in PEFT's files, and the adapter_config.json that describes them.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/io/peft/layout.hpp>
#include <halftone/memory/store.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// How PEFT stores a model's adapters, and the layers of its base that are trained besides.
class peft_file_names {
  public:
    /// The names in `files`, which may have an adapter's name in them ("lora_A.default.weight"); without files, those that are written.
    peft_file_names(const store& parameters, const peft_layout& model, const tensor_files* files)
        : model_(&model), files_(files) {
        std::map<std::string, std::string> modules;
        for (const peft_module& m : model.modules) modules[m.adapter] = m.there;
        for (const store_adapter& a : parameters.adapters().all()) {
            const std::string begin = std::string(prefix) + modules.at(a.path);
            adapters_[parameters.entries()[a.a].path].push_back({stored(begin + ".lora_A"), a.rank});
            adapters_[parameters.entries()[a.b].path].push_back({stored(begin + ".lora_B"), a.rows});
        }
        for (const store_entry& e : parameters.entries()) {
            if (e.is_adapter || e.frozen) continue;
            for (const std::string& module : model.modules_of(e.path)) saved_.insert(module);
        }
    }
    static constexpr const char* prefix = "base_model.model.";

    /// Modules of the base that have trained parameters: all of their parameters are in the file.
    const std::set<std::string>& saved() const { return saved_; }
    /// The name of a parameter of the base; "" if the file does not have it.
    std::string name(const std::string& path) const {
        return saved_.count(model_->modules_of(path)[0]) == 0 ? std::string() : prefix + model_->names(path);
    }
    std::vector<weight_piece> pieces(const std::string& path) const {
        if (const auto found = adapters_.find(path); found != adapters_.end()) return found->second;
        if (!model_->pieces || saved_.count(model_->modules_of(path)[0]) == 0) return {};
        std::vector<weight_piece> all = model_->pieces(path);
        for (weight_piece& each : all) each.name = prefix + each.name;
        return all;
    }
    /// The options with which these names are read or written.
    template <class Options>
    Options options() const {
        Options o;
        o.names = [this](const std::string& path) { return name(path); };
        o.pieces = [this](const std::string& path) { return pieces(path); };
        o.transposed = model_->transposed;
        return o;
    }

  private:
    std::string stored(const std::string& begin) const {
        const std::string plain = begin + ".weight", named = begin + ".default.weight";
        return files_ != nullptr && files_->find(plain) == nullptr && files_->find(named) != nullptr ? named : plain;
    }

    const peft_layout* model_;
    const tensor_files* files_;
    std::map<std::string, std::vector<weight_piece>> adapters_{};
    std::set<std::string> saved_{};
};

/// A name that PEFT understands of each of some modules: the end of its name, within its block, if `fits` says so, or else all of it.
template <class F>
std::vector<std::string> shortest_names(const std::vector<const peft_module*>& modules, const F& fits) {
    std::set<std::string> names;
    for (const peft_module* const m : modules) {
        const std::string block = '.' + std::to_string(m->block) + '.';
        const std::size_t within = m->block < 0 ? std::string::npos : m->there.find(block) + block.size();
        std::string name = m->there;
        for (auto dot = name.rfind('.'); m->block >= 0 && dot != std::string::npos && dot + 1 >= within;
             dot = m->there.rfind('.', dot - 1)) {
            if (!fits(*m, m->there.substr(dot + 1))) continue;
            name = m->there.substr(dot + 1);
            break;
        }
        names.insert(name);
    }
    return {names.begin(), names.end()};
}
inline bool has_suffix(const std::string& module, const std::string& name) {
    return module == name || module.ends_with('.' + name);
}

/// The alpha with which an adapter has its scale.
inline double alpha_of(const store_adapter& a, const adapter_options& o) {
    const double rank = static_cast<double>(a.rank), by = o.rank_stabilized ? std::sqrt(rank) : rank;
    if (o.alpha / by == a.scale) return o.alpha;
    for (const adapter_pattern& p : o.patterns) {
        if (p.alpha && *p.alpha / by == a.scale) return *p.alpha;
    }
    return a.scale * by;
}
/// An integer without a point, as PEFT writes it.
inline nlohmann::json plain_number(double x) {
    if (x == std::round(x) && std::fabs(x) < 1e15) return static_cast<std::int64_t>(x);
    return x;
}

/// rank_pattern or alpha_pattern: `value_of` for the modules for which it is another than `usual`.
template <class F>
nlohmann::json peft_pattern(const std::vector<const peft_module*>& adapted, double usual, const F& value_of) {
    nlohmann::json pattern = nlohmann::json::object();
    std::vector<const peft_module*> others;
    for (const peft_module* const m : adapted) {
        if (value_of(*m) != usual) others.push_back(m);
    }
    const auto fits = [&](const peft_module& of, const std::string& name) {
        return std::all_of(adapted.begin(), adapted.end(), [&](const peft_module* m) {
            return !has_suffix(m->there, name) || value_of(*m) == value_of(of);
        });
    };
    for (const std::string& name : shortest_names(others, fits)) {
        const auto first = std::find_if(others.begin(), others.end(),
                                        [&](const peft_module* m) { return has_suffix(m->there, name); });
        pattern[name] = plain_number(value_of(**first));
    }
    return pattern;
}

/// The adapter_config.json of a model's adapters. Throws argument_error for what PEFT has no words for.
inline nlohmann::json peft_config_of(const store& parameters, const peft_layout& model,
                                     const std::set<std::string>& saved, const std::string& base) {
    const adapter_options& o = *parameters.adapters().options();
    std::map<std::string, const store_adapter*> adapters;
    for (const store_adapter& a : parameters.adapters().all()) adapters[a.path] = &a;
    std::vector<const peft_module*> adapted, whole;
    for (const peft_module& m : model.modules) {
        const bool has_adapter = adapters.count(m.adapter) != 0, is_saved = saved.count(m.there) != 0;
        if (has_adapter) adapted.push_back(&m);
        if (is_saved) whole.push_back(&m);
        if (has_adapter && is_saved)
            fail<argument_error>("save_peft: ", m.layer, " is trained and has an adapter, too, at ", m.adapter,
                                 "; PEFT knows one or the other");
        if (is_saved && model.tied.count(m.there) != 0)
            fail<argument_error>(
                "save_peft: ", m.layer,
                " is trained, and is the head's weight, too; PEFT would train the one apart from the other");
    }
    const auto fits = [&](const peft_module&, const std::string& name) {
        return std::all_of(model.modules.begin(), model.modules.end(), [&](const peft_module& m) {
            return !has_suffix(m.there, name) || adapters.count(m.adapter) != 0;
        });
    };
    const auto fits_saved = [&](const peft_module&, const std::string& name) {
        return std::all_of(model.modules.begin(), model.modules.end(),
                           [&](const peft_module& m) { return !m.there.ends_with(name) || saved.count(m.there) != 0; });
    };
    const std::vector<std::string> names_of_saved = shortest_names(whole, fits_saved);
    return {{"peft_type", "LORA"},
            {"task_type", "CAUSAL_LM"},
            {"peft_version", "0.21.2"},
            {"base_model_name_or_path", base.empty() ? nlohmann::json() : nlohmann::json(base)},
            {"bias", "none"},
            {"fan_in_fan_out", model.has_transposes},
            {"inference_mode", true},
            {"init_lora_weights", true},
            {"r", o.rank},
            {"lora_alpha", plain_number(o.alpha)},
            {"lora_dropout", shortest(o.dropout)},
            {"use_rslora", o.rank_stabilized},
            {"use_dora", false},
            {"target_modules", shortest_names(adapted, fits)},
            {"rank_pattern",
             peft_pattern(adapted, static_cast<double>(o.rank),
                          [&](const peft_module& m) { return static_cast<double>(adapters.at(m.adapter)->rank); })},
            {"alpha_pattern", peft_pattern(adapted, o.alpha,
                                           [&](const peft_module& m) { return alpha_of(*adapters.at(m.adapter), o); })},
            {"modules_to_save", names_of_saved.empty() ? nlohmann::json() : nlohmann::json(names_of_saved)}};
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
