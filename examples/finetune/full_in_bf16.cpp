// SPDX-License-Identifier: MIT
#include "tune.hpp"

const method full_in_bf16 = method_of<ht::pure_bf16, false>("full", "all weights, in bf16 alone");
