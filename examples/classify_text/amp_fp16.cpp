// SPDX-License-Identifier: MIT
#include "run_policy.hpp"

template classifier_result run<ht::amp_fp16, memory_use::usual>(ht::cpu&, const std::string&, const text_data&,
                                                                const text_options&);
