// SPDX-License-Identifier: MIT
/// \file
/// What a policy is, and when a loss scale is needed.
#include <type_traits>

#include <halftone/policy/presets.hpp>
#include <halftone/policy/roles.hpp>

#include "number_types.hpp"

namespace policy_roles_tests {

namespace ht = halftone;
using ht::bfloat16, ht::float16;

static_assert(ht::precision_policy<ht::full_fp32> && ht::precision_policy<ht::amp_bf16>);
static_assert(ht::precision_policy<ht::amp_fp16> && ht::precision_policy<ht::pure_bf16>);
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
static_assert(ht::needs_scaling<ht::with_stream<ht::full_fp32, float16>> &&
              ht::needs_scaling<ht::with_stream<ht::amp_fp16, float>> &&
              !ht::needs_scaling<ht::with_stream<ht::amp_bf16, float>>);
static_assert(ht::needs_scaling<ht::with_grad<ht::full_fp32, float16>>);
static_assert(!ht::needs_scaling<ht::with_compute<ht::full_fp32, float16>>);  // operands alone pass no gradient on
static_assert(ht::needs_scaling<ht::with_grad<ht::amp_bf16, quarter>>);
static_assert(!ht::needs_scaling<ht::with_grad<ht::amp_bf16, float24>>);
static_assert(!ht::needs_scaling<ht::inherit> && !ht::needs_scaling<ht::as_given>);
static_assert(ht::narrow_range<float16> && ht::narrow_range<quarter>);
static_assert(!ht::narrow_range<float> && !ht::narrow_range<bfloat16> && !ht::narrow_range<wide_range>);

// The residual stream is `output` unless a policy states it.
template <class P, class T>
inline constexpr bool has_stream = std::is_same_v<ht::detail::stream_of<P>, T>;
static_assert(has_stream<by_hand, float> && has_stream<ht::with_output<by_hand, float16>, float16>);
static_assert(has_stream<ht::amp_bf16, float> && has_stream<ht::amp_fp16, float> && has_stream<ht::full_fp32, float> &&
              has_stream<ht::tf32, float> && has_stream<ht::split_fp32, float> && has_stream<ht::full_fp64, double>);
static_assert(has_stream<ht::pure_bf16, bfloat16> && has_stream<ht::fp8_hybrid, bfloat16>);
static_assert(has_stream<ht::with_stream<ht::amp_bf16, bfloat16>, bfloat16> &&
              has_stream<ht::with_output<ht::pure_bf16, float>, bfloat16>);

}  // namespace policy_roles_tests
