// SPDX-License-Identifier: MIT
/// \file
/// The tags of halftone's operations, in `halftone::op`: each has a name and states its autocast category.
///
///     static_assert(ht::operation_category<ht::op::layer_norm>::value == ht::category::fp32);
///
/// Operations that PyTorch's autocast does not list (add, gelu, mean, embedding, ...) run in their input's type, as in
/// PyTorch. Those with another category in its list for CPUs state that too, as `cpu_cast_rule`.
#pragma once

#include <halftone/config.hpp>
#include <halftone/policy/category.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <category Category>
struct in_category {
    static constexpr category cast_rule = Category;
};
/// In one category by PyTorch's list for CUDA, and in another by that for CPUs.
template <category Cuda, category Cpu>
struct in_categories : in_category<Cuda> {
    static constexpr category cpu_cast_rule = Cpu;
};

}  // namespace detail

namespace op {

using low_precision = detail::in_category<category::low_precision>;
using fp32 = detail::in_category<category::fp32>;
using promote = detail::in_category<category::promote>;
using as_input = detail::in_category<category::as_input>;
using fp32_on_cuda = detail::in_categories<category::fp32, category::as_input>;
using promote_on_cuda = detail::in_categories<category::promote, category::as_input>;
using promote_on_cpu = detail::in_categories<category::as_input, category::promote>;

// clang-format off
struct matmul : low_precision { static constexpr const char* name = "matmul"; };
struct prelu : low_precision { static constexpr const char* name = "prelu"; };
struct linear : low_precision {
    static constexpr const char* name = "linear";
    static constexpr bool has_weights = true;
    static constexpr bool scales_operands = true;
};
struct mlp : low_precision {  // two `linear`; the category of op::linear holds for it
    static constexpr const char* name = "mlp";
    static constexpr bool has_weights = true;
    static constexpr bool scales_operands = true;
};
struct conv2d : low_precision {
    static constexpr const char* name = "conv2d";
    static constexpr bool has_weights = true;
};
struct attention : low_precision { static constexpr const char* name = "attention"; };

struct linear_cross_entropy : detail::in_category<category::low_to_fp32> {
    static constexpr const char* name = "linear_cross_entropy";
    static constexpr bool has_weights = true;
};

struct layer_norm : fp32_on_cuda { static constexpr const char* name = "layer_norm"; };
struct rms_norm : fp32_on_cuda { static constexpr const char* name = "rms_norm"; };
struct softmax : fp32_on_cuda { static constexpr const char* name = "softmax"; };
struct log_softmax : fp32_on_cuda { static constexpr const char* name = "log_softmax"; };
struct cross_entropy : fp32 { static constexpr const char* name = "cross_entropy"; };
struct mse_loss : fp32 { static constexpr const char* name = "mse_loss"; };
struct l1_loss : fp32 { static constexpr const char* name = "l1_loss"; };
struct smooth_l1_loss : fp32 { static constexpr const char* name = "smooth_l1_loss"; };
struct huber_loss : fp32 { static constexpr const char* name = "huber_loss"; };
struct binary_cross_entropy_with_logits : fp32 {
    static constexpr const char* name = "binary_cross_entropy_with_logits";
};
struct exp : fp32_on_cuda { static constexpr const char* name = "exp"; };
struct expm1 : fp32_on_cuda { static constexpr const char* name = "expm1"; };
struct log : fp32_on_cuda { static constexpr const char* name = "log"; };
struct log1p : fp32_on_cuda { static constexpr const char* name = "log1p"; };
struct log2 : fp32_on_cuda { static constexpr const char* name = "log2"; };
struct log10 : fp32_on_cuda { static constexpr const char* name = "log10"; };
struct pow : fp32_on_cuda { static constexpr const char* name = "pow"; };
struct reciprocal : fp32_on_cuda { static constexpr const char* name = "reciprocal"; };
struct rsqrt : fp32_on_cuda { static constexpr const char* name = "rsqrt"; };
struct softplus : fp32_on_cuda { static constexpr const char* name = "softplus"; };
struct sinh : fp32_on_cuda { static constexpr const char* name = "sinh"; };
struct cosh : fp32_on_cuda { static constexpr const char* name = "cosh"; };
struct tan : fp32_on_cuda { static constexpr const char* name = "tan"; };
struct sum : fp32_on_cuda { static constexpr const char* name = "sum"; };
struct norm : fp32_on_cuda { static constexpr const char* name = "norm"; };

struct addcmul : promote_on_cuda { static constexpr const char* name = "addcmul"; };
struct addcdiv : promote_on_cuda { static constexpr const char* name = "addcdiv"; };
struct atan2 : promote_on_cuda { static constexpr const char* name = "atan2"; };
struct dot : promote_on_cuda { static constexpr const char* name = "dot"; };
struct cat : promote_on_cpu { static constexpr const char* name = "cat"; };
struct stack : promote_on_cpu { static constexpr const char* name = "stack"; };

struct scatter_add : promote_on_cuda { static constexpr const char* name = "scatter_add"; };
struct gather : as_input { static constexpr const char* name = "gather"; };
struct index_select : as_input { static constexpr const char* name = "index_select"; };
struct take_along_dim : as_input { static constexpr const char* name = "take_along_dim"; };
struct index_add : as_input { static constexpr const char* name = "index_add"; };
struct where : as_input { static constexpr const char* name = "where"; };
struct masked_fill : as_input { static constexpr const char* name = "masked_fill"; };
struct tril : as_input { static constexpr const char* name = "tril"; };
struct triu : as_input { static constexpr const char* name = "triu"; };

struct permute : as_input { static constexpr const char* name = "permute"; };
struct transpose : as_input { static constexpr const char* name = "transpose"; };
struct slice : as_input { static constexpr const char* name = "slice"; };
struct select : as_input { static constexpr const char* name = "select"; };
struct split : as_input { static constexpr const char* name = "split"; };
struct flip : as_input { static constexpr const char* name = "flip"; };
struct expand : as_input { static constexpr const char* name = "expand"; };

struct cast : as_input { static constexpr const char* name = "cast"; };
struct map : as_input { static constexpr const char* name = "map"; };
struct add : as_input { static constexpr const char* name = "add"; };
struct sub : as_input { static constexpr const char* name = "sub"; };
struct mul : as_input { static constexpr const char* name = "mul"; };
struct div : as_input { static constexpr const char* name = "div"; };
struct neg : as_input { static constexpr const char* name = "neg"; };
struct abs : as_input { static constexpr const char* name = "abs"; };
struct sqrt : as_input { static constexpr const char* name = "sqrt"; };
struct tanh : as_input { static constexpr const char* name = "tanh"; };
struct sigmoid : as_input { static constexpr const char* name = "sigmoid"; };
struct relu : as_input { static constexpr const char* name = "relu"; };
struct gelu : as_input { static constexpr const char* name = "gelu"; };
struct gelu_erf : as_input { static constexpr const char* name = "gelu_erf"; };
struct erf : as_input { static constexpr const char* name = "erf"; };
struct leaky_relu : as_input { static constexpr const char* name = "leaky_relu"; };
struct silu : as_input { static constexpr const char* name = "silu"; };
struct mean : as_input { static constexpr const char* name = "mean"; };
struct dropout : as_input { static constexpr const char* name = "dropout"; };
struct embedding : as_input { static constexpr const char* name = "embedding"; };
struct sparse_embedding : as_input {
    static constexpr const char* name = "sparse_embedding";
    static constexpr bool gradient_is_sparse = true;  // its parameters' gradient is held by rows
};

// Reductions along axes other than sum and mean.
struct cumsum : fp32_on_cuda { static constexpr const char* name = "cumsum"; };
struct logsumexp : fp32_on_cuda { static constexpr const char* name = "logsumexp"; };
struct var : as_input { static constexpr const char* name = "var"; };
struct std_dev : as_input { static constexpr const char* name = "std"; };
struct amax : as_input { static constexpr const char* name = "amax"; };
struct amin : as_input { static constexpr const char* name = "amin"; };
struct prod : fp32 { static constexpr const char* name = "prod"; };
struct rotary : as_input { static constexpr const char* name = "rotary"; };
struct glu : as_input { static constexpr const char* name = "glu"; };
struct swiglu : as_input { static constexpr const char* name = "swiglu"; };
struct geglu : as_input { static constexpr const char* name = "geglu"; };

// Images. Normalisation with a batch's statistics keeps its input's type and computes in float whatever that is.
struct batch_norm : as_input { static constexpr const char* name = "batch_norm"; };
struct group_norm : fp32_on_cuda { static constexpr const char* name = "group_norm"; };
struct max_pool2d : as_input { static constexpr const char* name = "max_pool2d"; };
struct avg_pool2d : as_input { static constexpr const char* name = "avg_pool2d"; };
struct adaptive_avg_pool2d : as_input { static constexpr const char* name = "adaptive_avg_pool2d"; };

struct binary_cross_entropy : detail::in_categories<category::banned, category::fp32> {
    static constexpr const char* name = "binary_cross_entropy";
    static constexpr bool has_logits_form = true;  // binary_cross_entropy_with_logits, which does not overflow
};

// clang-format on

}  // namespace op

namespace detail {

// Op is a template parameter so that its category is read only where this is used, after users may have specialised it.
template <class Compute, class Op = op::linear_cross_entropy>
struct linear_loss_given : result<operation_category<Op>::value, Compute> {};
/// The type of the loss of a layer that computes in Compute: decided by the operation's category, float unless a user
/// has specialised that.
template <class Compute>
using linear_loss = storage_of<typename linear_loss_given<Compute>::type>;

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
