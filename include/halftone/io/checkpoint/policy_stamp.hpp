// SPDX-License-Identifier: MIT
/// \file
/// The policy stamp of a checkpoint: the number types of every layer, role by role, so that a run is not resumed under
/// another policy by mistake.
///
///     const detail::policy_stamp here = detail::stamp_of<Model>(parameters);
///     detail::stamp_difference(saved, here)          // "compute is bfloat16 there, float16 here: h.*.attn.qkv, h.*.mlp.up"; or ""
///
/// Checkpoints of releases without the role `stream` do not state it; their runs had their `output` there.
#pragma once

#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <halftone/io/strict_json.hpp>
#include <halftone/io/weights.hpp>
#include <halftone/memory/store.hpp>
#include <halftone/policy/model.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The types of a layer's roles, by the roles' names.
using role_types = std::map<std::string, std::string>;
/// The types of the roles of all layers, by the layers' paths.
using policy_stamp = std::map<std::string, role_types>;

constexpr const char* text_of(rounding r) {
    constexpr const char* names[]{"nearest_even", "nearest_away", "toward_zero", "stochastic"};
    return names[static_cast<int>(r)];
}

template <class P>
role_types roles_of() {
    using r = policy_within<P, as_given>;
    if constexpr (precision_policy<r>) {
        role_types t{{"param", number_traits<typename r::param>::name},
                     {"compute", number_traits<typename r::compute>::name},
                     {"output", number_traits<typename r::output>::name},
                     {"accum", number_traits<typename r::accum>::name},
                     {"grad", number_traits<typename r::grad>::name},
                     {"accumulate", number_traits<typename r::accumulate>::name},
                     {"reduce", number_traits<typename r::reduce>::name},
                     {"state", number_traits<typename r::state>::name},
                     {"param_rounding", text_of(r::param_rounding)},
                     {"copy_rounding", text_of(copy_rounding_of<r>())},
                     {"masters", layout_of<r>() == master_layout::split ? "split" : "whole"}};
        if constexpr (requires { typename r::input_grad; }) t["input_grad"] = number_traits<typename r::input_grad>::name;
        if constexpr (requires { typename r::weight_grad; }) t["weight_grad"] = number_traits<typename r::weight_grad>::name;
        if constexpr (states_copy<r>) t["copy"] = r::copy::name;
        if constexpr (states_stream<r>) t["stream"] = number_traits<stream_of<r>>::name;
        if constexpr (requires { r::scaling::rule; }) {
            constexpr scaling_rule s = r::scaling::rule;
            t["scaling"] = s.history == 0 ? "current" : "delayed over " + std::to_string(s.history) + " windows";
        }
        return t;
    } else {
        return {{"policy", "inherit"}};
    }
}

/// Adds a layer. An adapter (nn/low_rank.hpp) has its layer's path, and is told apart by "lora".
template <class L>
void add_layer(policy_stamp& stamp, bool has_adapters) {
    std::string path = path_of<typename L::policy>.text().data;
    if constexpr (requires { requires L::is_adapter; }) {
        if (!has_adapters) return;
        path += path.empty() ? "lora" : ".lora";
    }
    stamp.emplace(path, roles_of<typename L::policy>());
}
template <class... Ls>
policy_stamp stamp_of_layers(types<Ls...>, bool has_adapters) {
    policy_stamp stamp;
    (add_layer<Ls>(stamp, has_adapters), ...);
    return stamp;
}
template <class Model>
policy_stamp stamp_of(const store& parameters) {
    return stamp_of_layers(layers_of<Model>{}, parameters.adapters().are_in_use());
}

/// A stamp as JSON: layers of equal roles together.
inline nlohmann::json stamp_json(const policy_stamp& stamp) {
    std::map<role_types, nlohmann::json> layers;
    for (const auto& [path, roles] : stamp) layers[roles].push_back(path);
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [roles, paths] : layers) list.push_back({{"layers", paths}, {"roles", roles}});
    return list;
}
inline policy_stamp read_stamp(const nlohmann::json& j, const std::string& what) {
    policy_stamp stamp;
    try {
        for (const auto& each : j) {
            const auto roles = each.at("roles").get<role_types>();
            for (const auto& path : each.at("layers")) stamp[path.get<std::string>()] = roles;
        }
    } catch (const nlohmann::json::exception&) {
        fail<checkpoint_error>(what, " is no list of layers and roles");
    }
    return stamp;
}

