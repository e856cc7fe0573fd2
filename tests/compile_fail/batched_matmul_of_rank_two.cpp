// SPDX-License-Identifier: MIT
// expect: halftone: batched_matmul takes a, b and c of rank 3, (count, rows, columns)
#include <halftone/kernel.hpp>

namespace ht = halftone;

void products(ht::cpu& device, ht::view<float, 3> a, ht::view<float, 2> weight, ht::view<float, 3> c) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::matmul<ht::full_fp32>(device, ht::as_rows(a), weight, ht::as_rows(c));
#else
    ht::batched_matmul<ht::full_fp32>(device, a, weight, c);
#endif
}
