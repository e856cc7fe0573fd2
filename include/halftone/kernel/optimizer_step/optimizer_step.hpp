// SPDX-License-Identifier: MIT
/// \file
/// One step of an optimizer over a contiguous run of parameters, in one pass that reads and writes: unscale, clip, moments,
/// decay, the parameter, its rounded copy. What an optimizer does with a parameter, its gradient and its moments is its rule:
/// rule/adamw.hpp, rule/lion.hpp, rule/sgd.hpp.
///
///     kernel::optimizer_step<cpu>::run<rounding::nearest_even, kernel::adamw_rule, float, bfloat16, float, float>(
///         device, {.master = w, .copy = w16, .gradient = g, .moments = {m, v}, .rule = {.beta2 = 0.95},
///                  .rates = {.weight_decay = 0.1}, .factors = &record.factors, .step = &steps});
///
/// Numeric contract: arithmetic in float; what all parameters share (rates, bias corrections, 1 - lr * decay) in double, rounded
/// to float once. The parameter is rounded once to its type, the copy once from the parameter as stored. A moment narrower than
/// float is rounded stochastically: 0.999 v, rounded to nearest in 8 bits, would be v for ever. Element by element, so the
/// result depends on nothing but the element.
///
/// `average`, where it is there, becomes the exponential moving average of the parameters as they are stored, in the same pass:
/// average + (1 - average_decay) (w - average), in float, and w itself in the first step.
///
/// A rule is a struct of its coefficients, plain data, which says
///
///     static constexpr const char* name;                  the optimizer's, for messages
///     static constexpr int moments;                       how many it keeps of each parameter
///     static constexpr const char* moment_names[moments];
///     static constexpr bool always_keeps;                 else keeps() says whether it keeps any
///     bool keeps() const;
///     float largest_gradient() const;                     with which its moments stay finite (is_beyond() in records.hpp)
///     struct scalars;                                     what the elements need, in float
///     scalars scalars_of(rates, step) const;              the same of one step, on the host and on the device
///     template <class State> static consteval bool check_state();      refuses types in which moments do not work
///
/// and, in a body (rule/<name>.simd.hpp) that is compiled for floats and for the vectors of each instruction set,
/// `updated(scalars, w, g, moments, keeps)`: the new parameter, and the new moments in place.
#pragma once

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/memory/gradient_rows.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/number/rounding.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class Rule, class Param, class Copy, class Accumulate, class State>
struct optimizer_step_arguments {
    view<Param, 1> master;  ///< (count); bfloat16_remainder: its upper half is the copy, which must be there
    view<Copy, 1> copy{};                     ///< (count), or none
    const_view<Accumulate, 1> gradient;       ///< (count), as the backward pass left it
    view<State, 1> moments[Rule::moments]{};  ///< (count) each; none where the rule keeps none
    Rule rule{};
    group_rates rates{};
    const gradient_factors* factors = nullptr;  ///< in the device's memory
    const step_record* step = nullptr;          ///< in the device's memory; `steps` counts the present one already
    rounding_key key{};
    view<float, 1> average{};  ///< (count), or none
    double average_decay = 0;  ///< of the average: 0 or more and less than 1
};

/// How much of a parameter goes into its average: all of it in its first step.
HALFTONE_HD inline float average_weight_of(double decay, const step_record& step) {
    return step.steps <= 1 ? 1.0f : static_cast<float>(1 - decay);
}

/// run<Rounding>(device, arguments): Rounding is how the parameter is rounded to its type. A last template argument
/// says how the copy is rounded from it, to nearest even where it is left out; split masters do without both. Changes
/// nothing where step->skips. Throws shape_error, and argument_error for a random index that is no multiple of 4.
///
/// run_rows<Rounding>(device, arguments, rows): for a table (rows, width) whose gradient is sparse. Only the rows in it
/// are read and written, each element as with the dense gradient of the same value, random numbers included;
/// arguments.gradient is none.
template <class Device>
struct optimizer_step {
    static_assert(sizeof(Device) == 0,
                  "halftone: an optimizer's step: the kernels of this device are not included: include "
                  "<halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

template <class Rule, class Param, class Copy, class Accumulate, class State>
void check(const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a) {
    const shape<1> count = a.master.shape();
    expect(Rule::name, "master", a.master, count);
    if constexpr (std::is_same_v<Param, bfloat16_remainder>) {
        expect(Rule::name, "copy", a.copy, count);
    } else {
        expect_optional(Rule::name, "copy", a.copy, count);
    }
    expect(Rule::name, "gradient", a.gradient, count);
    expect_optional(Rule::name, "average", a.average, count);
    for (int i = 0; i < Rule::moments; ++i) {
        if (a.rule.keeps()) expect(Rule::name, Rule::moment_names[i], a.moments[i], count);
    }
    if (a.key.first % 4 != 0)
        fail<argument_error>(Rule::name, ": the random index begins at ", a.key.first, "; expected a multiple of 4");
}

/// The same of arguments whose gradient is that of `rows`.
template <class Rule, class Param, class Copy, class Accumulate, class State>
void check_rows(optimizer_step_arguments<Rule, Param, Copy, Accumulate, State> a, const gradient_rows<Accumulate>& rows) {
    if (a.average.data() != nullptr)
        fail<argument_error>(Rule::name, ": an average of parameters whose gradient is sparse; expected none, since rows "
                                         "without a gradient would not move theirs");
    a.gradient = {nullptr, a.master.shape()};
    check(a);
    const extent room = rows.indices.extent_of(0), width = rows.values.extent_of(1);
    expect(Rule::name, "indices", rows.indices, {room});
    expect(Rule::name, "values", rows.values, {room, width});
    if (width < 1 ? a.master.size() != 0 : a.master.size() % width != 0)
        fail<shape_error>(Rule::name, ": a table of ", a.master.size(), " numbers and a gradient of rows of ", width);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
