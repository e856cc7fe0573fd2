// SPDX-License-Identifier: MIT
#include <halftone/number/nf4.hpp>

#include "tune.hpp"

const method qlora = method_of<ht::lora<ht::amp_bf16, ht::with_copy<ht::pure_bf16, ht::nf4>>, true>(
    "qlora", "adapters with fp32 masters, over a base in four bits");
