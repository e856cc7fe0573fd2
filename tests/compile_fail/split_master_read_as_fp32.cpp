// SPDX-License-Identifier: MIT
// expect: halftone: this operation reads a parameter in a wider type than its bf16 copy, and its master is split (ht::with_split_master)
#include <halftone/autodiff/engine/operation.hpp>

namespace ht = halftone;

using mine = ht::storage_signature<ht::at<ht::with_split_master<ht::amp_bf16>, "embed">, ht::op::embedding>;
#if defined(HALFTONE_TEST_RIGHT)
using compute = ht::bfloat16;
#else
using compute = float;
#endif
void read(const ht::parameter<mine, 2>& table) { static_cast<void>(ht::detail::values_for<compute>(table)); }
