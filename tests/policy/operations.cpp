// SPDX-License-Identifier: MIT
/// \file
/// Each operation is in the category that PyTorch gives it.
#include <halftone/policy/operations.hpp>

namespace policy_operations_tests {

namespace ht = halftone;
namespace op = halftone::op;

// PyTorch's lists (autocast_mode.h, CUDA), as far as the operations exist here.
template <ht::category Category, class... Ops>
inline constexpr bool all_are = ((ht::operation_category<Ops>::value == Category) && ...);
static_assert(all_are<ht::category::low_precision, op::matmul, op::linear, op::attention, op::prelu, op::conv2d>);
static_assert(all_are<ht::category::fp32, op::exp, op::expm1, op::log, op::log1p, op::log2, op::log10, op::pow,
                      op::reciprocal, op::rsqrt, op::sinh, op::cosh, op::tan, op::softplus, op::layer_norm,
                      op::rms_norm, op::softmax, op::log_softmax, op::cross_entropy,
                      op::mse_loss, op::l1_loss, op::smooth_l1_loss, op::huber_loss,
                      op::binary_cross_entropy_with_logits, op::sum, op::norm>);
static_assert(all_are<ht::category::promote, op::addcmul, op::addcdiv, op::atan2, op::dot, op::scatter_add>);
static_assert(all_are<ht::category::as_input, op::gather, op::index_select, op::take_along_dim, op::index_add, op::where,
                      op::masked_fill, op::tril, op::triu, op::erf, op::gelu_erf>);
static_assert(all_are<ht::category::as_input, op::map, op::add, op::sub, op::mul, op::div, op::neg, op::abs, op::sqrt,
                      op::tanh, op::cat, op::stack, op::cast, op::leaky_relu, op::sigmoid, op::relu, op::gelu, op::silu,
                      op::mean, op::dropout, op::embedding, op::rotary, op::glu, op::swiglu, op::geglu>);
static_assert(all_are<ht::category::fp32, op::cumsum, op::logsumexp, op::prod>);
static_assert(all_are<ht::category::as_input, op::var, op::std_dev, op::amax, op::amin>);
static_assert(all_are<ht::category::as_input, op::permute, op::transpose, op::slice, op::select, op::split, op::flip,
                      op::expand>);
static_assert(all_are<ht::category::as_input, op::max_pool2d, op::avg_pool2d, op::adaptive_avg_pool2d, op::batch_norm>);
static_assert(all_are<ht::category::fp32, op::group_norm>);
static_assert(all_are<ht::category::banned, op::binary_cross_entropy>);

/// What is banned in low precision is computed in the type of the region where only operands of products are rounded.
template <class Policy, class Result>
constexpr bool has_loss_in =
    std::is_same_v<ht::compute_type<Policy, op::binary_cross_entropy, float, float>, Result> &&
    std::is_same_v<ht::free_output<Policy, op::binary_cross_entropy, float, float>, Result> &&
    std::is_same_v<ht::free_output<Policy, op::binary_cross_entropy, ht::bfloat16, ht::bfloat16>, Result>;
static_assert(has_loss_in<ht::full_fp32, float> && has_loss_in<ht::full_fp64, double>);
static_assert(has_loss_in<ht::tf32, float> && has_loss_in<ht::split_fp32, float>);

}  // namespace policy_operations_tests
