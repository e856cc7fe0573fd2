// SPDX-License-Identifier: MIT
/// \file
/// Parameter groups: separate learning rates and decays for some parameters, selected by patterns of their paths.
///
///     ht::adamw optimizer{device, model, {.lr = 3e-4f, .weight_decay = 0.1f},
///                         {{"*.norm", {.weight_decay = 0}}, {"head", {.lr_scale = 0.1}}, {"h.0", ht::frozen}}};
///
/// Patterns are those of recipes: '*' matches any sequence of characters, and a pattern includes all paths below those
/// that it matches. If several groups match a parameter, each field comes from the last group that sets it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/memory/store.hpp>
#include <halftone/number/classify.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// Whether parameters are trained.
enum class training { updated, frozen };

/// A group's differences from the optimizer's options; fields that are not set are the optimizer's.
struct group_options {
    std::optional<double> lr = std::nullopt;        ///< the group's rate, which set_lr does not change
    std::optional<double> lr_scale = std::nullopt;  ///< a factor of the optimizer's rate
    std::optional<double> weight_decay = std::nullopt;
    std::optional<halftone::training> training = std::nullopt;
};

/// Options for parameters that are not trained: they have no gradients, no moments, and no masters if there is a copy.
inline constexpr group_options frozen{.training = training::frozen};
/// Options for parameters that an earlier pattern froze: {{"*", ht::frozen}, {"head", ht::trained}}. Parameters that
/// the model itself or an earlier optimizer has frozen stay frozen.
inline constexpr group_options trained{.training = training::updated};

/// Options for the parameters whose paths the pattern matches (path_matches, policy/path.hpp). If several groups match,
/// each option comes from the last one that sets it.
struct parameter_group {
    std::string pattern;
    group_options options;
};

namespace detail {

/// A contiguous run of parameters in a group of the store, in all slabs, with the same rates. A table with a sparse
/// gradient is a segment by itself.
struct update_segment {
    std::size_t group, master, copy, gradient, count;
    kernel::group_rates rates;
    std::size_t entry;       ///< index of the first parameter in the store
    std::size_t step_group = 0;  ///< the group of parameters with the same step count (optim/step_counts.hpp)
    bool is_alone = false;       ///< updated as a whole in a separate step, such as a matrix of Muon
    std::size_t state = 0;       ///< first element in the optimizer's moments; usually as in the gradients
    bool is_eight_bit = false;   ///< its moments are 8-bit codes (optim/eight_bit_optimizer.hpp)
    std::size_t average = 0;     ///< first element in the averages
    std::size_t order = 0;       ///< index of its first random number
};

group_options options_of(const std::string& path, const std::vector<parameter_group>& groups);

void check_groups(const char* operation, const store& parameters, const std::vector<parameter_group>& groups);

/// Freezes the parameters that groups freeze, with one call for each pattern if possible.
void freeze_groups(store& parameters, const std::vector<parameter_group>& groups);

/// One segment for each parameter that is trained: what this rank updates of it, which may be nothing if the store is
/// divided among ranks.
std::vector<update_segment> make_segments(const store& parameters, double weight_decay,
                                          const std::vector<parameter_group>& groups);

/// The segments for which `wanted` is true, with neighbours of equal rates joined, so that a model without groups takes
/// one launch for each group of the store.
template <class Wanted>
std::vector<update_segment> join_segments(const store& parameters, const std::vector<update_segment>& each,
                                          const Wanted& wanted) {
    std::vector<update_segment> segments;
    for (const update_segment& next : each) {
        if (!wanted(next) || next.count == 0) continue;
        const store::group& g = parameters.groups()[next.group];
        const auto joins_last = [&](const update_segment& s) {
            return !g.has_sparse_gradients && !s.is_alone && !next.is_alone && s.group == next.group && s.rates == next.rates &&
                   s.step_group == next.step_group && s.master + s.count == next.master &&
                   s.gradient + s.count == next.gradient && s.state + s.count == next.state &&
                   s.average + s.count == next.average && s.order + s.count == next.order &&
                   s.is_eight_bit == next.is_eight_bit &&
                   (next.copy == store::nowhere || s.copy + s.count == next.copy);
        };
        update_segment* last = nullptr;
        for (update_segment& s : segments) {
            if (joins_last(s)) last = &s;
        }
        if (last != nullptr) {
            last->count += next.count;
        } else {
            segments.push_back(next);
        }
    }
    return segments;
}

/// Adds groups without weight decay for biases and gains: decay is for weights that multiply.
std::vector<parameter_group> with_undecayed(const store& parameters, std::vector<parameter_group> groups);

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline group_options options_of(const std::string& path, const std::vector<parameter_group>& groups) {
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

inline void check_groups(const char* operation, const store& parameters, const std::vector<parameter_group>& groups) {
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

inline void freeze_groups(store& parameters, const std::vector<parameter_group>& groups) {
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

inline std::vector<update_segment> make_segments(const store& parameters, double weight_decay,
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

inline std::vector<parameter_group> with_undecayed(const store& parameters, std::vector<parameter_group> groups) {
    std::vector<parameter_group> all;
    for (const char* pattern : {"*.bias", "*.gain"}) {
        const auto named = [&](const store::entry& e) { return path_matches(pattern, e.path.c_str()); };
        if (std::any_of(parameters.entries().begin(), parameters.entries().end(), named))
            all.push_back({pattern, {.weight_decay = 0}});
    }
    all.insert(all.end(), groups.begin(), groups.end());
    return all;
}

#endif

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
