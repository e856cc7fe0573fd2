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

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/optim/groups.body.hpp>
#endif
