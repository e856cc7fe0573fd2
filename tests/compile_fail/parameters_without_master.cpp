// SPDX-License-Identifier: MIT
// expect: halftone: these parameters (role `param`) have so few bits that an optimizer's updates round away
// expect: path_text<'h', 'e', 'a', 'd'>
#include <halftone/policy/check.hpp>

#include "../policy/small_gpt.hpp"

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using head = ht::pure_bf16;
#else
using head = ht::with_param<ht::full_fp32, ht::bfloat16>;
#endif
using mine = ht::recipe<ht::amp_bf16, ht::rule<"head", head>>;
static_assert(ht::check_trainable<outline::gpt<mine>>());
