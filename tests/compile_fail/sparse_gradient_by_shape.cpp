// SPDX-License-Identifier: MIT
// expect: rows(table) gives the rows that were looked up
#include <halftone/memory/gradient_slabs.hpp>
#include <halftone/policy/operations.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

void look(const ht::gradient_slabs& gradients,
          const ht::parameter<ht::storage_signature<ht::amp_bf16, ht::op::sparse_embedding>, 2>& table) {
#if defined(HALFTONE_TEST_RIGHT)
    (void)gradients.rows(table);
#else
    (void)gradients.of(table);
#endif
}
