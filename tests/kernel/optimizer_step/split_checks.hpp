// SPDX-License-Identifier: MIT
/// \file
/// On every device, a step of split masters has the bits of the step of whole masters whose copies round ties away from zero:
/// masters, copies, moments.
///
///     split_checks::equals_whole<adamw_rule, float>(device);
#pragma once

#include <limits>

#include "kernel/optimizer_step/step_checks.hpp"

namespace split_checks {

using namespace step_checks;
using ht::bfloat16, ht::bfloat16_remainder;

/// All operands of a step, masters whole or split.
template <class Rule, class State>
struct both : slabs<Rule, float, bfloat16, float, State> {
    guarded<bfloat16_remainder> rest;

    both(ht::extent n, placement where) : both(support::random(static_cast<std::uint64_t>(n)), n, where) {}
    both(support::random data, ht::extent n, placement where)
        : slabs<Rule, float, bfloat16, float, State>(data, n, where), rest(n, where == placement::aligned ? 0 : 3) {
        auto& master = this->master;
        for (ht::extent i = 0; i < n; ++i) {
            // Every fourth one is a tie between its two bf16 neighbours.
            if (i % 4 == 0) master[i] = ht::join({bfloat16(master[i]), bfloat16_remainder::from_bits(0x8000)});
            this->copy[i] = ht::halves_of(master[i]).nearest, rest[i] = ht::halves_of(master[i]).rest;
        }
        if (n > 8)
            this->gradient[7] = std::numeric_limits<float>::quiet_NaN(),
            this->gradient[8] = -std::numeric_limits<float>::infinity();
    }
    bool intact() const { return slabs<Rule, float, bfloat16, float, State>::intact() && rest.intact(); }
    /// Split ones: whole masters may differ.
    bool same_halves(const both& o) const {
        bool all = this->copy.same_bits(o.copy) && rest.same_bits(o.rest);
        for (int k = 0; k < Rule::moments; ++k) all = all && this->moment(k).same_bits(o.moment(k));
        return all;
    }
};

/// One step of the masters in `masters`: floats, or remainders.
template <class Device, class Rule, class State, class Master>
void step_masters(Device& device, const both<Rule, State>& s, const guarded<Master>& masters,
                  const kernel::step_record& record) {
    const auto from = s.arguments(record);
    kernel::optimizer_step_arguments<Rule, Master, bfloat16, float, State> a{.master = masters.view(),
                                                                             .copy = from.copy,
                                                                             .gradient = from.gradient,
                                                                             .rule = from.rule,
                                                                             .rates = from.rates,
                                                                             .factors = from.factors,
                                                                             .step = from.step,
                                                                             .key = from.key};
    for (int k = 0; k < Rule::moments; ++k) a.moments[k] = from.moments[k];
    kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even, Rule, Master, bfloat16, float, State,
                                                 ht::rounding::nearest_away>(device, a);
}

/// Some steps of whole masters and of split ones; the third step is skipped. True if all bits are the same, except in the lower
/// halves of NaNs.
template <class Rule, class State, class Device>
bool same_steps(Device& whole_on, Device& split_on, ht::extent n, placement where) {
    const both<Rule, State> whole(n, where), split(n, where);
    for (int t = 1; t <= 4; ++t) {
        const kernel::step_record record{.steps = t, .lr = 0.01, .skips = t == 3};
        step_masters(whole_on, whole, whole.master, record);
        step_masters(split_on, split, split.rest, record);
    }
    for (ht::extent i = 0; i < n; ++i) whole.rest[i] = ht::halves_of(whole.master[i]).rest;
    return split.same_halves(whole) && whole.intact() && split.intact();
}

template <class Rule, class State, class Device>
void equals_whole(Device& device) {
    for (const ht::extent n : {1, 5, 15, 17, 67, 1009, 2 * 16384 + 33}) {
        CAPTURE(n);
        for (const placement where : placements) CHECK(same_steps<Rule, State>(device, device, n, where));
    }
}

/// Copies of whole masters, in any type, are rounded as requested: ties away from zero.
template <class Device>
void rounds_away(Device& device) {
    const ht::extent n = 67;
    guarded<float> master(n), gradient(n), momentum(n);
    guarded<ht::float16> copy(n);
    for (ht::extent i = 0; i < n; ++i)
        master[i] = 1 + static_cast<float>(i) * 0x1p-11f, gradient[i] = 0, momentum[i] = 0;  // every second one a tie
    const kernel::step_record record{.steps = 2, .lr = 0.01};
    kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even, kernel::sgd_rule, float, ht::float16,
                                                 float, float, ht::rounding::nearest_away>(
        device, {.master = master.view(),
                 .copy = copy.view(),
                 .gradient = gradient.const_view(),
                 .moments = {momentum.view()},
                 .factors = &plain,
                 .step = &record});
    for (ht::extent i = 0; i < n; ++i) {
        CHECK(copy[i].bits() == ht::round_to<ht::float16, ht::rounding::nearest_away>(master[i]).bits());
        if (i % 4 == 1) CHECK(copy[i].bits() == ht::float16(master[i]).bits() + 1);
    }
}

/// A split master without its upper half throws.
template <class Device>
void refuses(Device& device) {
    const both<adamw_rule, float> s(10, placement::aligned);
    kernel::optimizer_step_arguments<adamw_rule, bfloat16_remainder, bfloat16, float, float> a{
        .master = s.rest.view(), .gradient = s.gradient.const_view(), .factors = &factors, .step = &third};
    for (int k = 0; k < 2; ++k) a.moments[k] = s.moment(k).view();
    CHECK_THROWS_AS(run(device, a), ht::shape_error);
}

}  // namespace split_checks
