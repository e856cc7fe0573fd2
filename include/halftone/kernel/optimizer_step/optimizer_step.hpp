// SPDX-License-Identifier: MIT
/// \file
/// One step of an optimizer for a contiguous range of parameters, in one pass over memory: unscaling, clipping,
/// moments, decay, the parameter, its rounded copy. An optimizer's rule specifies how a parameter and its moments
/// change with its gradient: rule/adamw.hpp, rule/lion.hpp, rule/sgd.hpp.
///
///     kernel::optimizer_step<cpu>::run<rounding::nearest_even, kernel::adamw_rule, float, bfloat16, float, float>(
///         device, {.master = w, .copy = w16, .gradient = g, .moments = {m, v}, .rule = {.beta2 = 0.95},
///                  .rates = {.weight_decay = 0.1}, .factors = &record.factors, .step = &steps});
///
/// Numeric contract: arithmetic is in float, in double for parameters of a type that float does not hold (rule/in_double.hpp);
/// values that all parameters share (rates, bias corrections, 1 - lr * decay)
/// are computed in double and rounded to float once. The parameter is rounded once to its type, the copy once from the
/// stored parameter. A moment narrower than float is rounded stochastically: rounded to nearest in 8 bits, 0.999 v
/// would stay v forever. Elements are independent of each other. If `average` has data, the same pass updates it as the
/// exponential moving average of the stored parameters: average + (1 - average_decay) (w - average), in float; the
/// first step sets it to w.
///
/// A rule is a struct of its coefficients, plain data, with these members:
///
///     static constexpr const char* name;                  the optimizer's name, for messages
///     static constexpr int moments;                       number of moments of each parameter
///     static constexpr const char* moment_names[moments];
///     static constexpr bool always_keeps;                 if false, keeps() returns whether it stores moments at all
///     bool keeps() const;
///     float largest_gradient() const;                     up to which its moments stay finite (is_beyond() in common/update/records.hpp)
///     struct scalars;                                     values that all elements share, in float
///     scalars scalars_of(rates, step) const;              computes them for a step, on the host and on the device
///     template <class State> static consteval bool check_state();      rejects types that cannot hold its moments
///
/// and, in a body (rule/updates.simd.hpp) that is compiled for floats and for the vectors of each instruction set,
/// `updated(scalars, w, g, moments, keeps)`, which returns the new parameter and updates the moments in place.
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
    view<Param, 1> master;  ///< (count); for bfloat16_remainder the copy, its upper half, is required
    view<Copy, 1> copy{};                     ///< (count), or without data
    const_view<Accumulate, 1> gradient;       ///< (count), not unscaled
    view<State, 1> moments[Rule::moments]{};  ///< (count) each; without data if the rule stores none
    Rule rule{};
    group_rates rates{};
    const gradient_factors* factors = nullptr;  ///< in the device's memory
    const step_record* step = nullptr;          ///< in the device's memory; `steps` includes the current one
    rounding_key key{};
    view<float, 1> average{};  ///< (count), or without data
    double average_decay = 0;  ///< at least 0 and less than 1
};

/// `count` parameters of a step from the one at index `first` on, and their gradients.
template <class Accumulate>
struct step_run {
    extent first, count;
    const Accumulate* gradient;

    /// The part of the same parameters in another tensor of the step; nullptr if that has no data.
    template <class T>
    T* of(const view<T, 1>& v) const {
        return v.data() == nullptr ? nullptr : v.data() + first;
    }
};

/// Whether a rule only reads its moments, as declared by `static constexpr bool only_reads_moments = true`.
template <class Rule>
inline constexpr bool only_reads_moments = requires { requires Rule::only_reads_moments; };

/// The weight of a parameter in its average's update: 1 in its first step.
HALFTONE_HD inline float average_weight_of(double decay, const step_record& step) {
    return step.steps <= 1 ? 1.0f : static_cast<float>(1 - decay);
}

/// run<Rounding>(device, arguments): Rounding is the rounding of the parameter to its type. The last template argument
/// is the rounding of the copy from the parameter, by default to nearest even; split masters use neither. Changes
/// nothing if step->skips. Throws shape_error, and argument_error for a random index that is not a multiple of 4.
///
/// run_rows<Rounding>(device, arguments, rows): for a table (rows, width) with a sparse gradient. Only the gradient's
/// rows are read and written, each element as with a dense gradient of the same value, random numbers included;
/// arguments.gradient has no data.
template <class Device>
struct optimizer_step {
    static_assert(sizeof(Device) == 0,
                  "halftone: an optimizer's step: the kernels of this device are not included: include "
                  "<halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

template <class Rule, class Param, class Copy, class Accumulate, class State>
void check_all_but_moments(const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a) {
    const shape<1> count = a.master.shape();
    expect(Rule::name, "master", a.master, count);
    if constexpr (std::is_same_v<Param, bfloat16_remainder>) {
        expect(Rule::name, "copy", a.copy, count);
    } else {
        expect_optional(Rule::name, "copy", a.copy, count);
    }
    expect(Rule::name, "gradient", a.gradient, count);
    expect_optional(Rule::name, "average", a.average, count);
    if (a.key.first % 4 != 0)
        fail<argument_error>(Rule::name, ": the random index begins at ", a.key.first, "; expected a multiple of 4");
}

template <class Rule, class Param, class Copy, class Accumulate, class State>
void check(const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a) {
    check_all_but_moments(a);
    for (int i = 0; i < Rule::moments; ++i) {
        if (a.rule.keeps()) expect(Rule::name, Rule::moment_names[i], a.moments[i], a.master.shape());
    }
}

/// Throws shape_error or argument_error if the arguments of a step whose gradient is `rows` do not fit together.
template <class Rule, class Param, class Copy, class Accumulate, class State>
void check_rows(optimizer_step_arguments<Rule, Param, Copy, Accumulate, State> a, const gradient_rows<Accumulate>& rows) {
    if (a.average.data() != nullptr)
        fail<argument_error>(Rule::name, ": an average of parameters whose gradient is sparse; expected none, since rows "
                                         "without a gradient would not update theirs");
    a.gradient = {nullptr, a.master.shape()};
    check(a);
    const extent room = rows.indices.extent_of(0), width = rows.values.extent_of(1);
    expect(Rule::name, "indices", rows.indices, {room});
    expect(Rule::name, "values", rows.values, {room, width});
    if (width < 1 ? a.master.size() != 0 : a.master.size() % width != 0)
        fail<shape_error>(Rule::name, ": a table of ", a.master.size(), " elements and a gradient of rows of ", width);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
