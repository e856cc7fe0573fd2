// SPDX-License-Identifier: MIT
#include "../run_policy.hpp"

template run_result run_llama<ht::full_fp32>(ht::cpu&, const options&, const ht::token_view&, const surroundings&);
