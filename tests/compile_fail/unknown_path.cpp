// SPDX-License-Identifier: MIT
// expect: halftone: this rule's path names no layer of the model
// expect: path_text<'*', '.', 'n', 'o', 'r', 'n'>
#include "../policy/small_gpt.hpp"

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::recipe<ht::amp_bf16, ht::rule<"*.norm", ht::full_fp32>, ht::rule<"head", ht::full_fp32>>;
#else
using mine = ht::recipe<ht::amp_bf16, ht::rule<"*.norn", ht::full_fp32>, ht::rule<"head", ht::full_fp32>>;
#endif
outline::gpt<mine> model;
