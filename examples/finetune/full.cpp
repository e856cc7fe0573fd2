// SPDX-License-Identifier: MIT
#include "tune.hpp"

const method full = method_of<ht::amp_bf16, false>("full", "all weights, with fp32 masters");
