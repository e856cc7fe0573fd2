// SPDX-License-Identifier: MIT
/// \file
/// Optimizer steps as functions over the caller's memory: AdamW, Lion and SGD.
///
///     ht::adamw_step<ht::amp_bf16>(device, weights, copies, gradients, first, second, {.lr = 3e-4, .step = t});
///     ht::lion_step<ht::amp_bf16>(device, weights, copies, gradients, mean, {.lr = 1e-4, .step = t});
///     ht::sgd_step<ht::full_fp32>(device, weights, ht::view<float, 1>{}, gradients, momentum, {.lr = 0.1, .momentum = 0.9});
///
/// The policy specifies how a parameter is rounded to its type (`param_rounding`) and how the copy that kernels read is
/// rounded from it (`copy_rounding`); everything else follows from the views' element types. ht::adamw, ht::lion and
/// ht::sgd (optim/) do the same for all parameters of a model; they also count steps, skip those whose gradients are
/// not finite, and keep the learning rate on the device.
#pragma once

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>
#include <halftone/kernel/overlap.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of adamw_step.
struct adamw_step_options {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 1e-2;
    std::int64_t step =
        1;  ///< the number of the step, from 1: the bias corrections depend on it
    const kernel::gradient_factors* factors =
        nullptr;                 ///< in the device's memory: for unscaling and clipping; nullptr: neither
    kernel::rounding_key key{};  ///< for stochastic rounding, if the policy has it
};

/// Options of lion_step.
struct lion_step_options {
    double lr = 1e-4;
    double beta1 = 0.9;
    double beta2 = 0.99;
    double weight_decay = 0;
    std::int64_t step = 1;  ///< the number of the step, from 1
    const kernel::gradient_factors* factors =
        nullptr;                 ///< in the device's memory: for unscaling and clipping; nullptr: neither
    kernel::rounding_key key{};  ///< for stochastic rounding, if the policy has it
};

/// Options of sgd_step.
struct sgd_step_options {
    double lr = 1e-3;
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;
    kernel::momentum_kind kind = kernel::momentum_kind::plain;
    std::int64_t step = 1;  ///< the number of the step, from 1: the first one sets the momentum
    const kernel::gradient_factors* factors =
        nullptr;                 ///< in the device's memory: for unscaling and clipping; nullptr: neither
    kernel::rounding_key key{};  ///< for stochastic rounding, if the policy has it
};

namespace detail {

/// The records that a step's kernel reads in the device's memory.
struct step_memory {
    kernel::step_record step;
    kernel::gradient_factors factors;
};
struct write_step {
    step_memory* to;
    step_memory value;
    HALFTONE_HD void operator()() const { *to = value; }
};

template <class T, class V>
view<T, 1> flat_or_none(const V& v) {
    const auto all = as_view(v);
    if (all.data() == nullptr) return {};
    return flatten(all);
}

/// Throws shape_error if what a step writes shares memory, or is in that of the gradients. Views that do not fit pass: the kernel
/// says which one.
template <class Rule, class... Types>
void expect_step_apart(const char* name, const kernel::optimizer_step_arguments<Rule, Types...>& a) {
    const char* const names[] = {"first moment", "second moment"};
    named_elements written[2 + Rule::moments] = {elements_of("parameters", a.master), elements_of("copy", a.copy)};
    for (int k = 0; k < Rule::moments; ++k) written[2 + k] = elements_of(names[k], a.moments[k]);
    for (const named_elements& each : written) {
        if (each.data != nullptr && *each.extents != a.gradient.size()) return;
    }
    for (int i = 0; i < 2 + Rule::moments; ++i) {
        expect_apart_or_same(name, elements_of("gradients", a.gradient), written[i]);
        for (int before = 0; before < i; ++before) expect_apart(name, written[before], written[i]);
    }
}

/// One step with a rule; its moments are views.
template <class P, class Rule, class Options, class Device, class Parameters, class Copy, class Gradients, class First,
          class... More>
void step_by_rule(Device& device, const char* name, const Rule& rule, const Options& options, const Parameters& parameters,
                  const Copy& copy, const Gradients& gradients, const First& first, const More&... more) {
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    static_assert(1 + sizeof...(More) == Rule::moments);
    using param = element_in<Parameters>;
    using copied = element_in<Copy>;
    using gradient = element_in<Gradients>;
    using state = element_in<First>;
    if (options.step < 1) fail<argument_error>(name, ": the step is ", options.step, "; expected 1 or more");
    static_assert(!wide_number<param> || roles::param_rounding == rounding::nearest_even,
                  "halftone: parameters in a type that float does not hold are rounded to nearest: take a policy whose "
                  "param_rounding is ht::rounding::nearest_even");
    const workspace::lease lease(device.scratch(), sizeof(step_memory));
    auto* const memory = lease.template as<step_memory>();
    const kernel::optimizer_step_arguments<Rule, param, copied, gradient, state> arguments{
        .master = flatten(as_view(parameters)),
        .copy = flat_or_none<copied>(copy),
        .gradient = flatten(as_view(gradients)),
        .moments = {flat_or_none<state>(first), flat_or_none<state>(more)...},
        .rule = rule,
        .rates = {.weight_decay = options.weight_decay},
        .factors = options.factors == nullptr ? &memory->factors : options.factors,
        .step = &memory->step,
        .key = options.key};
    if (!device.scratch().is_measuring()) expect_step_apart(name, arguments);
    device.run(write_step{memory, {{.steps = options.step, .lr = options.lr}, {}}});
    kernel::optimizer_step<Device>::template run<roles::param_rounding, Rule, param, copied, gradient, state,
                                                 copy_rounding_of<roles>()>(device, arguments);
}

}  // namespace detail

