// SPDX-License-Identifier: MIT
/// \file
/// What is banned in low precision, and the categories of operations that PyTorch does not have as one; tests/autodiff/autocast_types.cpp
/// compares the others with PyTorch's.
#include <halftone/policy/operations.hpp>

namespace policy_operations_tests {

namespace ht = halftone;
namespace op = halftone::op;

template <ht::category Category, class... Ops>
inline constexpr bool all_are = ((ht::operation_category<Ops>::value == Category) && ...);
static_assert(all_are<ht::category::as_input, op::cast, op::map, op::rotary, op::swiglu, op::geglu, op::sparse_embedding>);
static_assert(all_are<ht::category::low_precision, op::mlp> && all_are<ht::category::low_to_fp32, op::linear_cross_entropy>);

/// An operation of a program's own that takes the category of one of the library's is of no kind that the library knows.
struct own : op::layer_norm {
    static constexpr const char* name = "own";
};
static_assert(ht::operation_category<own>::value == ht::operation_category<op::layer_norm>::value);
static_assert(std::is_same_v<ht::detail::kind_of<own>, ht::operation_kind::other>);
static_assert(std::is_same_v<ht::detail::kind_of<op::layer_norm>, ht::operation_kind::layer_norm>);
struct own_norm : ht::operation_kind::norm {};
static_assert(std::is_same_v<ht::detail::kind_of<own_norm>, ht::operation_kind::norm>);

/// What is banned in low precision is computed in the type of the region where only operands of products are rounded.
template <class Policy, class Result>
constexpr bool has_loss_in =
    std::is_same_v<ht::compute_type<Policy, op::binary_cross_entropy, float, float>, Result> &&
    std::is_same_v<ht::free_output<Policy, op::binary_cross_entropy, float, float>, Result> &&
    std::is_same_v<ht::free_output<Policy, op::binary_cross_entropy, ht::bfloat16, ht::bfloat16>, Result>;
static_assert(has_loss_in<ht::full_fp32, float> && has_loss_in<ht::full_fp64, double>);
static_assert(has_loss_in<ht::tf32, float> && has_loss_in<ht::split_fp32, float>);

}  // namespace policy_operations_tests
