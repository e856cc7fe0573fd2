// SPDX-License-Identifier: MIT
// What examples/02_policies.cpp tells of: its three mistakes, in a model that is built and trained.
// expect: halftone: the accumulator of this policy (role `accum`) is narrower than the operands it sums
// expect: halftone: these parameters (role `param`) have so few bits that an optimizer's updates round away
// expect: halftone: this rule's path names no layer of the model
// expect: path_text<'*', '.', 'n', 'r', 'o', 'm'>
// expect-nvcc: halftone: the accumulator of this policy (role `accum`) is narrower than the operands it sums
// expect-nvcc: halftone: these parameters (role `param`) have so few bits that an optimizer's updates round away
#include <halftone/amp.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using sums = ht::full_fp32;
using parameters = ht::pure_bf16;
using norms = ht::rule<"*.norm", ht::full_fp32>;
#else
using sums = ht::with_accum<ht::full_fp32, ht::bfloat16>;
using parameters = ht::with_param<ht::amp_bf16, ht::bfloat16>;
using norms = ht::rule<"*.nrom", ht::full_fp32>;
#endif
using recipe = ht::recipe<ht::amp_bf16, ht::rule<"head", sums>, ht::rule<"embed", parameters>,
                          ht::rule<"h.last.mlp", ht::full_fp32>, norms>;

void train(ht::cpu& device) {
    ht::nn::gpt<recipe> model{device, {}};
    ht::adamw optimizer{device, model};
    ht::inference eval{device};
    model.logits(eval, {});
}
