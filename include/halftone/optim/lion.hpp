// SPDX-License-Identifier: MIT
/// \file
/// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms") over a model's parameters: each moves by the rate,
/// up or down, by the sign of beta1 m + (1 - beta1) g; then m becomes beta2 m + (1 - beta2) g. One moment a parameter, where AdamW
/// has two.
///
///     ht::lion optimizer{device, model, {.lr = 1e-4, .weight_decay = 1.0}, {{"*.norm", {.weight_decay = 0}}}};
///     optimizer.step(grads);               // one read-write pass, 22 bytes a parameter in fp32 with a 16-bit copy
///
/// Rates are to be smaller than AdamW's, by 3 to 10 times, and decays as many times larger, since every parameter moves by the
/// whole rate (section 5 of the paper).
///
/// The device may be any whose kernels the program includes: <halftone/kernel.hpp> has those of ht::cpu,
/// <halftone/cuda.cuh> those of ht::cuda.
///
/// Numeric contract: kernel/optimizer_step/optimizer_step.hpp has it. A step whose gradients are not finite, or larger than
/// half of what floats hold, changes nothing. Where rounding hides the sign of beta1 m + (1 - beta1) g the parameter goes either
/// way.
///
/// A parameter that no backward pass of the window reached stays as it is: it neither decays nor moves on, nor counts
/// the step.
///
/// Of a table with a sparse gradient (nn/sparse_embedding.hpp) a step changes the rows that were looked up in its
/// window, and no others, where Lion over a dense gradient would go on moving the others by the sign of their moment. Rows of
/// every step have the bits of a dense gradient.
#pragma once

#include <halftone/kernel/optimizer_step/rule/lion.hpp>
#include <halftone/optim/rule_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What ht::lion is made with.
struct lion_options {
    double lr = 1e-4;
    double beta1 = 0.9;
    double beta2 = 0.99;
    double weight_decay = 0;
    std::uint64_t seed = 0;  ///< of stochastic rounding, where the policy asks for it
    double ema_decay = 0;    ///< of the average of parameters that is kept beside them (optim/average.hpp); 0: none is
};

/// Lion over a model's parameters. It refers to device and model, which must live longer.
template <class Device, class Model>
class lion : public detail::rule_optimizer<Device, Model, kernel::lion_rule> {
    using base = detail::rule_optimizer<Device, Model, kernel::lion_rule>;

  public:
    /// Takes memory for one moment a parameter. Call it before accumulators are made where groups freeze parameters.
    /// Throws argument_error for options out of range and for a group that names no parameter, state_error before the
    /// store's commit, out_of_memory.
    lion(Device& device, Model& model, const lion_options& options = {},
         std::initializer_list<parameter_group> groups = {})
        : lion(device, model, options, std::vector<parameter_group>(groups)) {}
    lion(Device& device, Model& model, const lion_options& options, std::vector<parameter_group> groups)
        : base(device, model, {options.beta1, options.beta2}, options.lr, options.weight_decay, options.seed,
               std::move(groups), options.ema_decay),
          options_(options) {
        base::check_beta(options.beta1);
        base::check_beta(options.beta2);
    }

    /// As it was made.
    const lion_options& options() const { return options_; }

  private:
    lion_options options_;
};

template <class Device, class Model>
lion(Device&, Model&) -> lion<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
