// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in adapters.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <halftone/error.hpp>
#include <halftone/memory/adapters.hpp>
#include <halftone/policy/path.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE void check_adapter_options(const adapter_options& o) {
    const auto check_rank = [](extent rank) {
        if (rank < 1) fail<argument_error>("add_adapters: a rank of ", rank, "; expected at least 1");
    };
    const auto check_alpha = [](double alpha) {
        if (!std::isfinite(alpha)) fail<argument_error>("add_adapters: alpha is ", alpha, "; expected a finite number");
    };
    check_rank(o.rank), check_alpha(o.alpha);
    for (const adapter_pattern& p : o.patterns) check_rank(p.rank.value_or(1)), check_alpha(p.alpha.value_or(0));
    if (!(o.dropout >= 0 && o.dropout < 1))
        fail<argument_error>("add_adapters: a dropout of ", o.dropout, "; expected at least 0 and less than 1");
    if (o.targets.empty()) fail<argument_error>("add_adapters: no targets; \"*\" gives every linear layer an adapter");
}

HALFTONE_OUT_OF_LINE std::optional<adapter_sizes> chosen_adapter(const adapter_options& o, const std::string& path) {
    const auto matches = [&](const std::string& pattern) { return path_matches(pattern.c_str(), path.c_str()); };
    if (std::none_of(o.targets.begin(), o.targets.end(), matches)) return std::nullopt;
    extent rank = o.rank;
    double alpha = o.alpha;
    for (const adapter_pattern& p : o.patterns) {
        if (matches(p.pattern)) rank = p.rank.value_or(rank), alpha = p.alpha.value_or(alpha);
    }
    const double r = static_cast<double>(rank);
    return adapter_sizes{rank, alpha / (o.rank_stabilized ? std::sqrt(r) : r)};
}

HALFTONE_OUT_OF_LINE std::optional<adapter_sizes> adapter_list::chosen(const std::string& path) {
    if (options_ == nullptr) return std::nullopt;
    const auto note = [&](std::vector<bool>& used, std::size_t i, const std::string& pattern) {
        if (path_matches(pattern.c_str(), path.c_str())) used[i] = true;
    };
    for (std::size_t i = 0; i < options_->targets.size(); ++i) note(is_used_, i, options_->targets[i]);
    const auto sizes = chosen_adapter(*options_, path);
    for (std::size_t i = 0; sizes && i < options_->patterns.size(); ++i)
        note(is_pattern_used_, i, options_->patterns[i].pattern);
    return sizes;
}

HALFTONE_OUT_OF_LINE std::map<std::string, std::string> scales_of(const adapter_list& adapters) {
    std::map<std::string, std::string> scales;
    if (!adapters.are_in_use()) return scales;
    for (const store_adapter& each : adapters.all()) {
        char text[32];
        std::snprintf(text, sizeof text, "%.17g", each.scale);
        scales[each.path] = text;
    }
    return scales;
}

HALFTONE_OUT_OF_LINE std::string scale_difference(const adapter_list& adapters,
                                                  const std::map<std::string, std::string>& there) {
    for (const auto& [path, scale] : scales_of(adapters)) {
        const auto found = there.find(path);
        if (found != there.end() && found->second != scale)
            return "that at " + path + " is multiplied by " + found->second + " there, by " + scale +
                   " here (alpha / rank)";
    }
    return {};
}

HALFTONE_OUT_OF_LINE void adapter_list::check_targets() const {
    for (std::size_t i = 0; i < is_used_.size(); ++i) {
        if (!is_used_[i])
            fail<argument_error>("add_adapters: the model has no linear layer at ", options_->targets[i],
                                 " whose policy is an ht::lora");
    }
    for (std::size_t i = 0; i < is_pattern_used_.size(); ++i) {
        if (!is_pattern_used_[i])
            fail<argument_error>("add_adapters: the model has no adapter at ", options_->patterns[i].pattern,
                                 ", whose rank or alpha is to differ");
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
