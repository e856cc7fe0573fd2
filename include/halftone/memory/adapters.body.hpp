// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in adapters.hpp.
#pragma once

#include <cmath>

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

HALFTONE_OUT_OF_LINE std::optional<adapter_list::sizes> adapter_list::chosen(const std::string& path) {
    if (options_ == nullptr) return std::nullopt;
    bool is_target = false;
    for (std::size_t i = 0; i < options_->targets.size(); ++i) {
        const bool matches = path_matches(options_->targets[i].c_str(), path.c_str());
        is_target = is_target || matches;
        is_used_[i] = is_used_[i] || matches;
    }
    if (!is_target) return std::nullopt;
    extent rank = options_->rank;
    double alpha = options_->alpha;
    for (const adapter_pattern& p : options_->patterns) {
        if (!path_matches(p.pattern.c_str(), path.c_str())) continue;
        rank = p.rank.value_or(rank), alpha = p.alpha.value_or(alpha);
    }
    const double r = static_cast<double>(rank);
    return sizes{rank, alpha / (options_->rank_stabilized ? std::sqrt(r) : r)};
}

HALFTONE_OUT_OF_LINE void adapter_list::check_targets() const {
    for (std::size_t i = 0; i < is_used_.size(); ++i) {
        if (!is_used_[i])
            fail<argument_error>("add_adapters: the model has no linear layer at ", options_->targets[i],
                                 " whose policy is an ht::lora");
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
