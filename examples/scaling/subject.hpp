// SPDX-License-Identifier: MIT
/// \file
/// The training that is scaled.
#pragma once

#include <halftone/dist/scaling_subject.hpp>

#include "options.hpp"

/// A GPT of the options' sizes and policy, planned on the CPU for the batch of one rank.
halftone::scaling_subject make_subject(const options& o);
