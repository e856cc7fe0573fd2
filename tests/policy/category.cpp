// SPDX-License-Identifier: MIT
/// \file
/// Categories: the types in which each operation computes and that it returns, under each policy and on a bare tape.
#include <cstdint>
#include <type_traits>

#include <halftone/policy/category.hpp>
#include <halftone/policy/model.hpp>
#include <halftone/policy/operations.hpp>

#include "number_types.hpp"

namespace ht = halftone;
namespace op = halftone::op;
using ht::amp_bf16, ht::amp_fp16, ht::full_fp32, ht::as_given;
using ht::bfloat16, ht::float16, ht::free_output, ht::compute_type, ht::accum_type;

template <class A, class B>
inline constexpr bool same = std::is_same_v<A, B>;

// Custom operations, each with another way of stating its rule.
struct my_norm {
    static constexpr const char* name = "my_norm";
    static constexpr ht::category cast_rule = ht::category::fp32;
};
struct my_fp16_only {
    static constexpr const char* name = "my_fp16_only";
    using cast_inputs = float16;
};
struct my_silent {
    static constexpr const char* name = "my_silent";
};
// And one of halftone's operations, with another category.
template <>
struct halftone::operation_category<op::cosh> {
    static constexpr ht::category value = ht::category::as_input;
};

template <class Op>
inline constexpr ht::category category_of = ht::operation_category<Op>::value;
static_assert(category_of<op::matmul> == ht::category::low_precision &&
              category_of<op::embedding> == ht::category::as_input);
static_assert(category_of<my_norm> == ht::category::fp32 && category_of<my_fp16_only> == ht::category::stated);
static_assert(category_of<my_silent> == ht::category::as_input && category_of<op::cosh> == ht::category::as_input);

// Free operations in a region.
static_assert(same<free_output<amp_bf16, op::matmul, float, float>, bfloat16>);
static_assert(same<free_output<amp_fp16, op::linear, bfloat16, float, float>, float16>);
static_assert(same<free_output<full_fp32, op::matmul, bfloat16, bfloat16>, float>);
static_assert(same<free_output<amp_bf16, op::softmax, bfloat16>, float>);
static_assert(same<free_output<amp_fp16, op::sum, float16>, float>);
static_assert(same<free_output<amp_bf16, op::add, bfloat16, bfloat16>, bfloat16>);
static_assert(same<free_output<amp_bf16, op::add, bfloat16, float>, float>);
static_assert(same<free_output<amp_bf16, op::add, bfloat16, float16>, float>);
static_assert(same<free_output<amp_bf16, op::add, float, float>, float>);
static_assert(same<free_output<amp_fp16, op::cat, float16, std::int64_t, float>, float>);
static_assert(same<free_output<amp_bf16, op::gelu, float16>, float16>);
static_assert(same<free_output<amp_bf16, op::embedding, std::int32_t, float>, float>);
static_assert(same<compute_type<amp_bf16, op::linear_cross_entropy, bfloat16, float>, bfloat16>);
static_assert(same<free_output<amp_bf16, op::linear_cross_entropy, bfloat16, float>, float>);
static_assert(same<free_output<amp_bf16, op::cosh, bfloat16>, bfloat16>);
static_assert(same<free_output<full_fp32, op::binary_cross_entropy, float, float>, float>);
static_assert(same<free_output<as_given, op::binary_cross_entropy, float16, float16>, float16>);

// A format for operands only: operations that compute in it read floats and give floats; others never use it.
static_assert(same<compute_type<ht::tf32, op::linear>, ht::tfloat32> && same<accum_type<ht::tf32, op::linear>, float>);
static_assert(same<free_output<ht::tf32, op::matmul, bfloat16, float>, float>);
static_assert(same<compute_type<ht::tf32, op::embedding>, float> &&
              same<compute_type<ht::tf32, op::layer_norm>, float>);
static_assert(same<free_output<ht::tf32, op::add, bfloat16, bfloat16>, bfloat16>);
using three = ht::split<bfloat16, 3>;
static_assert(same<compute_type<ht::split_fp32, op::linear>, three> &&
              same<accum_type<ht::split_fp32, op::linear>, float>);
static_assert(same<ht::input_grad_type<ht::split_fp32, op::linear>, three> &&
              same<ht::weight_grad_type<ht::with_compute<full_fp32, three>, op::linear>, three>);
static_assert(same<free_output<ht::split_fp32, op::matmul, float, float>, float> &&
              same<free_output<ht::split_fp32, op::add, bfloat16, bfloat16>, bfloat16>);
static_assert(same<compute_type<ht::split_fp32, op::layer_norm>, float> &&
              same<compute_type<ht::split_fp32, op::embedding>, float>);

