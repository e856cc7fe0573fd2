// SPDX-License-Identifier: MIT
/// \file
/// How long a run will take, told before it begins.
#pragma once

#include <string>
#include <vector>

#include <halftone/data/tokens.hpp>

#include "options.hpp"

/// A line with the time that the runs will take: three steps of each are run on the CPU, the first of which counts as
/// preparation. Empty where that would be more than a hundredth of the run, that is below 300 steps, and on a GPU.
/// `each`: the options of each policy's run.
std::string estimate_of(const std::vector<options>& each, const halftone::token_view& corpus);
