// SPDX-License-Identifier: MIT
// expect: halftone: this rule's path names no layer of the model
// expect: path_text<'h', '.', '*', '.', 'a', 't', 't', 'e', 'n', 't', 'i', 'o', 'n'>
#include <halftone/amp.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::recipe<ht::amp_bf16, ht::rule<"h.*.attn", ht::amp_fp16>, ht::rule<"h.*.attn.proj", ht::amp_bf16>>;
#else
using mine = ht::recipe<ht::amp_bf16, ht::rule<"h.*.attention", ht::amp_fp16>>;
#endif
ht::nn::gpt<mine>* make(ht::cpu& device) { return new ht::nn::gpt<mine>(device, {}); }