// fp64 is not cast.
static_assert(same<free_output<amp_bf16, op::matmul, double, double>, double>);
static_assert(same<free_output<amp_bf16, op::softmax, double>, double>);
static_assert(same<free_output<amp_bf16, op::add, bfloat16, double>, double>);
static_assert(same<free_output<amp_bf16, my_fp16_only, double>, double>);

// A bare tape keeps the types of the inputs, whatever the operation.
static_assert(same<free_output<as_given, op::matmul, float16, float16>, float16>);
static_assert(same<free_output<as_given, op::softmax, bfloat16>, bfloat16>);
static_assert(same<free_output<as_given, op::add, bfloat16, float>, float>);
static_assert(same<free_output<as_given, my_fp16_only, float>, float>);
static_assert(same<free_output<ht::inherit, op::exp, float16>, float16>);

// custom operations.
static_assert(same<free_output<amp_bf16, my_norm, bfloat16>, float>);
static_assert(same<free_output<amp_bf16, my_fp16_only, float>, float16>);
static_assert(same<free_output<amp_bf16, my_silent, float16>, float16>);

// Layers: no inputs; fp32 where the category says so, else the policy's compute.
static_assert(same<compute_type<amp_bf16, op::linear>, bfloat16> &&
              same<compute_type<amp_bf16, op::embedding>, bfloat16>);
static_assert(same<compute_type<amp_bf16, op::layer_norm>, float> && same<ht::layer_output<amp_bf16>, bfloat16>);
using exact = ht::with_compute<full_fp32, double>;
static_assert(same<compute_type<exact, op::layer_norm>, double> && same<compute_type<exact, op::linear>, double>);
static_assert(same<compute_type<ht::with_compute<full_fp32, wide_range>, op::layer_norm>, double>);

// Eight bits where the operation scales them, otherwise the policy's output type; and copies of weights that every
// operation can read.
using ht::fp8_hybrid, ht::float8_e4m3, ht::float8_e5m2;
static_assert(same<compute_type<fp8_hybrid, op::linear>, float8_e4m3> &&
              same<compute_type<fp8_hybrid, op::mlp>, float8_e4m3>);
static_assert(same<compute_type<fp8_hybrid, op::attention>, bfloat16> &&
              same<compute_type<fp8_hybrid, op::embedding>, bfloat16> &&
              same<compute_type<fp8_hybrid, op::linear_cross_entropy>, bfloat16> &&
              same<compute_type<fp8_hybrid, op::layer_norm>, float>);
static_assert(same<free_output<fp8_hybrid, op::matmul, float, float>, bfloat16> &&
              same<free_output<fp8_hybrid, op::softmax, bfloat16>, float>);
static_assert(same<free_output<ht::with_output<fp8_hybrid, float>, op::matmul, bfloat16>, float>);
static_assert(same<ht::grad_type<fp8_hybrid, op::linear>, float8_e5m2> &&
              same<ht::grad_type<fp8_hybrid, op::attention>, bfloat16>);
static_assert(same<ht::input_grad_type<fp8_hybrid, op::linear>, float8_e5m2> &&
              same<ht::input_grad_type<fp8_hybrid, op::attention>, bfloat16>);
static_assert(same<ht::unscaled_compute<fp8_hybrid>, bfloat16> && same<ht::unscaled_compute<ht::tf32>, ht::tfloat32>);
static_assert(same<ht::storage_signature<fp8_hybrid, op::linear>, ht::storage_signature<amp_bf16, op::linear>> &&
              same<ht::storage_signature<fp8_hybrid, op::embedding>, ht::storage_signature<fp8_hybrid, op::linear>>);
static_assert(!ht::needs_scaling<fp8_hybrid> && ht::needs_scaling<ht::with_output<fp8_hybrid, float16>>);

// Regions may be recipes or places in one.
using mine = ht::recipe<amp_bf16, ht::rule<"head", ht::with_output<full_fp32, double>>>;
static_assert(same<free_output<mine, op::matmul, float, float>, bfloat16>);
static_assert(same<free_output<ht::at<mine, "head">, op::matmul, bfloat16>, float>);
static_assert(same<ht::layer_output<ht::at<mine, "head">>, double>);

// Sums run in `accum`, and never in a type narrower than their terms.
using narrow_sums = ht::with_accum<amp_fp16, float16>;
static_assert(same<accum_type<amp_bf16, op::linear>, float> && same<accum_type<narrow_sums, op::linear>, float16>);
static_assert(same<accum_type<narrow_sums, op::layer_norm>, float> && same<accum_type<exact, op::linear>, double>);
static_assert(same<accum_type<amp_bf16, op::matmul, double, double>, double>);
static_assert(same<accum_type<as_given, op::matmul, bfloat16, bfloat16>, float>);
