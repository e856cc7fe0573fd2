// SPDX-License-Identifier: MIT
/// \file
/// Lion with its moment in 8 bits, as bitsandbytes' Lion8bit stores it: 1.02 bytes of state per parameter instead of 4.
///
///     ht::lion_8bit optimizer{device, model, {.lr = 1e-4, .weight_decay = 1.0}, {{"*.norm", {.weight_decay = 0}}}};
///     optimizer.step(grads);               // one read-write pass, 16 bytes per parameter in fp32 with a 16-bit copy
///
/// The program includes the kernels of its device: <halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda.
///
/// The step is that of ht::lion (optim/lion.hpp). The moment is stored as adamw_8bit.hpp describes for AdamW's first one:
/// blocks of 256 elements, the signed map, small parameters and tables with a sparse gradient in the policy's `state`
/// type, with the bits of ht::lion. A skipped step leaves all codes unchanged.
#pragma once

#include <halftone/kernel/optimizer_step/rule/lion.hpp>
#include <halftone/optim/eight_bit_optimizer.hpp>
#include <halftone/optim/lion.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

template <class Device, class Model>
class lion_8bit;

/// Lion's hyperparameters, and the size from which parameters have 8-bit moments.
struct lion_8bit_options {
    double lr = 1e-4;
    double beta1 = 0.9;
    double beta2 = 0.99;
    double weight_decay = 0;
    extent min_8bit_size = 4096;  ///< parameters of fewer elements have moments in the `state` type
    std::uint64_t seed = 0;       ///< seed of stochastic rounding, if the policy uses it
    double ema_decay = 0;  ///< decay of the parameters' moving average (optim/average.hpp); 0: no average

    static constexpr const char* name = "lion_8bit";
    template <class Device, class Model>
    using optimizer = lion_8bit<Device, Model>;
    static constexpr double flops_per_element = lion_options::flops_per_element;
    /// The options with which moments in 8 bits take the place of those of ht::lion.
    static std::optional<lion_8bit_options> of(const lion_options& o) {
        return lion_8bit_options{.lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .weight_decay = o.weight_decay,
                                 .seed = o.seed, .ema_decay = o.ema_decay};
    }
};

/// Lion with its moment in 8 bits over a model's parameters. Device and model must outlive it.
template <class Device, class Model>
class lion_8bit : public detail::eight_bit_optimizer<Device, Model, kernel::lion_rule> {
    using base = detail::eight_bit_optimizer<Device, Model, kernel::lion_rule>;

  public:
    /// Allocates one byte per parameter, and a float for every 256 parameters. If groups freeze parameters, construct
    /// the optimizer before accumulators. Throws argument_error for options out of range and for a group that names no
    /// parameter, state_error before the store's commit, and out_of_memory.
    lion_8bit(Device& device, Model& model, const lion_8bit_options& options = {},
              std::initializer_list<parameter_group> groups = {})
        : lion_8bit(device, model, options, std::vector<parameter_group>(groups)) {}
    lion_8bit(Device& device, Model& model, const lion_8bit_options& options, std::vector<parameter_group> groups)
        : base(lion_8bit_options::name, device, model, {options.beta1, options.beta2}, options.lr, options.weight_decay, options.seed,
               std::move(groups), options.ema_decay, options.min_8bit_size),
          options_(options) {
        base::check_beta(options.beta1);
        base::check_beta(options.beta2);
    }

    /// The options that it was constructed with.
    const lion_8bit_options& options() const { return options_; }

  private:
    lion_8bit_options options_;
};

template <class Device, class Model>
lion_8bit(Device&, Model&) -> lion_8bit<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
