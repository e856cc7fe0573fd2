// SPDX-License-Identifier: MIT
/// \file
/// What the scaling model has to know of a training: the parameters with their bytes, the memory of a step on one device,
/// and the arithmetic of each layer. All of it comes from the program itself, run on a device that computes nothing.
///
///     ht::scaling_subject subject;
///     ht::speed_of_light light;
///     subject.plan = ht::plan(device, [&](auto& twin) {                // as in observe/memory/plan.hpp
///         ht::nn::gpt<ht::amp_bf16> model{twin, config};
///         ht::trainer trainer{twin, model, arguments, ht::watched};
///         ht::listener_list all{{twin.listener(), &light}};
///         trainer.listen(&all);
///         trainer.train(data);
///         subject.parameters = ht::scaling_parameters_of(model);
///     });
///     subject.layers = ht::scaling_layers_of(light);
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <halftone/memory/store.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A parameter, as far as it takes memory and is sent. Bytes are those of an element; 0: there is none.
struct scaling_parameter {
    std::string path;
    std::size_t group = 0;           ///< of the store: those with the same types lie in the same slabs
    std::size_t elements = 0;        ///< with the padding behind it in its slabs
    std::size_t master_bytes = 0, copy_bytes = 0, gradient_bytes = 0;
    bool is_state = false;           ///< a layer's state: all ranks hold all of it

    /// The bytes of an element that kernels read.
    std::size_t read_bytes() const { return copy_bytes != 0 ? copy_bytes : master_bytes; }
};

/// A layer's arithmetic in a step.
struct scaling_layer {
    std::string path;  ///< "h.0.attn.qkv"; empty: of no layer
    double forward_flops = 0, backward_flops = 0;
};

/// A training on one device, with the micro-batches of one rank.
struct scaling_subject {
    memory_plan plan;
    std::vector<scaling_parameter> parameters{};
    std::vector<scaling_layer> layers{};
};

/// The parameters of a model, also of one on a device that computes nothing. Throws argument_error for a table with a
/// sparse gradient: what is sent of it depends on the data.
template <class Model>
std::vector<scaling_parameter> scaling_parameters_of(const Model& model) {
    const store& parameters = model.parameters();
    std::vector<scaling_parameter> all;
    for (const store_entry& e : parameters.entries()) {
        const store_group& g = parameters.groups()[e.group];
        if (g.has_sparse_gradients && !e.frozen)
            fail<argument_error>("scaling: ", e.path, " has a sparse gradient; expected dense ones, whose size is known");
        all.push_back({.path = e.path,
                       .group = e.group,
                       .elements = (e.count + store::granule - 1) / store::granule * store::granule,
                       .master_bytes = e.master == store_entry::nowhere ? 0 : g.param_bytes,
                       .copy_bytes = g.copy_bytes,
                       .gradient_bytes = e.frozen ? 0 : g.accumulate_bytes,
                       .is_state = e.is_state});
    }
    return all;
}

/// The arithmetic of each layer, per step, as watched tapes have told it.
inline std::vector<scaling_layer> scaling_layers_of(const speed_of_light& light) {
    std::vector<scaling_layer> all;
    for (const light_row& r : light.table({}).rows) {
        if (r.flops == 0 || r.pass == pass::update) continue;
        // "h.0 after h.0.attn.proj" is an operation of h.0, "after norm" one of no layer.
        const std::string path = r.layer.rfind("after ", 0) == 0 ? "" : r.layer.substr(0, r.layer.find(' '));
        auto at = std::find_if(all.begin(), all.end(), [&](const scaling_layer& l) { return l.path == path; });
        if (at == all.end()) at = all.insert(at, {path, 0, 0});
        (r.pass == pass::forward ? at->forward_flops : at->backward_flops) += r.flops;
    }
    return all;
}

namespace detail {

/// The parameters that are gathered and reduced together: those of a unit, or those of no unit, the root.
struct scaling_unit {
    std::string name;                                ///< "h.0"; empty: the root
    std::vector<const scaling_parameter*> parameters{};
    double forward_flops = 0, backward_flops = 0;
};

/// The layer on or above `path` that a pattern names: "h.*" names "h.0" for "h.0.attn.qkv"; empty if it names none.
inline std::string unit_name(const std::vector<std::string>& patterns, const std::string& path) {
    for (std::size_t end = path.find('.'); !path.empty(); end = path.find('.', end + 1)) {
        const std::string layer = path.substr(0, end);
        for (const std::string& p : patterns) {
            if (matches(p.c_str(), layer.c_str(), glob_extent::whole)) return layer;
        }
        if (end == std::string::npos) break;
    }
    return "";
}

/// The root, then the units in the order of their first parameters.
inline std::vector<scaling_unit> units_of(const scaling_subject& s, const std::vector<std::string>& patterns) {
    std::vector<scaling_unit> units(1);
    const auto unit_of = [&](const std::string& path) {
        const std::string name = unit_name(patterns, path);
        return std::find_if(units.begin(), units.end(), [&](const scaling_unit& u) { return u.name == name; });
    };
    for (const scaling_parameter& p : s.parameters) {
        auto at = unit_of(p.path);
        if (at == units.end()) at = units.insert(at, {.name = unit_name(patterns, p.path)});
        at->parameters.push_back(&p);
    }
    for (const scaling_layer& l : s.layers) {
        const auto named = unit_of(l.path);
        scaling_unit& u = named == units.end() ? units.front() : *named;
        u.forward_flops += l.forward_flops, u.backward_flops += l.backward_flops;
    }
    return units;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