/// The type of a role in words, and whether it is told by another: a layer that states no `stream` has its `output` there.
struct told_role {
    std::string type = "not set";
    bool is_output = false;

    told_role(const role_types& roles, const std::string& role) {
        const bool states = roles.count(role) != 0;
        is_output = !states && role == "stream" && roles.count("output") != 0;
        if (states || is_output) type = roles.at(is_output ? "output" : role);
    }
    std::string text() const { return type + (is_output ? " (its `output`)" : ""); }
};

/// The name of a number type as programs write it.
inline std::string as_written(const std::string& name) {
    const bool is_halftones = name == number_traits<bfloat16>::name || name == number_traits<float16>::name;
    return (is_halftones ? "ht::" : "") + name;
}

/// Whether a layer states its `stream` here and not there, where it then is its `output`.
inline bool takes_output_as_stream(const role_types& there, const role_types& here) {
    return here.count("stream") != 0 && told_role(there, "stream").is_output;
}

/// The paths of layers whose result is the residual stream. A model of blocks of its own may have none that says so.
template <class... Ls>
std::set<std::string> paths_of_stream(types<Ls...>) {
    std::set<std::string> paths;
    const auto add = [&paths]<class L>(std::type_identity<L>) {
        if constexpr (stream_giving<L>) paths.insert(path_of<typename L::policy>.text().data);
    };
    (add(std::type_identity<Ls>{}), ...);
    return paths;
}

/// Says that a model was saved without the role `stream`, by its policies there, and what its residual stream then was and
/// is here. Only the layers of `begin_stream` count, if it has any. Empty where `stream` was stated.
inline std::vector<std::string> stream_notes(const policy_stamp& there, const policy_stamp& here,
                                             const std::set<std::string>& begin_stream) {
    std::map<std::pair<std::string, std::string>, name_list> by_change;
    bool is_silent = false;
    for (const auto& [path, roles] : there) {
        const auto found = here.find(path);
        if (found == here.end() || !takes_output_as_stream(roles, found->second)) continue;
        is_silent = true;
        const std::string& was = roles.at("output");
        const std::string& is = found->second.at("stream");
        if (was != is && (begin_stream.empty() || begin_stream.count(path) != 0))
            by_change[{was, is}].add(path.empty() ? "the model" : path);
    }
    if (!is_silent) return {};
    if (by_change.empty()) return {"it was saved without the role `stream`, which is then its `output`"};
    std::vector<std::string> notes;
    for (const auto& [types, paths] : by_change) {
        const auto& [was, is] = types;
        notes.push_back(
            "it was saved without the role `stream`: that run kept the sums of its residual stream in its `output`, " +
            was + ", and this program keeps them in " + is + (by_change.size() > 1 ? " (" + paths.all() + ")" : "") +
            "; ht::with_stream<P, " + as_written(was) + "> goes on as before");
    }
    return notes;
}

/// The differences in words, role by role; empty if there are none. A `stream` that is stated only here is no difference:
/// stream_notes() says what it changes.
inline std::string stamp_difference(const policy_stamp& there, const policy_stamp& here) {
    std::map<std::string, name_list> by_difference;
    name_list only_there, only_here;
    for (const auto& [path, roles] : there) {
        const auto found = here.find(path);
        if (found == here.end()) {
            only_there.add(path.empty() ? "the model" : path);
            continue;
        }
        role_types all = roles;
        all.insert(found->second.begin(), found->second.end());
        for (const auto& [role, type] : all) {
            const told_role a(roles, role), b(found->second, role);
            if (a.type == b.type || (role == "stream" && takes_output_as_stream(roles, found->second))) continue;
            by_difference[role + " is " + a.text() + " there, " + b.text() + " here"].add(path.empty() ? "the model"
                                                                                                       : path);
        }
    }
    for (const auto& [path, roles] : here) {
        if (there.find(path) == there.end()) only_here.add(path.empty() ? "the model" : path);
    }
    std::string text;
    const auto say = [&text](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
    for (const auto& [what, paths] : by_difference) say(what + ": " + paths.all());
    if (only_there.count != 0) say("layers only there: " + only_there.all());
    if (only_here.count != 0) say("layers only here: " + only_here.all());
    return text;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
