// SPDX-License-Identifier: MIT
// expect: halftone: matmul takes a, b and c of rank 2; flatten leading axes with as_rows, or use batched_matmul
#include <halftone/kernel.hpp>

namespace ht = halftone;

void product(ht::cpu& device, ht::view<float, 3> a, ht::view<float, 2> b, ht::view<float, 3> c) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::matmul<ht::full_fp32>(device, ht::as_rows(a), b, ht::as_rows(c));
#else
    ht::matmul<ht::full_fp32>(device, a, b, c);
#endif
}
