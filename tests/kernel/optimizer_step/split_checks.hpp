// SPDX-License-Identifier: MIT
/// \file
/// On every device, a step of split masters has the bits of the step of whole masters whose copies round ties away from zero:
/// masters, copies, moments.
///
///     split_checks::equals_whole(device);
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace split_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using ht::bfloat16, ht::bfloat16_remainder;
using support::guarded;

enum class placement { aligned, unaligned };
enum class rule { adamw, lion, sgd };

inline const kernel::gradient_factors factors{1.0f / 128, 0.75f, 1.5f};

/// All operands of a step, masters whole or split.
template <class State>
struct slabs {
    ht::extent n;
    guarded<float> master;
    guarded<bfloat16_remainder> rest;
    guarded<bfloat16> copy;
    guarded<float> gradient;
    guarded<State> first, second;

    slabs(ht::extent count, placement where)
        : n(count), master(count, shift(where, 1)), rest(count, shift(where, 3)), copy(count, shift(where, 5)), gradient(count, shift(where, 2)),
          first(count, shift(where, 1)), second(count, shift(where, 7)) {
        support::random data{static_cast<std::uint64_t>(count)};
        const auto masters = data.normals<float>(count);
        const auto gradients = data.normals<float>(count, 100);
        for (ht::extent i = 0; i < n; ++i) {
            const auto k = static_cast<std::size_t>(i);
            // Every fourth one is a tie between its two bf16 neighbours.
            const float m =
                i % 4 != 0 ? masters[k] : ht::join({bfloat16(masters[k]), bfloat16_remainder::from_bits(0x8000)});
            master[i] = m;
            copy[i] = ht::halves_of(m).nearest, rest[i] = ht::halves_of(m).rest;
            gradient[i] = i % 5 == 0 ? 0 : gradients[k];
            first[i] = State(0.01f * gradients[k]), second[i] = State(0.01f);
        }
        if (n > 8)
            gradient[7] = std::numeric_limits<float>::quiet_NaN(),
            gradient[8] = -std::numeric_limits<float>::infinity();
    }
    static ht::extent shift(placement where, ht::extent by) { return where == placement::aligned ? 0 : by; }

    bool intact() const {
        return master.intact() && rest.intact() && copy.intact() && gradient.intact() && first.intact() &&
               second.intact();
    }
    bool same_bits(const slabs& o) const {
        return copy.same_bits(o.copy) && first.same_bits(o.first) && second.same_bits(o.second) &&
               rest.same_bits(o.rest);
    }
};

/// One step of the masters in `masters`: floats, or remainders.
template <rule Rule, class Device, class Master, class State>
void step(Device& device, const slabs<State>& s, const guarded<Master>& masters, const kernel::step_record& record) {
    constexpr auto away = ht::rounding::nearest_away, even = ht::rounding::nearest_even;
    if constexpr (Rule == rule::adamw) {
        kernel::optimizer_step<Device>::template run<even, kernel::adamw_rule, Master, bfloat16, float, State, away>(
            device, {.master = masters.view(),
                     .copy = s.copy.view(),
                     .gradient = s.gradient.const_view(),
                     .moments = {s.first.view(), s.second.view()},
                     .rates = {.weight_decay = 0.1},
                     .factors = &factors,
                     .step = &record,
                     .key = {.seed = 5, .tensor = 8, .first = 64}});
    } else if constexpr (Rule == rule::lion) {
        kernel::optimizer_step<Device>::template run<even, kernel::lion_rule, Master, bfloat16, float, State, away>(
            device, {.master = masters.view(),
                     .copy = s.copy.view(),
                     .gradient = s.gradient.const_view(),
                     .moments = {s.first.view()},
                     .rates = {.weight_decay = 0.1},
                     .factors = &factors,
                     .step = &record,
                     .key = {.seed = 5, .tensor = 8, .first = 64}});
    } else {
        kernel::optimizer_step<Device>::template run<even, kernel::sgd_rule, Master, bfloat16, float, State, away>(
            device, {.master = masters.view(),
                     .copy = s.copy.view(),
                     .gradient = s.gradient.const_view(),
                     .moments = {s.first.view()},
                     .rule = {.momentum = 0.9},
                     .rates = {.weight_decay = 0.1},
                     .factors = &factors,
                     .step = &record,
                     .key = {.seed = 5, .tensor = 8, .first = 64}});
    }
}

/// Some steps of whole masters and of split ones; the third step is skipped. True if all bits are the same, except in the lower
/// halves of NaNs.
template <rule Rule, class State, class Device>
bool same_steps(Device& whole_on, Device& split_on, ht::extent n, placement where) {
    const slabs<State> whole(n, where), split(n, where);
    for (int t = 1; t <= 4; ++t) {
        const kernel::step_record record{.steps = t, .lr = 0.01, .skips = t == 3};
        step<Rule>(whole_on, whole, whole.master, record);
        step<Rule>(split_on, split, split.rest, record);
    }
    for (ht::extent i = 0; i < n; ++i) whole.rest[i] = ht::halves_of(whole.master[i]).rest;
    return split.same_bits(whole) && whole.intact() && split.intact();
}

template <rule Rule, class State, class Device>
void equals_whole(Device& device) {
    for (const ht::extent n : {1, 5, 15, 17, 67, 1009, 2 * 16384 + 33}) {
        CAPTURE(n);
        CHECK(same_steps<Rule, State>(device, device, n, placement::aligned));
        CHECK(same_steps<Rule, State>(device, device, n, placement::unaligned));
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
    const kernel::gradient_factors plain;
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
    const slabs<float> s(10, placement::aligned);
    const kernel::step_record record{.steps = 1, .lr = 0.01};
    using arguments = kernel::optimizer_step_arguments<kernel::adamw_rule, bfloat16_remainder, bfloat16, float, float>;
    CHECK_THROWS_AS(kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even>(
                        device, arguments{.master = s.rest.view(),
                                          .gradient = s.gradient.const_view(),
                                          .moments = {s.first.view(), s.second.view()},
                                          .factors = &factors,
                                          .step = &record}),
                    ht::shape_error);
}

}  // namespace split_checks
