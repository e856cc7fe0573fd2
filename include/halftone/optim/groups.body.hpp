// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in groups.hpp that are no templates.
#pragma once

#include <halftone/optim/groups.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE group_options options_of(const std::string& path, const std::vector<parameter_group>& groups) {
    group_options found;
    for (const parameter_group& g : groups) {
        if (!path_matches(g.pattern.c_str(), path.c_str())) continue;
        if (g.options.lr) found.lr = g.options.lr, found.lr_scale = std::nullopt;
        if (g.options.lr_scale) found.lr_scale = g.options.lr_scale, found.lr = std::nullopt;
        if (g.options.weight_decay) found.weight_decay = g.options.weight_decay;
        if (g.options.training) found.training = g.options.training;
    }
    return found;
}

HALFTONE_OUT_OF_LINE void check_groups(const char* operation, const store& parameters, const std::vector<parameter_group>& groups) {
    for (const parameter_group& g : groups) {
        bool names_one = false;
        for (const store::entry& e : parameters.entries())
            names_one = names_one || path_matches(g.pattern.c_str(), e.path.c_str());
        if (!names_one)
            fail<argument_error>(operation, ": the group '", g.pattern, "' names no parameter; the first of them is ",
                                 parameters.entries().empty() ? "missing" : parameters.entries()[0].path);
        if (g.options.lr && g.options.lr_scale)
            fail<argument_error>(operation, ": the group '", g.pattern,
                                 "' sets both lr and lr_scale; expected one of them");
        for (const double value :
             {g.options.lr.value_or(0), g.options.lr_scale.value_or(0), g.options.weight_decay.value_or(0)}) {
            if (!is_finite(value) || value < 0) {
                fail<argument_error>(operation, ": the group '", g.pattern, "' has an lr, lr_scale or weight_decay of ",
                                     value, "; expected 0 or more");
            }
        }
    }
    for (const store::entry& e : parameters.entries()) {
        if (e.frozen && !e.is_state && options_of(e.path, groups).training == training::updated)
            fail<argument_error>(operation, ": a group trains ", e.path,
                                 ", which was frozen before; what is frozen stays so");
    }
}

HALFTONE_OUT_OF_LINE void freeze_groups(store& parameters, const std::vector<parameter_group>& groups) {
    const auto is_to_freeze = [&](const store::entry& e) {
        return options_of(e.path, groups).training == training::frozen;
    };
    for (const parameter_group& g : groups) {
        if (g.options.training != training::frozen) continue;
        bool all = true;
        for (const store::entry& e : parameters.entries()) {
            all = all && (!path_matches(g.pattern.c_str(), e.path.c_str()) || is_to_freeze(e));
        }
        if (all) parameters.freeze(g.pattern);
    }
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        const store::entry& e = parameters.entries()[i];
        if (!e.frozen && is_to_freeze(e)) parameters.freeze(std::string(e.path));
    }
}

HALFTONE_OUT_OF_LINE std::vector<update_segment> make_segments(const store& parameters, double weight_decay,
                                                 const std::vector<parameter_group>& groups) {
    std::vector<update_segment> segments;
    for (std::size_t entry = 0; entry < parameters.entries().size(); ++entry) {
        const store::entry& e = parameters.entries()[entry];
        if (e.frozen) continue;
        const bool is_sparse = parameters.groups()[e.group].has_sparse_gradients;
        const group_options o = options_of(e.path, groups);
        const kernel::group_rates rates{o.lr.value_or(0), o.lr ? 0 : o.lr_scale.value_or(1),
                                        o.weight_decay.value_or(weight_decay)};
        const element_range part = parameters.updated_here(e);
        segments.push_back({.group = e.group,
                            .master = e.master + part.first,
                            .copy = e.copy == store::nowhere ? store::nowhere : e.copy + part.first,
                            .gradient = e.gradient + part.first,
                            .count = is_sparse ? e.count : part.count,
                            .rates = rates,
                            .entry = entry,
                            .state = e.moment + part.first,
                            .average = e.moment + part.first,
                            .order = e.order + part.first});
    }
    return segments;
}

HALFTONE_OUT_OF_LINE std::vector<parameter_group> with_undecayed(const store& parameters, std::vector<parameter_group> groups) {
    std::vector<parameter_group> all;
    for (const char* pattern : {"*.bias", "*.gain"}) {
        const auto named = [&](const store::entry& e) { return path_matches(pattern, e.path.c_str()); };
        if (std::any_of(parameters.entries().begin(), parameters.entries().end(), named))
            all.push_back({pattern, {.weight_decay = 0}});
    }
    all.insert(all.end(), groups.begin(), groups.end());
    return all;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
