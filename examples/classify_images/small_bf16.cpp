// SPDX-License-Identifier: MIT
#include "run_policy.hpp"

template classifier_result run<ht::amp_bf16, memory_use::small>(ht::cpu&, const std::string&, const image_data&,
                                                                const run_options&);
