// SPDX-License-Identifier: MIT
/// \file
/// A step of Adafactor as a function over the caller's memory.
///
///     ht::adafactor_step<ht::amp_bf16>(device, weights, copies, gradients, rows, columns, {.lr = 0.01, .step = t});
///     ht::adafactor_step<ht::full_fp32>(device, bias, ht::view<float, 1>{}, gradients, ht::view<float, 1>{}, elements);
///
/// ht::adafactor (optim/) does the same for all parameters of a model.
#pragma once

#include <halftone/kernel/optimizer_step/adafactor/adafactor.hpp>
#include <halftone/kernel/optimizer_step/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of adafactor_step.
struct adafactor_step_options {
    double lr = 1e-2;
    double beta2_decay = -0.8;
    double epsilon1 = 0x1p-23;
    double epsilon2 = 1e-3;
    double d = 1;
    double weight_decay = 0;
    std::int64_t step = 1;  ///< the number of the step, from 1: rate and variances depend on it
    const kernel::gradient_factors* factors =
        nullptr;                 ///< in the device's memory: for unscaling and clipping; nullptr: neither
    kernel::rounding_key key{};  ///< for stochastic rounding, if the policy has it
};

/// One step of Adafactor (Shazeer and Stern 2018), which updates a matrix of parameters (rows, columns), the variances
/// of its rows (rows) and columns (columns), which are floats, and its rounded `copy` from its gradient. A vector has
/// one variance per element in `columns`, and `rows` without data. The copy may be without data. Views are contiguous;
/// rounding, step number and rate as in adamw_step. Throws shape_error, and argument_error for a random index that is
/// not a multiple of 4 and a step below 1.
template <class P, class Device, class Parameters, class Copy, class Gradients, class Rows, class Columns>
    requires(detail::kernel_device<Device> && detail::viewables<Parameters, Copy, Gradients, Rows, Columns>)
void adafactor_step(Device& device, const Parameters& parameters, const Copy& copy, const Gradients& gradients,
                    const Rows& rows, const Columns& columns, const adafactor_step_options& options = {}) {
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    const auto all = as_view(parameters);
    using viewed = std::remove_const_t<decltype(all)>;
    static_assert(viewed::rank == 1 || viewed::rank == 2, "halftone: adafactor_step takes a matrix or a vector of parameters");
    if (options.step < 1) fail<argument_error>("adafactor_step: the step is ", options.step, "; expected 1 or more");
    struct records {
        detail::step_memory step;
        kernel::adafactor_record found;
    };
    const workspace::lease lease(device.scratch(), sizeof(records));
    auto* const memory = lease.template as<records>();
    device.run(detail::write_step{&memory->step, {{.steps = options.step, .lr = options.lr}, {}}});
    using param = detail::element_in<Parameters>;
    static_assert(
        !wide_number<param>,
        "halftone: adafactor_step steps over floats, which do not hold these parameters: take ht::adamw_step, "
        "ht::lion_step or ht::sgd_step, whose steps over them are in double");
    using copied = detail::element_in<Copy>;
    using gradient = detail::element_in<Gradients>;
    shape<2> s{1, all.extent_of(viewed::rank - 1)};
    if constexpr (viewed::rank == 2) s[0] = all.extent_of(0);
    kernel::adafactor_step<Device>::template run<roles::param_rounding, detail::copy_rounding_of<roles>()>(
        device, kernel::adafactor_arguments<param, copied, gradient>{
                    .step = {.master = flatten(all),
                             .copy = detail::flat_or_none<copied>(copy),
                             .gradient = flatten(as_view(gradients)),
                             .rule = {options.beta2_decay, options.epsilon1, options.epsilon2, options.d},
                             .rates = {.weight_decay = options.weight_decay},
                             .factors = options.factors == nullptr ? &memory->step.factors : options.factors,
                             .step = &memory->step.step,
                             .key = options.key},
                    .shape = s,
                    .rows = detail::flat_or_none<float>(rows),
                    .columns = detail::flat_or_none<float>(columns),
                    .record = &memory->found});
}
/// Fails with a message if the policy is missing, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void adafactor_step(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: adafactor_step is called without a policy: ht::adafactor_step<ht::amp_bf16>(device, parameters, "
                  "copy, gradients, rows, columns)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
