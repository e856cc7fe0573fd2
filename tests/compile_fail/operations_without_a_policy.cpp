// SPDX-License-Identifier: MIT
// expect-first: halftone: matmul is called without a policy
// expect: halftone: matmul is called without a policy: ht::matmul<ht::amp_bf16>(device, a, b, c)
// expect: halftone: batched_matmul is called without a policy: ht::batched_matmul<ht::amp_bf16>(device, a, b, c)
// expect: halftone: attention is called without a policy: ht::attention<ht::amp_bf16>(device, q, k, v, o)
// expect: halftone: choose_attention is called without a policy
// expect: halftone: attention_gradients is called without a policy
#include <halftone/kernel.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
#define POLICY <ht::amp_bf16>
#else
#define POLICY
#endif

void products(ht::cpu& device, ht::view<float, 2> a, ht::view<float, 1> bias, ht::view<float, 3> many) {
    ht::matmul POLICY(device, a, a, a);
    ht::matmul POLICY(device, a, a, a, ht::bias_gelu{bias});
    ht::batched_matmul POLICY(device, many, many, many);
}
void attend(ht::cpu& device, ht::view<float, 4> q, const ht::kernel::attention_forward<float>& all,
            const ht::kernel::attention_backward<float>& back) {
    ht::attention POLICY(device, q, q, q, q, {});
    ht::attention POLICY(device, q, q, q, q, {}, {.mask = ht::attention_mask::causal});
    static_cast<void>(ht::choose_attention POLICY(device, all));
    ht::attention_gradients POLICY(device, back);
}
#undef POLICY
