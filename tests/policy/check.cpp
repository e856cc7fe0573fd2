// SPDX-License-Identifier: MIT
/// \file
/// Policies that pass the checks; tests/compile_fail has those that do not.
#include <halftone/policy/check.hpp>

#include "small_gpt.hpp"

namespace policy_check_tests {

namespace ht = halftone;
using ht::at, ht::bfloat16, ht::float16;

using mine = ht::recipe<ht::amp_bf16, ht::rule<"head", ht::with_output<ht::amp_fp16, float>>>;

static_assert(ht::wide_enough_accum<ht::amp_bf16> && ht::wide_enough_accum<ht::with_accum<ht::amp_fp16, float16>>);
static_assert(!ht::wide_enough_accum<ht::with_accum<ht::full_fp32, bfloat16>>);
// The significand is wide enough but the range is not; and the other way round.
static_assert(!ht::wide_enough_accum<ht::with_accum<ht::amp_bf16, float16>>);
static_assert(!ht::wide_enough_accum<ht::with_accum<ht::amp_fp16, bfloat16>>);
static_assert(ht::check_policy<at<mine, "head">>() && ht::check_policy<ht::inherit>() &&
              ht::check_policy<ht::as_given>());

static_assert(ht::check_policy<ht::tf32>() && ht::keeps_small_updates<ht::tf32>);
static_assert(!ht::storable_roles<ht::with_output<ht::tf32, ht::tfloat32>> &&
              !ht::storable_roles<ht::with_param<ht::tf32, ht::tfloat32>> &&
              !ht::storable_roles<ht::with_accum<ht::tf32, ht::tfloat32>> &&
              !ht::storable_roles<ht::with_accumulate<ht::tf32, ht::tfloat32>> &&
              !ht::storable_roles<ht::with_reduce<ht::tf32, ht::tfloat32>> &&
              !ht::storable_roles<ht::with_state<ht::tf32, ht::tfloat32>>);

// Of a stream only what it adds to the other roles is asked: more than eight bits, storage, and doubles among doubles.
template <class P, class T>
inline constexpr bool may_have_stream = ht::possible_stream<ht::with_stream<P, T>>;
static_assert(may_have_stream<ht::amp_bf16, float> && may_have_stream<ht::full_fp32, bfloat16> &&
              may_have_stream<ht::fp8_hybrid, float> && may_have_stream<ht::amp_bf16, float16> &&
              may_have_stream<ht::full_fp64, double> && ht::possible_stream<ht::full_fp64>);
static_assert(!may_have_stream<ht::tf32, ht::tfloat32> && !may_have_stream<ht::split_fp32, ht::split<bfloat16, 3>> &&
              !may_have_stream<ht::fp8_hybrid, ht::float8_e4m3> && !may_have_stream<ht::amp_bf16, double> &&
              !may_have_stream<ht::full_fp64, float>);
static_assert(ht::check_policy<ht::with_stream<ht::amp_bf16, float>>() &&
              ht::check_policy<at<ht::recipe<ht::with_stream<ht::amp_fp16, float>>, "embed">>());

static_assert(ht::check_policy<ht::split_fp32>() && ht::keeps_small_updates<ht::split_fp32>);
static_assert(ht::check_policy<ht::with_compute<ht::amp_bf16, ht::split<bfloat16, 2>>>());
static_assert(!ht::storable_roles<ht::with_output<ht::split_fp32, ht::split<bfloat16, 3>>> &&
              !ht::storable_roles<ht::with_param<ht::split_fp32, ht::split<bfloat16, 2>>>);
static_assert(!ht::wide_enough_accum<ht::with_accum<ht::split_fp32, bfloat16>>);

static_assert(ht::keeps_small_updates<ht::amp_bf16> && ht::keeps_small_updates<ht::pure_bf16>);
static_assert(!ht::keeps_small_updates<ht::with_param<ht::amp_bf16, bfloat16>>);
static_assert(!ht::keeps_small_updates<ht::with_param<ht::amp_fp16, float16>>);
static_assert(!ht::keeps_small_updates<ht::with_param_rounding<ht::pure_bf16, ht::rounding::nearest_even>>);
static_assert(ht::check_trainable<outline::gpt<mine>>() && ht::check_trainable<outline::gpt<ht::pure_bf16>>());

}  // namespace policy_check_tests
