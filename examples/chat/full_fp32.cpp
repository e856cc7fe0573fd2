// SPDX-License-Identifier: MIT
#include <halftone/amp.hpp>

#include "load.hpp"

std::unique_ptr<language_model> load_full_fp32(const model_options& o) { return load_on_cpu<ht::full_fp32>(o); }
