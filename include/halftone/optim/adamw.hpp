// SPDX-License-Identifier: MIT
/// \file
/// AdamW (Loshchilov and Hutter 2019) over a model's parameters, as torch.optim.AdamW computes it.
///
///     ht::adamw optimizer{device, model, {.lr = 3e-4f, .weight_decay = 0.1f},
///                         {{"*.norm", {.weight_decay = 0}}, {"h.0", ht::frozen}}};
///     optimizer.step(grads);               // one read-write pass, 30 bytes a parameter in fp32 with a 16-bit copy
///
/// The device may be any whose kernels the program includes: <halftone/kernel.hpp> has those of ht::cpu,
/// <halftone/cuda.cuh> those of ht::cuda.
///
/// Numeric contract: kernel/optimizer_step/optimizer_step.hpp has it. A step whose gradients are not finite, or whose squares
/// would not be, changes nothing.
///
/// A parameter that no backward pass of the window reached stays as it is: it neither decays nor moves on, nor counts
/// the step. Its bias corrections are those of its own steps.
///
/// Of a table with a sparse gradient (nn/sparse_embedding.hpp) a step changes the rows that were looked up in its
/// window, and no others: a row that was not keeps its values and its moments, where AdamW over a dense gradient would
/// decay both and go on moving it. Rows of every step have the bits of a dense gradient. torch.optim.SparseAdam is lazy
/// in this way, too; it has no decay, which here is decoupled and of the rows that are changed, and adds epsilon before
/// the bias is corrected.
#pragma once

#include <halftone/kernel/optimizer_step/rule/adamw.hpp>
#include <halftone/optim/rule_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// AdamW's rates, as torch.optim.AdamW has them.
struct adamw_options {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 1e-2;
    std::uint64_t seed = 0;  ///< of stochastic rounding, where the policy asks for it
    double ema_decay = 0;    ///< of the average of parameters that is kept beside them (optim/average.hpp); 0: none is
};

/// AdamW over a model's parameters. It refers to device and model, which must live longer.
template <class Device, class Model>
class adamw : public detail::rule_optimizer<Device, Model, kernel::adamw_rule> {
    using base = detail::rule_optimizer<Device, Model, kernel::adamw_rule>;

  public:
    /// Takes memory for two moments a parameter. Call it before accumulators are made where groups freeze parameters.
    /// Throws argument_error for options out of range and for a group that names no parameter, state_error before the
    /// store's commit, out_of_memory.
    adamw(Device& device, Model& model, const adamw_options& options = {},
          std::initializer_list<parameter_group> groups = {})
        : adamw(device, model, options, std::vector<parameter_group>(groups)) {}
    adamw(Device& device, Model& model, const adamw_options& options, std::vector<parameter_group> groups)
        : base(device, model, {options.beta1, options.beta2, options.epsilon}, options.lr, options.weight_decay,
               options.seed, std::move(groups), options.ema_decay),
          options_(options) {
        base::check_beta(options.beta1);
        base::check_beta(options.beta2);
        base::check_rate("epsilon", options.epsilon);
    }

    const adamw_options& options() const { return options_; }

  private:
    adamw_options options_;
};

template <class Device, class Model>
adamw(Device&, Model&) -> adamw<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
