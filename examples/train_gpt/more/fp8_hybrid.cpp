// SPDX-License-Identifier: MIT
#include "../run_policy.hpp"

template run_result run<ht::fp8_hybrid>(ht::cpu&, const options&, const ht::token_view&, const surroundings&);
