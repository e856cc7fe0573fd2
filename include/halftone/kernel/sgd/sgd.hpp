// SPDX-License-Identifier: MIT
/// \file
/// One step of stochastic gradient descent with momentum over a contiguous run of parameters, in one pass that reads
/// and writes: unscale, clip, decay, momentum, the parameter, its rounded copy.
///
///     kernel::sgd<cpu>::run<rounding::nearest_even, float, bfloat16, float, float>(
///         device, {.master = w, .copy = w16, .gradient = g, .momentum = m, .coefficients = {.momentum = 0.9},
///                  .factors = &record.factors, .step = &steps});
///
/// Numeric contract: as torch.optim.SGD: arithmetic in float, scalars in double and rounded to float once; the first
/// step sets the momentum to the gradient. Rounding of parameters, copies and narrow moments as in adamw.hpp. 22 bytes
/// a parameter with fp32 gradient, master and momentum and a 16-bit copy; 14 without momentum.
#pragma once

#include <cmath>

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/number/rounding.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Plain momentum, or Nesterov's (Sutskever et al. 2013): the gradient is corrected by the momentum once more.
enum class momentum_kind { plain, nesterov };

/// What all parameters of an optimizer share.
struct sgd_coefficients {
    double momentum = 0;
    double dampening = 0;
    momentum_kind kind = momentum_kind::plain;
};

template <class Param, class Copy, class Accumulate, class State>
struct sgd_arguments {
    view<Param, 1> master;  ///< (count); bfloat16_remainder: its upper half is the copy, which must be there
    view<Copy, 1> copy{};                ///< (count), or none
    const_view<Accumulate, 1> gradient;  ///< (count), as the backward pass left it
    view<State, 1> momentum{};           ///< (count); none where the coefficient is 0
    sgd_coefficients coefficients{};
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
struct sgd {
    static_assert(sizeof(Device) == 0,
                  "halftone: sgd: the kernels of this device are not included: include <halftone/kernel.hpp> for "
                  "ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

/// The largest gradient that an optimizer lets come so far: the sum of as many of them as a momentum ever holds,
/// 1 / (1 - momentum), is a float, with half of the range left for decay and rounding. From a momentum of 0.999 on it is
/// that of 0.999. Without momentum nothing is kept, and every float is taken.
inline float sgd_largest_gradient(const sgd_coefficients& c) {
    constexpr double largest = static_cast<double>(gradient_factors::no_limit);
    if (c.momentum == 0) return gradient_factors::no_limit;
    const double kept = c.momentum < 0.999 ? 1 - c.momentum : 0.001, weight = std::fabs(1 - c.dampening);
    return static_cast<float>(largest / 2 * kept / (weight > 1 ? weight : 1));
}

/// The scalars of a step, as the elements need them.
struct sgd_scalars {
    float decay, momentum, gradient_weight, lr;
};

HALFTONE_HD inline sgd_scalars scalars_of(const sgd_coefficients& c, const group_rates& rates,
                                          const step_record& step) {
    const bool first = step.steps <= 1;
    return {static_cast<float>(rates.weight_decay), static_cast<float>(first ? 0 : c.momentum),
            static_cast<float>(first ? 1 : 1 - c.dampening), static_cast<float>(rates.lr(step))};
}

template <class Param, class Copy, class Accumulate, class State>
void check(const sgd_arguments<Param, Copy, Accumulate, State>& a) {
    const shape<1> count = a.master.shape();
    expect("sgd", "master", a.master, count);
    if constexpr (std::is_same_v<Param, bfloat16_remainder>) {
        expect("sgd", "copy", a.copy, count);
    } else {
        expect_optional("sgd", "copy", a.copy, count);
    }
    expect("sgd", "gradient", a.gradient, count);
    if (a.coefficients.momentum != 0) expect("sgd", "momentum", a.momentum, count);
    if (a.key.first % 4 != 0)
        fail<argument_error>("sgd: the random index begins at ", a.key.first, "; expected a multiple of 4");
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
