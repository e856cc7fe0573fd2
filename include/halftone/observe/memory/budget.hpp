// SPDX-License-Identifier: MIT
/// \file
/// Of several ways to run a program, chooses the cheapest whose planned peak is within a memory budget.
///
///     const auto choice = ht::cheapest_within(budget, ways, [&](const way& w) { return ht::plan(device, training(w)); });
///     if (choice.fits) train(choice.way);
///
/// A way is a struct of the settings that save memory (how many blocks are recomputed, the size of a micro-batch) with a
/// member `cost`, the program's time in any unit, estimated or measured. A plan takes the time of the host's code only, so
/// that hundreds of ways are planned in a second, beginning with the cheapest.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <halftone/observe/memory/plan.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A way to run a program, and the memory that it needs.
template <class Way>
struct budget_choice {
    Way way{};
    memory_plan plan{};
    bool fits = false;  ///< false: no way is within the budget, and this one has the lowest peak
};

/// The cheapest of `ways` (a Way has the member `cost`) whose plan, plan_of(way), has a peak of at most `budget` bytes;
/// of equally cheap ones the first. If no way fits, that with the lowest peak. Throws argument_error for no ways.
template <class Way, class PlanOf>
budget_choice<Way> cheapest_within(std::size_t budget, std::vector<Way> ways, const PlanOf& plan_of) {
    if (ways.empty()) fail<argument_error>("cheapest_within: no ways to choose from");
    std::stable_sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.cost < b.cost; });
    budget_choice<Way> least;
    for (const Way& way : ways) {
        memory_plan plan = plan_of(way);
        const bool fits = plan.peak_bytes <= budget;
        if (fits || &way == &ways.front() || plan.peak_bytes < least.plan.peak_bytes)
            least = {way, std::move(plan), fits};
        if (fits) break;
    }
    return least;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
