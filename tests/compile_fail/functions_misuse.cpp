// SPDX-License-Identifier: MIT
// expect: halftone: this policy computes in double, and no view here holds doubles: let one of them, or take a policy that computes in float, ht::full_fp32
// expect: halftone: a view here has another rank than the function takes: matrices are (rows, columns), so flatten leading axes with ht::as_rows
// expect: halftone: sum: the last view takes the sum and is of rank 0: ht::view(&total, ht::shape<0>{})
// expect: halftone: quantize: y has eight bits; ht::convert rounds to wider types
#include <halftone/kernel.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::full_fp32;
using bits = ht::float8_e4m3;
#else
using policy = ht::full_fp64;
using bits = ht::bfloat16;
#endif

void functions(ht::cpu& device, ht::view<float, 2> x, ht::view<float, 3> many, ht::view<float, 1> v, ht::view<bits, 2> y,
               ht::tensor_scale* scale) {
    ht::layer_norm<policy>(device, x, v, v, x);
    ht::quantize<ht::fp8_hybrid>(device, x, y, scale);
    float total = 0;
#if defined(HALFTONE_TEST_RIGHT)
    ht::softmax<ht::amp_bf16>(device, ht::as_rows(many), ht::as_rows(many));
    ht::sum(device, [](auto a, auto b) { return a * b; }, x, x, ht::view(&total, ht::shape<0>{}));
#else
    ht::softmax<ht::amp_bf16>(device, many, many);
    ht::sum(device, [](auto a, auto b) { return a * b; }, x, x, ht::view(&total, ht::shape<1>{1}));
#endif
}
