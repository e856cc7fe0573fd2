// SPDX-License-Identifier: MIT
/// \file
/// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms") over a model's parameters: each parameter
/// changes by the learning rate times the sign of beta1 m + (1 - beta1) g; then m becomes beta2 m + (1 - beta2) g. It
/// stores one moment per parameter, where AdamW stores two.
///
///     ht::lion optimizer{device, model, {.lr = 1e-4, .weight_decay = 1.0}, {{"*.norm", {.weight_decay = 0}}}};
///     optimizer.step(grads);               // one read-write pass, 22 bytes per parameter in fp32 with a 16-bit copy
///
/// Learning rates should be 3 to 10 times smaller than AdamW's, and decays as many times larger, since every parameter
/// changes by the whole learning rate (section 5 of the paper).
///
/// The program includes the kernels of its device: <halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda.
///
/// Numeric contract: that of kernel/optimizer_step/optimizer_step.hpp. A step changes nothing if a gradient is not
/// finite or exceeds half of float's largest number. If beta1 m + (1 - beta1) g is smaller than its rounding error, the
/// parameter may change in either direction.
///
/// A parameter that no backward pass of the window reached is unchanged: it does not decay, its moment is kept, and the
/// step does not count for it.
///
/// In a table with a sparse gradient (nn/sparse_embedding.hpp) a step changes only the rows that were looked up in its
/// window, while Lion with a dense gradient would also change the others by the sign of their moment. Rows that are
/// looked up in every step have the bits of a dense gradient.
#pragma once

#include <halftone/kernel/optimizer_step/rule/lion.hpp>
#include <halftone/optim/rule_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

template <class Device, class Model>
class lion;
struct lion_8bit_options;

/// Lion's hyperparameters.
struct lion_options {
    double lr = 1e-4;
    double beta1 = 0.9;
    double beta2 = 0.99;
    double weight_decay = 0;
    std::uint64_t seed = 0;  ///< seed of stochastic rounding, if the policy uses it
    double ema_decay = 0;    ///< decay of the parameters' moving average (optim/average.hpp); 0: no average

    static constexpr const char* name = kernel::lion_rule::name;
    template <class Device, class Model>
    using optimizer = lion<Device, Model>;
    using eight_bit = lion_8bit_options;
    static constexpr double flops_per_element = 11;
};

/// Lion over a model's parameters. Device and model must outlive it.
template <class Device, class Model>
class lion : public detail::rule_optimizer<Device, Model, kernel::lion_rule> {
    using base = detail::rule_optimizer<Device, Model, kernel::lion_rule>;

  public:
    /// Allocates one moment per parameter. If groups freeze parameters, construct the optimizer before accumulators.
    /// Throws argument_error for options out of range and for a group that names no parameter, state_error before the
    /// store's commit, and out_of_memory.
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

    /// The options that it was constructed with.
    const lion_options& options() const { return options_; }

  private:
    lion_options options_;
};

template <class Device, class Model>
lion(Device&, Model&) -> lion<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
