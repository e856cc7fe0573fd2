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
#include <string>
#include <vector>

#include <halftone/memory/store.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The parameters of a model, as its store describes them: without their memory.
struct scaling_parameters {
    std::vector<store_entry> entries{};
    std::vector<detail::storage_layout> groups{};  ///< of the entries, by their types
};

/// A layer's arithmetic in a step.
struct scaling_layer {
    std::string path;  ///< "h.0.attn.qkv"; empty: of no layer
    double forward_flops = 0, backward_flops = 0;
};

/// A training on one device, with the micro-batches of one rank.
struct scaling_subject {
    memory_plan plan{};
    scaling_parameters parameters{};
    std::vector<scaling_layer> layers{};
};

/// The parameters of a model, also of one on a device that computes nothing. Throws argument_error for a table with a
/// sparse gradient, which several ranks cannot add, and for a model that is divided already.
template <class Model>
scaling_parameters scaling_parameters_of(const Model& model) {
    const store& parameters = model.parameters();
    if (parameters.is_divided()) fail<argument_error>("scaling: this model is sharded; expected one that is not, and its plan on one device");
    scaling_parameters p;
    p.entries = parameters.entries();
    for (const store_group& g : parameters.groups()) p.groups.push_back(g);
    for (const store_entry& e : p.entries) {
        if (p.groups[e.group].has_sparse_gradients && !e.frozen)
            fail<argument_error>("scaling: ", e.path, " has a sparse gradient; expected dense ones, which ranks can add");
    }
    return p;
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

}  // namespace HALFTONE_ABI
}  // namespace halftone
