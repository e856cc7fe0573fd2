// SPDX-License-Identifier: MIT
/// \file
/// The training that is scaled.
#pragma once

#include "training.hpp"

#include "options.hpp"

/// A GPT of the options' sizes and policy, planned on the CPU for the batch of one rank.
scaling::subject make_subject(const options& o);
