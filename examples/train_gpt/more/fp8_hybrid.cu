// SPDX-License-Identifier: MIT
#include <halftone/cuda.cuh>

#include "../run_policy.hpp"

template run_result run<ht::fp8_hybrid>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
template run_result run<ht::fp8_hybrid>(ht::detail::measured<ht::cuda>&, const options&, const ht::token_view&, const surroundings&);
