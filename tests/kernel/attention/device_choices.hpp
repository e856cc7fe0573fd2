// SPDX-License-Identifier: MIT
/// \file
/// A GPU's choice for attention in a few letters, as tests compare it:
///
///     w64.192   warpgroups, heads of up to 64, forward in tiles of 192 queries        p64   plain kernels
///     m256L     mma.sync, heads of up to 256, large tiles                             s     stored scores
#pragma once

#include <string>

#include <halftone/kernel/attention/device/explain.hpp>

namespace attention_test {

inline std::string choice_of(const halftone::kernel::on_device::attention_case& c) {
    using namespace halftone::kernel::on_device;
    const attention_plan plan = plan_attention(c);
    if (plan.chosen < 0) return "none";
    const planned_attention& best = plan.best();
    if (best.family == attention_family::stored_scores) return "s";
    constexpr char letters[] = {'w', 'm', 'p'};
    std::string text = letters[static_cast<int>(best.family)] + std::to_string(best.head);
    if (best.query_rows > 0) text += "." + std::to_string(best.query_rows);
    return best.has_large_tiles ? text + "L" : text;
}

}  // namespace attention_test
