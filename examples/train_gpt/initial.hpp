// SPDX-License-Identifier: MIT
/// \file
/// The model whose weights are a run's first: --init.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "options.hpp"

/// Sets the model, its sizes and the context to those of the model that --init names: a GPT-2's, or those of a Llama, a Mistral or a
/// Qwen2. Where --model or --context are given, they have to agree with it. Throws exit_with(2).
void take_initial_model(options& o, bool has_model, bool has_context);

/// What the sizes of the command line do not say of the Llama of --init.
nlohmann::ordered_json further_sizes(const halftone::nn::llama_config& c);
