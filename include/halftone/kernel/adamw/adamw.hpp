// SPDX-License-Identifier: MIT
/// \file
/// One step of AdamW (Loshchilov and Hutter 2019) over a contiguous run of parameters, in one pass that reads and
/// writes: unscale, clip, moments, bias correction, decoupled decay, the parameter, its rounded copy.
///
///     kernel::adamw<cpu>::run<rounding::nearest_even, float, bfloat16, float, float>(
///         device, {.master = w, .copy = w16, .gradient = g, .first = m, .second = v, .rates = {.weight_decay = 0.1},
///                  .factors = &record.factors, .step = &steps});
///
/// Numeric contract: arithmetic in float; scalars (bias corrections, 1 - lr * decay) in double, rounded to float once,
/// as torch.optim.AdamW has them. The parameter is rounded once to its type, the copy once from the parameter as
/// stored. A moment narrower than float is rounded stochastically: 0.999 v, rounded to nearest in 8 bits, would be v
/// for ever. Element by element, so the result depends on nothing but the element. 30 bytes a parameter with fp32
/// gradient, master and moments and a 16-bit copy.
#pragma once

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/number/rounding.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// What all parameters of an optimizer share.
struct adamw_decays {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
};

template <class Param, class Copy, class Accumulate, class State>
struct adamw_arguments {
    view<Param, 1> master;  ///< (count); bfloat16_remainder: its upper half is the copy, which must be there
    view<Copy, 1> copy{};                ///< (count), or none
    const_view<Accumulate, 1> gradient;  ///< (count), as the backward pass left it
    view<State, 1> first;                ///< (count), the mean of gradients
    view<State, 1> second;               ///< (count), the mean of their squares
    adamw_decays decays{};
    group_rates rates{};
    const gradient_factors* factors = nullptr;  ///< in the device's memory
    const step_record* step = nullptr;          ///< in the device's memory; `steps` counts the present one already
    rounding_key key{};
};

/// run<Rounding>(device, arguments): Rounding is how the parameter is rounded to its type. A last template argument
/// says how the copy is rounded from it, to nearest even where it is left out; split masters do without both. Changes
/// nothing where step->skips. Throws shape_error, and argument_error for a random index that is no multiple of 4.
///
/// run_rows<Rounding>(device, arguments, rows): for a table (rows, width) whose gradient is sparse. Only the rows in it
/// are read and written, each element as with the dense gradient of the same value, random numbers included;
/// arguments.gradient is none.
template <class Device>
struct adamw {
    static_assert(sizeof(Device) == 0,
                  "halftone: adamw: the kernels of this device are not included: include <halftone/kernel.hpp> for "
                  "ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

/// The largest gradient that an optimizer lets come so far: a second moment is a mean of squares, and holds no more for
/// long. A step with a larger one counts as an overflow (is_beyond() in kernel/common/update/records.hpp).
inline constexpr float adamw_largest_gradient = largest_with_square;

/// The scalars of a step, as the elements need them.
struct adamw_scalars {
    float first_weight, second_decay, second_weight, root_scale, epsilon, step_size, decay;
};

HALFTONE_HD inline adamw_scalars scalars_of(const adamw_decays& d, const group_rates& rates, const step_record& step) {
    const double lr = rates.lr(step), t = static_cast<double>(step.steps);
    const double correction1 = 1 - std::pow(d.beta1, t), correction2 = 1 - std::pow(d.beta2, t);
    return {static_cast<float>(1 - d.beta1),
            static_cast<float>(d.beta2),
            static_cast<float>(1 - d.beta2),
            static_cast<float>(1 / std::sqrt(correction2)),
            static_cast<float>(d.epsilon),
            static_cast<float>(lr / correction1),
            static_cast<float>(1 - lr * rates.weight_decay)};
}

template <class Param, class Copy, class Accumulate, class State>
void check(const adamw_arguments<Param, Copy, Accumulate, State>& a) {
    const shape<1> count = a.master.shape();
    expect("adamw", "master", a.master, count);
    if constexpr (std::is_same_v<Param, bfloat16_remainder>) {
        expect("adamw", "copy", a.copy, count);
    } else {
        expect_optional("adamw", "copy", a.copy, count);
    }
    expect("adamw", "gradient", a.gradient, count);
    expect("adamw", "first", a.first, count);
    expect("adamw", "second", a.second, count);
    if (a.key.first % 4 != 0)
        fail<argument_error>("adamw: the random index begins at ", a.key.first, "; expected a multiple of 4");
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
