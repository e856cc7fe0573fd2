// SPDX-License-Identifier: MIT
/// \file
/// The families of a plan (families.hpp) in words.
///
///     text += line_of("tiles", "128 x 64 of c");
///     text += why(plan);                         // "  why       not wgmma: k is 0\n            mma_sync: 672, taken\n"
#pragma once

#include <string>

#include <halftone/kernel/common/plan/families.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// A line that begins with a word, which is padded to the column of all explanations.
inline std::string line_of(const char* word, const std::string& text) {
    std::string line = "  " + std::string(word);
    line.resize(12, ' ');
    return line + text + "\n";
}
inline std::string rounded_text(double n) { return std::to_string(static_cast<long long>(n + 0.5)); }

/// A line for each family: what speaks against it, or its cost, or that it applies. Where the first one is chosen, those after it
/// are left out.
template <class Family, class Way, int Count>
std::string why(const family_plan<Family, Way, Count>& plan) {
    std::string text;
    const auto add = [&text](const std::string& line) { text += line_of(text.empty() ? "why" : "", line); };
    const bool are_compared = has_cost<Way> || plan.chosen < 0;
    for (int i = 0; i < (are_compared ? Count : plan.chosen + 1); ++i) {
        const planned<Family, Way>& f = plan.families[i];
        if (f.why_not != nullptr) {
            add("not " + std::string(f.name) + ": " + f.why_not);
        } else if constexpr (has_cost<Way>) {
            add(f.name + std::string(": ") + rounded_text(f.cost) + (i == plan.chosen ? ", taken" : ""));
        } else {
            add(f.name + std::string(": applies"));
        }
    }
    return text;
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
