// SPDX-License-Identifier: MIT
/// \file
/// What is told of runs before they begin: the memory that they need (--plan), how they stay within a limit (--budget), and how
/// long they will take (--estimate).
#pragma once

#include <string>
#include <vector>

#include "run.hpp"

/// --plan: prints the plan of each policy and writes plan.json. Returns the program's exit code.
int tell_plans(const options& o);

/// The cheapest way to run each task within its options' budget, which its options then are: micro-batch, blocks computed
/// again, logits. None without a budget. If there is none for one of them, throws exit_with(2) with the number of bytes that
/// are missing.
std::vector<ht::memory_choice> fit_to_budget(std::vector<task>& tasks);

/// A line with the time that the runs will take: three steps of each are run on the CPU, the first of which counts as
/// preparation. Empty where that would be more than a hundredth of the run, that is below 300 steps, and on a GPU and of ranks.
std::string estimate_of(const std::vector<task>& tasks);