/// One step of AdamW (Loshchilov and Hutter 2019), which in one pass updates each element of `parameters`, its `first`
/// and `second` moment and its rounded `copy` from its gradient. All views are contiguous and of the same size; the
/// copy may be without data. For parameters of ht::bfloat16_remainder the copy is the upper half and is required. Step
/// number and rate are passed by value, so a captured graph would repeat them: capture ht::adamw instead. Throws
/// shape_error, and argument_error for a random index that is not a multiple of 4 and a step below 1.
template <class P, class Device, class Parameters, class Copy, class Gradients, class First, class Second>
    requires(detail::kernel_device<Device> && detail::viewables<Parameters, Copy, Gradients, First, Second>)
void adamw_step(Device& device, const Parameters& parameters, const Copy& copy, const Gradients& gradients,
                const First& first, const Second& second, const adamw_step_options& options = {}) {
    detail::step_by_rule<P>(device, "adamw_step", kernel::adamw_rule{options.beta1, options.beta2, options.epsilon}, options,
                            parameters, copy, gradients, first, second);
}
/// Fails with a message if the policy is missing, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void adamw_step(Device&, const Views&...) {
    static_assert(
        sizeof(Device*) == 0,
        "halftone: adamw_step is called without a policy: ht::adamw_step<ht::amp_bf16>(device, parameters, copy, "
        "gradients, first, second)");
}

/// One step of Lion (Chen et al. 2023), which in one pass updates each element of `parameters`, the mean of its
/// gradients in `momentum` and its rounded `copy` from its gradient. Otherwise as adamw_step.
template <class P, class Device, class Parameters, class Copy, class Gradients, class Momentum>
    requires(detail::kernel_device<Device> && detail::viewables<Parameters, Copy, Gradients, Momentum>)
void lion_step(Device& device, const Parameters& parameters, const Copy& copy, const Gradients& gradients,
               const Momentum& momentum, const lion_step_options& options = {}) {
    detail::step_by_rule<P>(device, "lion_step", kernel::lion_rule{options.beta1, options.beta2}, options, parameters, copy,
                            gradients, momentum);
}
/// Fails with a message if the policy is missing, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void lion_step(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: lion_step is called without a policy: ht::lion_step<ht::amp_bf16>(device, parameters, copy, "
                  "gradients, momentum)");
}

/// One step of stochastic gradient descent, which in one pass updates each element of `parameters`, its momentum and
/// its rounded `copy` from its gradient. All views are contiguous and of the same size; the copy may be without data,
/// and so may the momentum if its coefficient is 0. Otherwise as adamw_step.
template <class P, class Device, class Parameters, class Copy, class Gradients, class Momentum>
    requires(detail::kernel_device<Device> && detail::viewables<Parameters, Copy, Gradients, Momentum>)
void sgd_step(Device& device, const Parameters& parameters, const Copy& copy, const Gradients& gradients,
              const Momentum& momentum, const sgd_step_options& options = {}) {
    detail::step_by_rule<P>(device, "sgd_step", kernel::sgd_rule{options.momentum, options.dampening, options.kind}, options,
                            parameters, copy, gradients, momentum);
}
/// Fails with a message if the policy is missing, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void sgd_step(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: sgd_step is called without a policy: ht::sgd_step<ht::amp_bf16>(device, parameters, copy, "
                  "gradients, momentum)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
