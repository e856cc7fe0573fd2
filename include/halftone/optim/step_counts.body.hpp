// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in step_counts.hpp that are no templates.
#pragma once

#include <halftone/optim/step_counts.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE std::vector<std::int64_t> step_counts::read(const std::vector<update_segment>& each, std::int64_t all) const {
    if (made_ == 0) return {};
    std::vector<step_group_record> now(made_);
    memory_->read(now.data(), records(), made_ * sizeof(step_group_record));
    std::vector<std::int64_t> steps;
    for (const update_segment& s : each) steps.push_back(s.step_group == 0 ? all : now[s.step_group - 1].step.steps);
    return steps;
}

HALFTONE_OUT_OF_LINE void step_counts::load(std::vector<update_segment>& each, const std::vector<std::int64_t>& steps,
                              std::int64_t all) {
    std::vector<step_group_record> now;
    for (std::size_t i = 0; i < each.size(); ++i) {
        each[i].step_group = 0;
        if (steps.empty() || steps[i] == all) continue;
        const auto is_it = [&](const step_group_record& r) { return r.step.steps == steps[i]; };
        const auto found = std::find_if(now.begin(), now.end(), is_it);
        each[i].step_group = static_cast<std::size_t>(found - now.begin()) + 1;
        if (found == now.end()) now.push_back({{.steps = steps[i]}, 1});
    }
    const std::size_t before = std::exchange(made_, now.size());
    if (before == 0 && now.empty()) return;
    take_memory(each.size());
    now.resize(each.size());
    memory_->write(memory_of_records_.data(), now.data(), memory_of_records_.bytes());
    counting_.clear();
    change();
}

HALFTONE_OUT_OF_LINE bool step_counts::has_reached(std::size_t step_group, const std::vector<update_segment>& each,
                                     const std::vector<bool>& reached) {
    for (std::size_t i = 0; i < each.size(); ++i) {
        if (reached[i] && each[i].step_group == step_group) return true;
    }
    return false;
}

HALFTONE_OUT_OF_LINE void step_counts::take_memory(std::size_t parameters) {
    if (memory_of_records_.bytes() != 0) return;
    memory_of_records_ = buffer(*memory_, parameters * sizeof(step_group_record), memory_kind::other);
    memory_->clear(memory_of_records_.data(), memory_of_records_.bytes());
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
