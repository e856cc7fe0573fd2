// SPDX-License-Identifier: MIT
/// \file
/// AdamW over a model's parameters with its two moments in 8 bits, as bitsandbytes' AdamW8bit stores them (Dettmers et
/// al. 2022, "8-bit Optimizers via Block-wise Quantization"): 2.03 bytes of state per parameter instead of 8.
///
///     ht::adamw_8bit optimizer{device, model, {.lr = 3e-4, .weight_decay = 0.1}, {{"*.norm", {.weight_decay = 0}}}};
///     optimizer.step(grads);               // one read-write pass, 18 bytes per parameter in fp32 with a 16-bit copy
///
/// The program includes the kernels of its device: <halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda.
///
/// For each block of 256 consecutive elements of a parameter, the largest magnitude of its moments is stored as a
/// float, and each moment as a code: that of the value of the dynamic map nearest to moment / largest magnitude
/// (kernel/optimizer_step/eight_bit/). The first moment uses the signed map, the second the unsigned one. There is no
/// random rounding. The second moment never becomes 0 by rounding: where it is below 1.6e-7 of the block's largest it is
/// stored as 3.25e-7 of that, unless it and the first moment are 0, so that no step is lr * m / epsilon. The first moment is
/// stored as at most twice itself, or 5.5e-7 of the block's largest, and the second as at least 0.534 of itself: the part of
/// the next step that stored moments contribute, lr * m / sqrt(v), is at most 2.74 times that of the moments before they were
/// rounded, or 0.00097 lr times the quotient of the block's largest m and the root of its largest v.
///
/// Parameters of fewer than `min_8bit_size` elements (biases, norms), and tables with a sparse gradient, have moments in
/// the policy's `state` type, and the same bits as with ht::adamw; for the other parameters `state` is ignored.
///
/// Otherwise a step is that of ht::adamw: scaled gradients, clipping, skipped steps (which leave all codes unchanged),
/// groups, frozen parameters, split masters, the average of parameters, step counts. The parameter is updated with the
/// new moments before they are rounded, as in bitsandbytes. It decays before the update, as in torch.optim.AdamW and
/// in bitsandbytes on a CPU; on a GPU bitsandbytes decays afterwards, a difference of lr * weight_decay times the
/// update. The bits do not depend on the number of threads.
#pragma once

#include <halftone/kernel/optimizer_step/rule/adamw.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/eight_bit_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

template <class Device, class Model>
class adamw_8bit;

/// AdamW's hyperparameters, and the size from which parameters have 8-bit moments.
struct adamw_8bit_options {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 1e-2;
    extent min_8bit_size = 4096;  ///< parameters of fewer elements have moments in the `state` type
    std::uint64_t seed = 0;       ///< seed of stochastic rounding, if the policy uses it
    double ema_decay = 0;  ///< decay of the parameters' moving average (optim/average.hpp); 0: no average

    static constexpr const char* name = "adamw_8bit";
    template <class Device, class Model>
    using optimizer = adamw_8bit<Device, Model>;
    static constexpr double flops_per_element = adamw_options::flops_per_element;
    /// The options with which moments in 8 bits take the place of those of ht::adamw.
    static std::optional<adamw_8bit_options> of(const adamw_options& o) {
        return adamw_8bit_options{.lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon,
                                  .weight_decay = o.weight_decay, .seed = o.seed, .ema_decay = o.ema_decay};
    }
};

/// AdamW with moments in 8 bits over a model's parameters. Device and model must outlive it.
template <class Device, class Model>
class adamw_8bit : public detail::eight_bit_optimizer<Device, Model, kernel::adamw_rule> {
    using base = detail::eight_bit_optimizer<Device, Model, kernel::adamw_rule>;

  public:
    /// Allocates two bytes per parameter, and two floats for every 256 parameters. If groups freeze parameters,
    /// construct the optimizer before accumulators. Throws argument_error for options out of range and for a group that
    /// names no parameter, state_error before the store's commit, and out_of_memory.
    adamw_8bit(Device& device, Model& model, const adamw_8bit_options& options = {},
               std::initializer_list<parameter_group> groups = {})
        : adamw_8bit(device, model, options, std::vector<parameter_group>(groups)) {}
    adamw_8bit(Device& device, Model& model, const adamw_8bit_options& options, std::vector<parameter_group> groups)
        : base(adamw_8bit_options::name, device, model, {options.beta1, options.beta2, options.epsilon}, options.lr,
               options.weight_decay, options.seed, std::move(groups), options.ema_decay, options.min_8bit_size),
          options_(options) {
        base::check_beta(options.beta1);
        base::check_beta(options.beta2);
        base::check_rate("epsilon", options.epsilon);
    }

    /// The options that it was constructed with.
    const adamw_8bit_options& options() const { return options_; }

  private:
    adamw_8bit_options options_;
};

template <class Device, class Model>
adamw_8bit(Device&, Model&) -> adamw_8bit<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
