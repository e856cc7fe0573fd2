// SPDX-License-Identifier: MIT
/// \file
/// The usual policies (presets), and the transforms that change one role of a policy.
///
///     using mine = ht::with_output<ht::amp_bf16, float>;          // logits in fp32, say
///     struct same : ht::amp_bf16 { using output = float; };       // the same by hand
#pragma once

#include <halftone/config.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/block_format.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/split.hpp>
#include <halftone/number/tfloat32.hpp>
#include <halftone/policy/roles.hpp>
#include <halftone/policy/scaling.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Everything in fp32: the baseline of comparisons.
struct full_fp32 {
    using param = float;
    using compute = float;
    using output = float;
    using accum = float;
    using grad = float;
    using accumulate = float;
    using reduce = float;
    using state = float;
    using stream = float;
    static constexpr rounding param_rounding = rounding::nearest_even;
};

/// Everything in fp64, computed by plain loops: for checking gradients of whole models against finite differences, not
/// for training.
struct full_fp64 : full_fp32 {
    using param = double;
    using compute = double;
    using output = double;
    using accum = double;
    using grad = double;
    using accumulate = double;
    using reduce = double;
    using state = double;
    using stream = double;
};

/// bf16 products and activations over fp32 masters, sums, residual stream, gradient buffers and moments. Needs no loss
/// scale.
struct amp_bf16 : full_fp32 {
    using compute = bfloat16;
    using output = bfloat16;
    using grad = bfloat16;
};

/// fp16 products and activations over fp32 masters, sums, residual stream, gradient buffers and moments. Needs a loss scale
/// (Micikevicius et al. 2018).
struct amp_fp16 : full_fp32 {
    using compute = float16;
    using output = float16;
    using grad = float16;
};

/// Parameters in bf16 without a master. Rounding to nearest would lose every update smaller than half a step of bf16;
/// stochastic rounding keeps updates on average (Gupta et al. 2015). Gradient buffers and moments stay fp32;
/// with_accumulate and with_state change that.
struct pure_bf16 : amp_bf16 {
    using param = bfloat16;
    using stream = bfloat16;
    static constexpr rounding param_rounding = rounding::stochastic;
};

/// fp32 everywhere, except that the operands of products, gradients among them, are rounded to 11 bits as they are
/// read, as tensor cores do with floats (PyTorch: torch.backends.cuda.matmul.allow_tf32). Takes the memory of
/// full_fp32; needs no loss scale.
struct tf32 : full_fp32 {
    using compute = tfloat32;
    using grad = tfloat32;
};

/// full_fp32 for processors with matrix units: the operands of products, gradients among them, are split into three
/// bfloat16 each, which AMX multiplies faster than vector units multiply floats, with an error no larger than theirs
/// (kernel/matmul/cpu/unit/split.hpp). Without AMX, on GPUs and in attention the bits are those of full_fp32. Takes the
/// memory of full_fp32; needs no loss scale (Henry, Tang and Heinecke 2019).
struct split_fp32 : full_fp32 {
    using compute = split<bfloat16, 3>;
    using grad = split<bfloat16, 3>;
};

/// amp_bf16 whose linear layers multiply 8-bit operands: activations and weights as float8_e4m3, the incoming gradient
/// of backward products as float8_e5m2, each tensor with its scale (policy/scaling.hpp); sums in fp32, results in bf16.
/// Operations that do not scale operands (attention's core, the loss, free products) compute in bf16. Needs no loss
/// scale (Micikevicius et al. 2022).
struct fp8_hybrid : amp_bf16 {
    using compute = float8_e4m3;
    using grad = float8_e5m2;
    using stream = bfloat16;
    using scaling = current_scaling<>;
};

namespace detail {

template <class P>
concept has_roles = precision_policy<P>;

/// Only an fp32 master with a bf16 copy can be split.
template <class P>
concept splittable = std::same_as<typename P::param, float> &&
    std::same_as<std::conditional_t<eight_bit<typename P::compute>, typename P::output, typename P::compute>, bfloat16>;

// A base of every transform: a transform of something that is no policy fails here, with a message.
template <class P>
struct policy_with_roles : P {
    static_assert(check_roles<P>());
};
// A base of those that change a role's type to T.
template <class P, class T>
struct policy_with_role : policy_with_roles<P> {
    static_assert(check_number<T>());
};

}  // namespace detail

/// P with parameters (masters) of type T.
template <class P, class T>
struct with_param : detail::policy_with_role<P, T> {
    using param = T;
};

