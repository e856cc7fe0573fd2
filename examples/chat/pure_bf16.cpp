// SPDX-License-Identifier: MIT
#include <halftone/amp.hpp>

#include "load.hpp"

std::unique_ptr<language_model> load_pure_bf16(const model_options& o) {
    return load<ht::pure_bf16>(std::make_unique<ht::cpu>(ht::cpu_options{.threads = o.threads}), o);
}
