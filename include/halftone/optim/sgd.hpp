// SPDX-License-Identifier: MIT
/// \file
/// Stochastic gradient descent with momentum, as torch.optim.SGD computes it.
///
///     ht::sgd optimizer{device, model, {.lr = 0.1f, .momentum = 0.9f, .kind = ht::nesterov}};
///     optimizer.step(grads);
///
/// The program includes the kernels of its device: <halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda.
///
/// Numeric contract: that of kernel/optimizer_step/optimizer_step.hpp. A step changes nothing if a gradient is not
/// finite, or would make a momentum infinite.
///
/// A parameter that no backward pass of the window reached is unchanged: it does not decay, its momentum is kept, and
/// the step does not count for it.
///
/// In a table with a sparse gradient (nn/sparse_embedding.hpp) a step changes only the rows that were looked up in its
/// window. Without momentum and decay the result has the bits of a dense gradient. With them the rule differs: a row
/// that was not looked up does not decay or change, and keeps its momentum until it is looked up again.
#pragma once

#include <halftone/kernel/optimizer_step/rule/sgd.hpp>
#include <halftone/optim/rule_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

using kernel::momentum_kind;
/// For {.kind = ht::nesterov}.
inline constexpr momentum_kind nesterov = momentum_kind::nesterov;

template <class Device, class Model>
class sgd;
struct sgd_8bit_options;

/// SGD's hyperparameters, with the defaults of torch.optim.SGD.
struct sgd_options {
    double lr = 1e-3;
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;
    momentum_kind kind = momentum_kind::plain;
    std::uint64_t seed = 0;  ///< seed of stochastic rounding, if the policy uses it
    double ema_decay = 0;    ///< decay of the parameters' moving average (optim/average.hpp); 0: no average

    static constexpr const char* name = kernel::sgd_rule::name;
    template <class Device, class Model>
    using optimizer = sgd<Device, Model>;
    using eight_bit = sgd_8bit_options;
    static constexpr double flops_per_element = 8;
};

namespace detail {

/// Throws argument_error for a dampening that is no number, and for Nesterov's momentum where it is not defined.
template <class Options>
void check_momentum(const char* name, const Options& options) {
    if (!is_finite(options.dampening))
        fail<argument_error>(name, ": dampening is ", options.dampening, "; expected a number");
    if (options.kind == momentum_kind::nesterov && (options.momentum == 0 || options.dampening != 0)) {
        fail<argument_error>(name, ": Nesterov's momentum with momentum ", options.momentum, " and dampening ",
                             options.dampening, "; expected a momentum and no dampening");
    }
}

}  // namespace detail

/// Stochastic gradient descent over a model's parameters. Device and model must outlive it.
template <class Device, class Model>
class sgd : public detail::rule_optimizer<Device, Model, kernel::sgd_rule> {
    using base = detail::rule_optimizer<Device, Model, kernel::sgd_rule>;

  public:
    /// Allocates one moment per parameter if there is momentum. If groups freeze parameters, construct the optimizer
    /// before accumulators. Throws argument_error for options out of range and for a group that names no parameter,
    /// state_error before the store's commit, and out_of_memory.
    sgd(Device& device, Model& model, const sgd_options& options = {},
        std::initializer_list<parameter_group> groups = {})
        : sgd(device, model, options, std::vector<parameter_group>(groups)) {}
    sgd(Device& device, Model& model, const sgd_options& options, std::vector<parameter_group> groups)
        : base(device, model, {options.momentum, options.dampening, options.kind}, options.lr, options.weight_decay,
               options.seed, std::move(groups), options.ema_decay),
          options_(options) {
        base::check_rate("momentum", options.momentum);
        detail::check_momentum("sgd", options);
    }

    const sgd_options& options() const { return options_; }

  private:
    sgd_options options_;
};

template <class Device, class Model>
sgd(Device&, Model&) -> sgd<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
