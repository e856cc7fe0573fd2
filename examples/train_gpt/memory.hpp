// SPDX-License-Identifier: MIT
/// \file
/// The memory of runs before they begin: --plan prints it, --budget chooses how to stay within a limit.
#pragma once

#include <string>

#include <halftone/data/tokens.hpp>

#include "options.hpp"
#include "run.hpp"

/// The plan of a policy's run, with --ranks of one rank.
run_plan plan_of(const std::string& policy, const options& o, const halftone::token_view& corpus);

/// --plan: prints the plan of each policy and writes plan.json. Returns the program's exit code.
int tell_plans(const options& o);

/// What --budget chose for a policy.
struct budget_result {
    options run;                 ///< the options of the run: micro-batch, blocks computed again, logits
    std::size_t peak_bytes = 0;  ///< its plan's
    double more_work = 0;        ///< the operations that it adds, as a fraction of those of the requested run
    std::string text;            ///< the choice and its reason, in a line
};

/// The cheapest way to run a policy within the options' budget. If there is none, throws exit_with(2) with the
/// number of bytes that are missing.
budget_result within_budget(const std::string& policy, const options& o, const halftone::token_view& corpus);
