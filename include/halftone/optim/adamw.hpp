// SPDX-License-Identifier: MIT
/// \file
/// AdamW (Loshchilov and Hutter 2019) over a model's parameters, as torch.optim.AdamW computes it.
///
///     ht::adamw optimizer{device, model, {.lr = 3e-4f, .weight_decay = 0.1f},
///                         {{"*.norm", {.weight_decay = 0}}, {"h.0", ht::frozen}}};
///     optimizer.step(grads);               // one read-write pass, 30 bytes per parameter in fp32 with a 16-bit copy
///
/// The program includes the kernels of its device: <halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda.
///
/// Numeric contract: that of kernel/optimizer_step/optimizer_step.hpp. A step changes nothing if a gradient, or its
/// square, is not finite.
///
/// A parameter that no backward pass of the window reached is unchanged: it does not decay, its moments are kept, and
/// the step does not count for it. Its bias corrections depend on the number of its own steps.
///
/// In a table with a sparse gradient (nn/sparse_embedding.hpp) a step changes only the rows that were looked up in its
/// window. Other rows keep their values and moments, while AdamW with a dense gradient would decay and change them.
/// Rows that are looked up in every step have the bits of a dense gradient. torch.optim.SparseAdam is lazy in the same
/// way, but has no decay (here: decoupled, of the changed rows), and adds epsilon before the bias correction.
#pragma once

#include <halftone/kernel/optimizer_step/rule/adamw.hpp>
#include <halftone/optim/rule_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

template <class Device, class Model>
class adamw;
struct adamw_8bit_options;

/// AdamW's hyperparameters, with the defaults of torch.optim.AdamW.
struct adamw_options {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 1e-2;
    std::uint64_t seed = 0;  ///< seed of stochastic rounding, if the policy uses it
    double ema_decay = 0;    ///< decay of the parameters' moving average (optim/average.hpp); 0: no average

    static constexpr const char* name = kernel::adamw_rule::name;
    template <class Device, class Model>
    using optimizer = adamw<Device, Model>;
    using eight_bit = adamw_8bit_options;
    static constexpr double flops_per_element = 15;
};

/// AdamW over a model's parameters. Device and model must outlive it.
template <class Device, class Model>
class adamw : public detail::rule_optimizer<Device, Model, kernel::adamw_rule> {
    using base = detail::rule_optimizer<Device, Model, kernel::adamw_rule>;

  public:
    /// Allocates two moments per parameter. If groups freeze parameters, construct the optimizer before accumulators.
    /// Throws argument_error for options out of range and for a group that names no parameter, state_error before the
    /// store's commit, and out_of_memory.
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
