// SPDX-License-Identifier: MIT
#include <halftone/amp.hpp>

#include "load.hpp"

std::unique_ptr<language_model> load_full_fp32(const model_options& o) {
    return load<ht::full_fp32>(std::make_unique<ht::cpu>(ht::cpu_options{.threads = o.threads}), o);
}
