// SPDX-License-Identifier: MIT
// expect-first: halftone: layer_norm is called without a policy
// expect: halftone: layer_norm is called without a policy: ht::layer_norm<ht::amp_bf16>(device, x, gain, bias, y)
// expect: halftone: layer_norm_gradients is called without a policy: ht::layer_norm_gradients<ht::amp_bf16>(device, x, gain, dy, mean, rstd, dx, dgain, dbias)
// expect: halftone: rms_norm is called without a policy: ht::rms_norm<ht::amp_bf16>(device, x, gain, y)
// expect: halftone: rms_norm_gradients is called without a policy: ht::rms_norm_gradients<ht::amp_bf16>(device, x, gain, dy, rstd, dx, dgain)
// expect: halftone: softmax is called without a policy: ht::softmax<ht::amp_bf16>(device, x, y)
// expect: halftone: softmax_gradients is called without a policy: ht::softmax_gradients<ht::amp_bf16>(device, y, dy, dx)
// expect: halftone: log_softmax is called without a policy: ht::log_softmax<ht::amp_bf16>(device, x, y)
// expect: halftone: log_softmax_gradients is called without a policy: ht::log_softmax_gradients<ht::amp_bf16>(device, y, dy, dx)
// expect: halftone: cross_entropy is called without a policy: ht::cross_entropy<ht::amp_bf16>(device, logits, targets, losses, maximum, sum, loss, count)
// expect: halftone: cross_entropy_gradients is called without a policy: ht::cross_entropy_gradients<ht::amp_bf16>(device, logits, targets, maximum, sum, gradient, count, dlogits)
// expect: halftone: embedding is called without a policy: ht::embedding<ht::amp_bf16>(device, tokens, table, positions, out)
// expect: halftone: embedding_gradients is called without a policy: ht::embedding_gradients<ht::amp_bf16>(device, tokens, dy, dtable, dpositions)
// expect: halftone: linear_cross_entropy is called without a policy: ht::linear_cross_entropy<ht::amp_bf16>(device, x, w, rows)
// expect: halftone: linear_cross_entropy_gradients is called without a policy: ht::linear_cross_entropy_gradients<ht::amp_bf16>(device, x, w, rows, gradient, dx, dw)
// expect: halftone: quantize is called without a policy: ht::quantize<ht::amp_bf16>(device, x, y, scale)
// expect: halftone: adamw_step is called without a policy: ht::adamw_step<ht::amp_bf16>(device, parameters, copy, gradients, first, second)
// expect: halftone: lion_step is called without a policy: ht::lion_step<ht::amp_bf16>(device, parameters, copy, gradients, momentum)
// expect: halftone: sgd_step is called without a policy: ht::sgd_step<ht::amp_bf16>(device, parameters, copy, gradients, momentum)
// never: no matching function
// never: candidate
#include <halftone/kernel.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
#define POLICY <ht::amp_bf16>
#else
#define POLICY
#endif

void functions(ht::cpu& device, ht::view<float, 2> x, ht::view<float, 1> v, ht::view<std::int32_t, 1> t,
               ht::view<ht::float8_e4m3, 2> bytes, ht::tensor_scale* scale, const ht::kernel::linear_cross_entropy_rows& rows) {
    ht::layer_norm POLICY(device, x, v, v, x);
    ht::layer_norm_gradients POLICY(device, x, v, x, v, v, x, v, v);
    ht::rms_norm POLICY(device, x, v, x);
    ht::rms_norm_gradients POLICY(device, x, v, x, v, x, v);
    ht::softmax POLICY(device, x, x);
    ht::softmax_gradients POLICY(device, x, x, x);
    ht::log_softmax POLICY(device, x, x, 0.5);
    ht::log_softmax_gradients POLICY(device, x, x, x);
    ht::cross_entropy POLICY(device, x, t, v, v, v, v, v);
    ht::cross_entropy_gradients POLICY(device, x, t, v, v, v, v, x);
    ht::embedding POLICY(device, t, x, x, x);
    ht::embedding_gradients POLICY(device, t, x, x, x);
    ht::linear_cross_entropy POLICY(device, x, x, rows);
    ht::linear_cross_entropy_gradients POLICY(device, x, x, rows, v, x, x);
    ht::quantize POLICY(device, x, bytes, scale);
    ht::adamw_step POLICY(device, v, v, v, v, v);
    ht::lion_step POLICY(device, v, v, v, v);
    ht::sgd_step POLICY(device, v, v, v, v);
}
#undef POLICY
