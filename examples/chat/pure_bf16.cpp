// SPDX-License-Identifier: MIT
#include <halftone/amp.hpp>

#include "load.hpp"

std::unique_ptr<language_model> load_pure_bf16(const model_options& o) { return load_on_cpu<ht::pure_bf16>(o); }
