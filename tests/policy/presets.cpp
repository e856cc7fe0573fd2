// SPDX-License-Identifier: MIT
/// \file
/// Presets and transforms: which type each role has.
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/policy/presets.hpp>
#include <halftone/policy/roles.hpp>

#include "number_types.hpp"

namespace policy_presets_tests {

namespace ht = halftone;
using ht::bfloat16, ht::float16;

template <class P, class Param, class Compute, class Output, class Accum, class Grad, class Accumulate, class Reduce,
          class State>
inline constexpr bool has_roles =
    std::is_same_v<typename P::param, Param>&& std::is_same_v<typename P::compute, Compute>&&
        std::is_same_v<typename P::output, Output>&& std::is_same_v<typename P::accum, Accum>&&
            std::is_same_v<typename P::grad, Grad>&& std::is_same_v<typename P::accumulate, Accumulate>&&
                std::is_same_v<typename P::reduce, Reduce>&& std::is_same_v<typename P::state, State>;

// clang-format off
using f32 = float;
using b16 = bfloat16;
using f16 = float16;
using t32 = ht::tfloat32;
using s32 = ht::split<b16, 3>;
//                                       param, compute, output, accum, grad, accumulate, reduce, state
static_assert(has_roles<ht::full_fp32,             f32, f32, f32, f32, f32, f32, f32, f32>);
static_assert(has_roles<ht::amp_bf16,              f32, b16, b16, f32, b16, f32, f32, f32>);
static_assert(has_roles<ht::amp_fp16,              f32, f16, f16, f32, f16, f32, f32, f32>);
static_assert(has_roles<ht::pure_bf16,             b16, b16, b16, f32, b16, f32, f32, f32>);
static_assert(has_roles<ht::tf32,                  f32, t32, f32, f32, t32, f32, f32, f32>);
static_assert(has_roles<ht::split_fp32,            f32, s32, f32, f32, s32, f32, f32, f32>);
static_assert(!ht::needs_scaling<ht::tf32> && !ht::needs_scaling<ht::split_fp32>);
static_assert(ht::full_fp32::param_rounding == ht::rounding::nearest_even);
static_assert(ht::amp_bf16::param_rounding == ht::rounding::nearest_even);
static_assert(ht::pure_bf16::param_rounding == ht::rounding::stochastic);

// Each transform changes the role it names and no other. `quarter` is in no preset.
using base = ht::amp_bf16;
using q = quarter;
static_assert(has_roles<ht::with_param<base, q>,   q,   b16, b16, f32, b16, f32, f32, f32>);
static_assert(has_roles<ht::with_compute<base, q>, f32, q,   b16, f32, b16, f32, f32, f32>);
static_assert(has_roles<ht::with_output<base, q>,  f32, b16, q,   f32, b16, f32, f32, f32>);
static_assert(has_roles<ht::with_accum<base, q>,   f32, b16, b16, q,   b16, f32, f32, f32>);
static_assert(has_roles<ht::with_grad<base, q>,    f32, b16, b16, f32, q,   f32, f32, f32>);
static_assert(has_roles<ht::with_accumulate<base, q>, f32, b16, b16, f32, b16, q,   f32, f32>);
static_assert(has_roles<ht::with_reduce<base, q>,  f32, b16, b16, f32, b16, f32, q,   f32>);
static_assert(has_roles<ht::with_state<base, q>,   f32, b16, b16, f32, b16, f32, f32, q>);
static_assert(has_roles<ht::with_stream<base, q>,  f32, b16, b16, f32, b16, f32, f32, f32>);
// clang-format on
static_assert(std::is_same_v<ht::with_stream<base, q>::stream, q>);
static_assert(ht::with_param_rounding<base, ht::rounding::stochastic>::param_rounding == ht::rounding::stochastic);
static_assert(ht::with_state<ht::pure_bf16, bfloat16>::param_rounding == ht::rounding::stochastic);

using twice = ht::with_param<ht::with_compute<ht::full_fp32, float16>, bfloat16>;
static_assert(has_roles<twice, bfloat16, float16, float, float, float, float, float, float>);

}  // namespace policy_presets_tests
