// SPDX-License-Identifier: MIT
/// \file
/// The sizes of a model whose first weights are a GPT-2's.
#pragma once

#include "options.hpp"

/// Sets the sizes of `o` to those of the GPT-2 that --init names, from the config.json in its folder. Throws exit_with(2) if
/// there is none, or if it is of another model.
void take_sizes_of_initial_weights(options& o);
