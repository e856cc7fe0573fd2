// SPDX-License-Identifier: MIT
#include "run_policy.hpp"

template std::unique_ptr<any_run> make_run<ht::amp_bf16>(ht::cpu&, const row&, const options&, ht::extent, ht::trainer_callback&, ht::range_listener*);
