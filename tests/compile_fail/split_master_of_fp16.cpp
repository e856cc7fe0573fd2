// SPDX-License-Identifier: MIT
// expect: halftone: with_split_master: an fp32 master (role `param`) splits into the bf16 copy that products read (role `compute`)
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::with_split_master<ht::amp_bf16>;
#else
using mine = ht::with_split_master<ht::amp_fp16>;
#endif
mine::param number = 0;
