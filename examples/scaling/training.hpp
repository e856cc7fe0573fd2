// SPDX-License-Identifier: MIT
/// \file
/// What the scaling model has to know of a training: the parameters with their bytes, the memory of a step on one device,
/// and the arithmetic of each layer. All of it comes from the program itself, run on a device that computes nothing.
///
///     scaling::subject subject;
///     ht::speed_of_light light;
///     subject.plan = ht::plan(device, [&](auto& twin) {                // as in observe/memory/plan.hpp
///         ht::nn::gpt<ht::amp_bf16> model{twin, config};
///         ht::trainer trainer{twin, model, arguments, ht::watched};
///         ht::listener_list all{{twin.listener(), &light}};
///         trainer.listen(&all);
///         trainer.train(data);
///         subject.parameters = scaling::parameters_of(model);
///     });
///     subject.layers = scaling::layers_of(light);
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <halftone/memory/store.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>

namespace scaling {

namespace ht = halftone;

/// The parameters of a model, as its store describes them: without their memory.
struct parameter_set {
    std::vector<ht::store_entry> entries{};
    std::vector<ht::detail::storage_layout> groups{};  ///< of the entries, by their types
};

/// A layer's arithmetic in a step.
struct layer {
    std::string path;  ///< "h.0.attn.qkv"; empty: of no layer
    double forward_flops = 0, backward_flops = 0;
};

/// A training on one device, with the micro-batches of one rank.
struct subject {
    ht::memory_plan plan{};
    parameter_set parameters{};
    std::vector<layer> layers{};
};

/// The parameters of a model, also of one on a device that computes nothing. Throws argument_error for a table with a
/// sparse gradient, which several ranks cannot add, and for a model that is divided already.
template <class Model>
parameter_set parameters_of(const Model& model) {
    const ht::store& parameters = model.parameters();
    if (parameters.is_divided())
        ht::fail<ht::argument_error>(
            "scaling: this model is sharded; expected one that is not, and its plan on one device");
    parameter_set p;
    p.entries = parameters.entries();
    for (const ht::store_group& g : parameters.groups()) p.groups.push_back(g);
    for (const ht::store_entry& e : p.entries) {
        if (p.groups[e.group].has_sparse_gradients && !e.frozen)
            ht::fail<ht::argument_error>("scaling: ", e.path,
                                         " has a sparse gradient; expected dense ones, which ranks can add");
    }
    return p;
}

/// The arithmetic of each layer, per step, as watched tapes have told it.
inline std::vector<layer> layers_of(const ht::speed_of_light& light) {
    std::vector<layer> all;
    for (const ht::light_row& r : light.table({}).rows) {
        if (r.flops == 0 || r.pass == ht::pass::update) continue;
        // "h.0 after h.0.attn.proj" is an operation of h.0, "after norm" one of no layer.
        const std::string path = r.layer.rfind("after ", 0) == 0 ? "" : r.layer.substr(0, r.layer.find(' '));
        auto at = std::find_if(all.begin(), all.end(), [&](const layer& l) { return l.path == path; });
        if (at == all.end()) at = all.insert(at, {path, 0, 0});
        (r.pass == ht::pass::forward ? at->forward_flops : at->backward_flops) += r.flops;
    }
    return all;
}

}  // namespace scaling
