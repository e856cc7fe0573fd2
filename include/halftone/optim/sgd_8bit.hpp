// SPDX-License-Identifier: MIT
/// \file
/// Stochastic gradient descent with its momentum in 8 bits, as bitsandbytes' SGD8bit stores it: 1.02 bytes of state per
/// parameter instead of 4.
///
///     ht::sgd_8bit optimizer{device, model, {.lr = 0.1, .momentum = 0.9, .kind = ht::nesterov}};
///     optimizer.step(grads);
///
/// The program includes the kernels of its device: <halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda.
///
/// The step is that of ht::sgd (optim/sgd.hpp). The momentum is stored as adamw_8bit.hpp describes for AdamW's first
/// moment: blocks of 256 elements, the signed map, small parameters and tables with a sparse gradient in the policy's
/// `state` type, with the bits of ht::sgd. A skipped step leaves all codes unchanged.
#pragma once

#include <halftone/optim/eight_bit_optimizer.hpp>
#include <halftone/optim/sgd.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

template <class Device, class Model>
class sgd_8bit;

/// SGD's hyperparameters, and the size from which parameters have an 8-bit momentum.
struct sgd_8bit_options {
    double lr = 1e-3;
    double momentum = 0.9;  ///< more than 0
    double dampening = 0;
    double weight_decay = 0;
    momentum_kind kind = momentum_kind::plain;
    extent min_8bit_size = 4096;  ///< parameters of fewer elements have a momentum in the `state` type
    std::uint64_t seed = 0;       ///< seed of stochastic rounding, if the policy uses it
    double ema_decay = 0;  ///< decay of the parameters' moving average (optim/average.hpp); 0: no average

    static constexpr const char* name = "sgd_8bit";
    template <class Device, class Model>
    using optimizer = sgd_8bit<Device, Model>;
    static constexpr double flops_per_element = sgd_options::flops_per_element;
    /// The options with which moments in 8 bits take the place of those of ht::sgd.
    static std::optional<sgd_8bit_options> of(const sgd_options& o) {
        if (o.momentum == 0) return std::nullopt;
        return sgd_8bit_options{.lr = o.lr, .momentum = o.momentum, .dampening = o.dampening, .weight_decay = o.weight_decay,
                                .kind = o.kind, .seed = o.seed, .ema_decay = o.ema_decay};
    }
};

/// Stochastic gradient descent with its momentum in 8 bits over a model's parameters. Device and model must outlive it.
template <class Device, class Model>
class sgd_8bit : public detail::eight_bit_optimizer<Device, Model, kernel::sgd_rule> {
    using base = detail::eight_bit_optimizer<Device, Model, kernel::sgd_rule>;

  public:
    /// Allocates one byte per parameter, and a float for every 256 parameters. If groups freeze parameters, construct
    /// the optimizer before accumulators. Throws argument_error for options out of range (a momentum of 0 among them)
    /// and for a group that names no parameter, state_error before the store's commit, and out_of_memory.
    sgd_8bit(Device& device, Model& model, const sgd_8bit_options& options = {},
             std::initializer_list<parameter_group> groups = {})
        : sgd_8bit(device, model, options, std::vector<parameter_group>(groups)) {}
    sgd_8bit(Device& device, Model& model, const sgd_8bit_options& options, std::vector<parameter_group> groups)
        : base(sgd_8bit_options::name, device, model, {options.momentum, options.dampening, options.kind}, options.lr,
               options.weight_decay, options.seed, std::move(groups), options.ema_decay, options.min_8bit_size),
          options_(options) {
        base::check_rate("momentum", options.momentum);
        detail::check_momentum(sgd_8bit_options::name, options);
        if (options.momentum == 0)
            fail<argument_error>("sgd_8bit: momentum is 0; expected more than 0, since ht::sgd without it has no state");
    }

    /// The options that it was constructed with.
    const sgd_8bit_options& options() const { return options_; }

  private:
    sgd_8bit_options options_;
};

template <class Device, class Model>
sgd_8bit(Device&, Model&) -> sgd_8bit<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
