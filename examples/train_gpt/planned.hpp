// SPDX-License-Identifier: MIT
/// \file
/// The plan of a policy's run: the run's code on a twin of the device, which computes nothing.
#pragma once

#include <optional>

#include <halftone/dist/planned.hpp>
#include <halftone/observe/memory/plan.hpp>

#include "history.hpp"
#include "run.hpp"

/// The options without what looks at values, of which a plan has none.
inline options without_reports(const options& o) {
    options few = o;
    few.numerics_every = 0;
    few.shadow_step = few.planted_step = 0;
    few.planted_layer.clear();
    return few;
}

/// What a run on the twin is for: its plan, with its history if the options ask for one, or the choice of measures for
/// the options' budget, in result.budget. With --ranks it is the run of one rank, as all have the same.
enum class planned_for { plan, budget };

template <class Device>
halftone::memory_plan planned(Device& device, const std::string& policy, const options& few,
                              const halftone::token_view& corpus, planned_for what, run_result& result) {
    halftone::trainer_callback silent;
    return halftone::plan(device, [&](auto& twin) {
        std::optional<halftone::planned_communicator> ranks;
        if (few.ranks > 1) ranks.emplace(static_cast<int>(few.ranks));
        const surroundings around{.observer = silent,
                                  .listener = twin.listener(),
                                  .is_plan = what == planned_for::plan,
                                  .chooses_budget = what == planned_for::budget,
                                  .ranks = ranks ? &*ranks : nullptr};
        result = with_history(twin.memory(), policy, few, around, [&](const surroundings& recorded) {
            return run_named(policy, twin, few, corpus, recorded);
        });
    });
}
