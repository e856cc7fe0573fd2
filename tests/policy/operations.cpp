// SPDX-License-Identifier: MIT
/// \file
/// What is banned in low precision. tests/autodiff/autocast_types.cpp compares the categories of all operations with PyTorch's.
#include <halftone/policy/operations.hpp>

namespace policy_operations_tests {

namespace ht = halftone;
namespace op = halftone::op;

/// What is banned in low precision is computed in the type of the region where only operands of products are rounded.
template <class Policy, class Result>
constexpr bool has_loss_in =
    std::is_same_v<ht::compute_type<Policy, op::binary_cross_entropy, float, float>, Result> &&
    std::is_same_v<ht::free_output<Policy, op::binary_cross_entropy, float, float>, Result> &&
    std::is_same_v<ht::free_output<Policy, op::binary_cross_entropy, ht::bfloat16, ht::bfloat16>, Result>;
static_assert(has_loss_in<ht::full_fp32, float> && has_loss_in<ht::full_fp64, double>);
static_assert(has_loss_in<ht::tf32, float> && has_loss_in<ht::split_fp32, float>);

}  // namespace policy_operations_tests
