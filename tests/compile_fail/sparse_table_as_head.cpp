// SPDX-License-Identifier: MIT
// expect: halftone: a table with a sparse gradient (ht::nn::sparse_embedding) can only be looked up
// expect: take ht::nn::embedding, whose table has a dense gradient
#include <halftone/autodiff/op/linear.hpp>
#include <halftone/kernel.hpp>
#include <halftone/nn/sparse_embedding.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

// Logits by a head that shares the table.
void logits(ht::tape<ht::cpu>& tape, ht::nn::sparse_embedding<ht::full_fp32>& items,
            const ht::const_view<std::int32_t, 2>& ids) {
    const auto x = items(tape, ids);
#if defined(HALFTONE_TEST_RIGHT)
    (void)x;
#else
    (void)ht::linear<ht::layer_roles<ht::full_fp32, ht::op::linear, ht::tape<ht::cpu>&>>(tape, x, items.table,
                                                                                         ht::absent{});
#endif
}
