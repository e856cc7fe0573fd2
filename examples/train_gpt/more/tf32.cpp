// SPDX-License-Identifier: MIT
#include "../run_policy.hpp"

template run_result run<ht::tf32>(ht::cpu&, const options&, const ht::token_view&, const surroundings&);
