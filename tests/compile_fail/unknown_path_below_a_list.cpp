// SPDX-License-Identifier: MIT
// expect: halftone: this rule's path names no layer of the model
// expect: path_text<'h', '.', '0', '.', 'm', 'l', 'p'>
#include "../policy/small_gpt.hpp"

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::recipe<ht::amp_bf16, ht::rule<"h.0.attn", ht::full_fp32>, ht::rule<"h.*.attn.qkv", ht::full_fp32>>;
#else
using mine = ht::recipe<ht::amp_bf16, ht::rule<"h.0.mlp", ht::full_fp32>, ht::rule<"h.*.attn.qkv", ht::full_fp32>>;
#endif
outline::gpt<mine> model;