/// P with updated parameters rounded to `param` by Mode.
template <class P, rounding Mode>
struct with_param_rounding : detail::policy_with_roles<P> {
    static constexpr rounding param_rounding = Mode;
};

/// P with the copies that kernels read rounded from their masters by Mode: not stochastic.
template <class P, rounding Mode>
struct with_copy_rounding : detail::policy_with_roles<P> {
    static_assert(Mode != rounding::stochastic,
                  "halftone: with_copy_rounding: copies are made again from the same masters, and have to come out the "
                  "same: round them to the nearest");
    static constexpr rounding copy_rounding = Mode;
};

/// P with masters split into the bf16 copy that kernels read and the 16 bits that the copy lacks: the same numbers in
/// four bytes a parameter, not six. Copies are rounded to nearest with ties away from zero; a run has the same bits as
/// under with_copy_rounding<P, rounding::nearest_away>. Operations that compute in fp32, such as norms, have no copies,
/// and their masters stay whole.
template <class P>
struct with_split_master : detail::policy_with_roles<P> {
    static_assert(
        !detail::has_roles<P> || detail::splittable<P>,
        "halftone: with_split_master: an fp32 master (role `param`) splits into the bf16 copy that products read (role "
        "`compute`) and its remainder, and no other does: take ht::with_split_master<ht::amp_bf16>");
    static constexpr master_layout masters = master_layout::split;
};

/// P in whose autocast regions free operations have their categories by PyTorch's list for CPUs, as in
/// torch.autocast("cpu"), on every device. Layers compute as under P.
template <class P>
struct with_cpu_lists : detail::policy_with_roles<P> {
    static constexpr autocast_lists categories = autocast_lists::cpu;
};

/// P with operands of products in T (role `compute`).
template <class P, class T>
struct with_compute : detail::policy_with_role<P, T> {
    using compute = T;
};

/// P with results of layers in T (role `output`).
template <class P, class T>
struct with_output : detail::policy_with_role<P, T> {
    using output = T;
};

/// P with the residual stream, the sum x + f(x) that blocks pass on, in T (role `stream`); results of layers that are not
/// added to it keep the role `output`. With float it is PyTorch's stream under autocast.
template <class P, class T>
struct with_stream : detail::policy_with_role<P, T> {
    using stream = T;
};

/// P with the weights of linear layers in blocks of a format, ht::nf4 or ht::q8_0 (role `copy`): frozen weights take so many bits,
/// and products read them as `compute`.
///
///     using qlora = ht::lora<ht::amp_bf16, ht::with_copy<ht::pure_bf16, ht::nf4>>;
template <class P, class Format>
struct with_copy : detail::policy_with_roles<P> {
    static_assert(block_format<Format>,
                  "halftone: with_copy: the format of copies is no block format; take ht::nf4 or ht::q8_0, or see "
                  "number/block_format.hpp for one of your own");
    using copy = Format;
};

/// P with sums in T (role `accum`).
template <class P, class T>
struct with_accum : detail::policy_with_role<P, T> {
    using accum = T;
};

/// P with the incoming gradient of backward products read as T (role `grad`).
template <class P, class T>
struct with_grad : detail::policy_with_role<P, T> {
    using grad = T;
};

/// P with operands in T of the products that compute gradients of layers' inputs (role `input_grad`).
template <class P, class T>
struct with_input_grad : detail::policy_with_role<P, T> {
    using input_grad = T;
};

/// P with operands in T of the products that compute gradients of layers' weights (role `weight_grad`).
template <class P, class T>
struct with_weight_grad : detail::policy_with_role<P, T> {
    using weight_grad = T;
};

/// P with gradient buffers in T (role `accumulate`).
template <class P, class T>
struct with_accumulate : detail::policy_with_role<P, T> {
    using accumulate = T;
};

/// P with gradients in T as they are sent between processes (role `reduce`).
template <class P, class T>
struct with_reduce : detail::policy_with_role<P, T> {
    using reduce = T;
};

/// P with the optimizer's moments in T (role `state`).
template <class P, class T>
struct with_state : detail::policy_with_role<P, T> {
    using state = T;
};

/// P with 8-bit operands scaled by S: current_scaling<...> or delayed_scaling<...>.
template <class P, class S>
struct with_scaling : detail::policy_with_roles<P> {
    static_assert(detail::tensor_scaling<S>,
                  "halftone: with_scaling: this is not a scaling; take ht::current_scaling<> or ht::delayed_scaling<>");
    using scaling = S;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
