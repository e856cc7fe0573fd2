// SPDX-License-Identifier: MIT
/// \file
/// A step of an optimizer on the CPU; optimizer_step.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>

#define HALFTONE_BODY <halftone/kernel/optimizer_step/rule/adafactor.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
#define HALFTONE_BODY <halftone/kernel/optimizer_step/rule/adamw.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
#define HALFTONE_BODY <halftone/kernel/optimizer_step/rule/assign.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
#define HALFTONE_BODY <halftone/kernel/optimizer_step/rule/lion.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
#define HALFTONE_BODY <halftone/kernel/optimizer_step/rule/muon.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
#define HALFTONE_BODY <halftone/kernel/optimizer_step/rule/sgd.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
#define HALFTONE_BODY <halftone/kernel/optimizer_step/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

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
            return device.select(
                &portable::optimizer_step_elements<Rule, Keeps, Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                &avx2::optimizer_step_elements<Rule, Keeps, Rounding, CopyRounding, Param, Copy, Accumulate, State>,
                &avx512::optimizer_step_elements<Rule, Keeps, Rounding, CopyRounding, Param, Copy, Accumulate, State>);
        };
        const auto body = [&] {
            if constexpr (requires { typename std::bool_constant<Rule::keeps()>; }) {
                return select(std::bool_constant<Rule::keeps()>{});
            } else {
                return a.rule.keeps() ? select(std::true_type{}) : select(std::false_type{});
            }
        }();
        return [a, body, scalars = a.rule.scalars_of(a.rates, *a.step), factors = *a.factors,
                step = static_cast<std::uint32_t>(a.step->steps),
                average_weight = average_weight_of(a.average_decay, *a.step)](extent i, extent n, const Accumulate* gradient) {
            State* moments[Rule::moments];
            for (int k = 0; k < Rule::moments; ++k) moments[k] = a.rule.keeps() ? a.moments[k].data() + i : nullptr;
            body(n, a.master.data() + i, a.copy.data() == nullptr ? nullptr : a.copy.data() + i, gradient, moments,
                 scalars, factors, a.key, step, i, streams_copies<Param>(a.copy, i),
                 a.average.data() == nullptr ? nullptr : a.average.data() + i, average_weight);
        };
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
