// SPDX-License-Identifier: MIT
/// \file
/// An optimizer of a program's own: a rule (kernel/optimizer_step/optimizer_step.hpp), its update, and its options.
///
///     struct sign_options {
///         double lr = 1e-4, weight_decay = 0, beta = 0.9;
///
///         static constexpr const char* name = sign_rule::name;
///         template <class Device, class Model>
///         using optimizer = ht::own_optimizer<Device, Model, sign_options>;
///         sign_rule rule() const { return {beta}; }                         // throws argument_error if out of range
///     };
///
///     ht::own_optimizer optimizer{device, model, sign_options{.lr = 1e-3}};               // in a loop of one's own
///     ht::trainer trainer{device, model, {.max_steps = 1000}, sign_options{.lr = 1e-3}};  // in the trainer
///
/// It has all that the library's optimizers have: groups, schedules, masters and copies, moments in the policy's `state` type,
/// skipped steps, checkpoints, captured steps, GPUs, divided models. Options may have a `seed` for stochastic rounding and an
/// `ema_decay`, as theirs.
#pragma once

#include <utility>
#include <vector>

#include <halftone/kernel/optimizer_step/rule/own.hpp>
#include <halftone/optim/rule_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// An optimizer whose options give its rule. Device and model must outlive it.
template <class Device, class Model, optimizer_options Options>
class own_optimizer : public detail::rule_optimizer<Device, Model, decltype(std::declval<const Options&>().rule())> {
    using base = detail::rule_optimizer<Device, Model, decltype(std::declval<const Options&>().rule())>;

  public:
    /// Allocates the rule's moments. If groups freeze parameters, construct the optimizer before accumulators. Throws what
    /// rule() throws, argument_error for a rate or decay out of range and for a group that names no parameter, state_error
    /// before the store's commit, and out_of_memory.
    own_optimizer(Device& device, Model& model, const Options& options, std::vector<parameter_group> groups = {})
        : base(device, model, options.rule(), options.lr, options.weight_decay, seed_of(options), std::move(groups),
               ema_decay_of(options), Options::name),
          options_(options) {}

    /// The options that it was constructed with.
    const Options& options() const { return options_; }

  private:
    static std::uint64_t seed_of(const Options& o) {
        if constexpr (requires { o.seed; }) return o.seed;
        return 0;
    }
    static double ema_decay_of(const Options& o) {
        if constexpr (requires { o.ema_decay; }) return o.ema_decay;
        return 0;
    }

    Options options_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
