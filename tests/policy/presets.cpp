// SPDX-License-Identifier: MIT
/// \file
/// Roles, presets, transforms, and when a loss scale is needed.
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/policy/presets.hpp>
#include <halftone/policy/roles.hpp>

#include "number_types.hpp"

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
//                                       param, compute, output, accum, grad, accumulate, reduce, state
static_assert(has_roles<ht::full_fp32,             f32, f32, f32, f32, f32, f32, f32, f32>);
static_assert(has_roles<ht::amp_bf16,              f32, b16, b16, f32, b16, f32, f32, f32>);
static_assert(has_roles<ht::amp_fp16,              f32, f16, f16, f32, f16, f32, f32, f32>);
static_assert(has_roles<ht::pure_bf16,             b16, b16, b16, f32, b16, f32, f32, f32>);
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
// clang-format on
static_assert(ht::with_param_rounding<base, ht::rounding::stochastic>::param_rounding == ht::rounding::stochastic);
static_assert(ht::with_state<ht::pure_bf16, bfloat16>::param_rounding == ht::rounding::stochastic);

using twice = ht::with_param<ht::with_compute<ht::full_fp32, float16>, bfloat16>;
static_assert(has_roles<twice, bfloat16, float16, float, float, float, float, float, float>);

static_assert(ht::precision_policy<ht::full_fp32> && ht::precision_policy<ht::amp_bf16>);
static_assert(ht::precision_policy<ht::amp_fp16> && ht::precision_policy<ht::pure_bf16> && ht::precision_policy<twice>);
static_assert(!ht::precision_policy<float> && !ht::precision_policy<ht::inherit> &&
              !ht::precision_policy<ht::as_given>);
static_assert(ht::policy_marker<ht::inherit> && ht::policy_marker<ht::as_given> && !ht::policy_marker<ht::amp_bf16>);

struct counts_in_int : ht::full_fp32 {
    using compute = int;
};
struct without_rounding {
    using param = float;
    using compute = float;
    using output = float;
    using accum = float;
    using grad = float;
    using accumulate = float;
    using reduce = float;
    using state = float;
};
static_assert(!ht::precision_policy<counts_in_int> && !ht::precision_policy<without_rounding>);
struct by_hand : without_rounding {
    static constexpr auto param_rounding = ht::rounding::toward_zero;
};
static_assert(ht::precision_policy<by_hand>);

static_assert(!ht::needs_scaling<ht::full_fp32> && !ht::needs_scaling<ht::amp_bf16> &&
              !ht::needs_scaling<ht::pure_bf16>);
static_assert(ht::needs_scaling<ht::amp_fp16>);
static_assert(ht::needs_scaling<ht::with_output<ht::full_fp32, float16>>);
static_assert(ht::needs_scaling<ht::with_grad<ht::full_fp32, float16>>);
static_assert(!ht::needs_scaling<ht::with_compute<ht::full_fp32, float16>>);  // operands alone pass no gradient on
static_assert(ht::needs_scaling<ht::with_grad<ht::amp_bf16, quarter>>);
static_assert(!ht::needs_scaling<ht::with_grad<ht::amp_bf16, float24>>);
static_assert(!ht::needs_scaling<ht::inherit> && !ht::needs_scaling<ht::as_given>);
static_assert(ht::narrow_range<float16> && ht::narrow_range<quarter>);
static_assert(!ht::narrow_range<float> && !ht::narrow_range<bfloat16> && !ht::narrow_range<wide_range>);
