// SPDX-License-Identifier: MIT
/// \file
/// A step of an optimizer on the CPU; optimizer_step.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/optimizer_step/device/floats.hpp>
#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>
#include <halftone/kernel/optimizer_step/rule/in_double.hpp>

#define HALFTONE_BODY <halftone/kernel/optimizer_step/rule/updates.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
#define HALFTONE_BODY <halftone/kernel/optimizer_step/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// A step over a run of parameters of a type that float does not hold, as optimizer_step_elements.
template <class Rule, bool Keeps, rounding CopyRounding, wide_number Param, class Copy, class Accumulate, class State>
void wide_step_elements(const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a,
                        const step_run<Accumulate>& run, State* const* moments, const step_scalars_of<Rule, double>& s,
                        bool) {
    Param* const master = run.of(a.master);
    Copy* const copy = run.of(a.copy);
    float* const average = run.of(a.average);
    const float average_weight = average_weight_of(a.average_decay, *a.step);
    for (extent i = 0; i < run.count; ++i) {
        double m[Rule::moments] = {};
        if (Keeps) {
            for (int k = 0; k < Rule::moments; ++k) m[k] = static_cast<double>(moments[k][i]);
        }
        const double g = read_gradient_in_double(static_cast<float>(run.gradient[i]), *a.factors);
        master[i] = Param(on_device::doubles::updated_by_rule(s, static_cast<double>(master[i]), g, m, Keeps));
        if (Keeps && !only_reads_moments<Rule>) {
            for (int k = 0; k < Rule::moments; ++k) {
                const auto next = static_cast<float>(m[k]);
                if constexpr (std::is_same_v<State, float>) {
                    moments[k][i] = next;
                } else {
                    moments[k][i] = round_stochastic<State>(
                        next, random_bits(a.key.seed, static_cast<std::uint32_t>(a.step->steps),
                                          a.key.tensor + static_cast<std::uint32_t>(1 + k),
                                          a.key.first + static_cast<std::uint64_t>(run.first + i)));
                }
            }
        }
        const auto stored = static_cast<double>(master[i]);
        if (copy != nullptr) copy[i] = halftone::detail::round_double<Copy, CopyRounding>(stored);
        if (average != nullptr) average[i] += (static_cast<float>(stored) - average[i]) * average_weight;
    }
}

template <>
struct optimizer_step<cpu> {
    template <rounding Rounding, class Rule, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run(cpu& device, const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a) {
        check(a);
        device.run([&] {
            if (a.step->skips != 0) return;
            update_all(device, a.gradient, updater<Rounding, CopyRounding>(device, a));
        });
    }

    template <rounding Rounding, class Rule, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run_rows(cpu& device, const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a,
                         const gradient_rows<Accumulate>& rows) {
        check_rows(a, rows);
        device.run([&] {
            if (a.step->skips != 0) return;
            update_rows(device, rows, updater<Rounding, CopyRounding>(device, a));
        });
    }

  private:
    /// Updates n parameters from the i-th on with their gradients.
    template <rounding Rounding, rounding CopyRounding, class Rule, class Param, class Copy, class Accumulate,
              class State>
    static auto updater(cpu& device, const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a) {
        const auto select = [&]<bool Keeps>(std::bool_constant<Keeps>) {
            if constexpr (wide_number<Param>) {
                return &wide_step_elements<Rule, Keeps, CopyRounding, Param, Copy, Accumulate, State>;
            } else {
                return device.select(HALFTONE_EACH_SET(
                    optimizer_step_elements<Rule, Keeps, Rounding, CopyRounding, Param, Copy, Accumulate, State>));
            }
        };
        const auto body = [&] {
            if constexpr (requires { typename std::bool_constant<Rule::keeps()>; }) {
                return select(std::bool_constant<Rule::keeps()>{});
            } else {
                return a.rule.keeps() ? select(std::true_type{}) : select(std::false_type{});
            }
        }();
        return [a, body, scalars = scalars_in_real<step_real_of<Param>>(a.rule, a.rates, *a.step)](
                   extent i, extent n, const Accumulate* gradient) {
            State* moments[Rule::moments];
            for (int k = 0; k < Rule::moments; ++k) moments[k] = a.rule.keeps() ? a.moments[k].data() + i : nullptr;
            body(a, {i, n, gradient}, moments, scalars, streams_copies<Param>(a.copy, i));
        };
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
