// SPDX-License-Identifier: MIT
/// \file
/// Tests of a step of Lion, for every device.
///
///     lion_checks::equals_definition<lion_checks::slabs<float, ht::bfloat16, float, float>>(device);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/number/round_to.hpp>

#include "kernel/optimizer_step/step_checks.hpp"
#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace lion_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using support::guarded;
using step_checks::doubles, step_checks::factors, step_checks::placement, step_checks::run,
    step_checks::sizes, step_checks::third, step_checks::view_of;

/// All operands of a step. Some directions, beta1 m + (1 - beta1) g, are 0.
template <class Param_, class Copy_, class Accumulate, class State_>
struct slabs {
    using Param = Param_;
    using Copy = Copy_;
    using State = State_;
    using arguments_type = kernel::optimizer_step_arguments<kernel::lion_rule, Param, Copy, Accumulate, State>;

    guarded<Param> master;
    guarded<Copy> copy;
    guarded<Accumulate> gradient;
    guarded<State> momentum;

    slabs(support::random& data, ht::extent n, placement where = placement::unaligned)
        : master(data.normals<Param>(n), where == placement::aligned ? 0 : n % 5),
          copy(n, where == placement::aligned ? 0 : 1 + n % 5),
          gradient(data.normals<Accumulate>(n, 100), where == placement::aligned ? 0 : n % 3),
          momentum(data.normals<State>(n, 0.1), where == placement::aligned ? 0 : n % 7) {
        for (ht::extent i = 4; i < n; i += 10) gradient[i] = Accumulate(0.0f), momentum[i] = State(0.0f);
    }
    arguments_type arguments(const kernel::step_record& s) const {
        return {.master = master.view(),
                .copy = copy.view(),
                .gradient = gradient.const_view(),
                .moments = {momentum.view()},
                .rule = {0.9, 0.98},
                .rates = {.weight_decay = 0.1},
                .factors = &factors,
                .step = &s,
                .key = {.seed = 5, .tensor = 8, .first = 64}};
    }
    bool intact() const { return master.intact() && copy.intact() && gradient.intact() && momentum.intact(); }
    bool same_bits(const slabs& o) const {
        return master.same_bits(o.master) && copy.same_bits(o.copy) && momentum.same_bits(o.momentum);
    }
};

/// Parameters and moments within their bounds of the definition; copies are their masters, rounded. Where rounding may change
/// the sign of a direction, a parameter may go either way; most do not.
template <class S, class Device>
void equals_definition(Device& device) {
    support::random data{1};
    support::comparison masters, momenta;
    std::int64_t either_way = 0, all = 0, still = 0;
    for (const ht::extent n : sizes) {
        for (const placement where : {placement::aligned, placement::unaligned}) {
            const S s(data, n, where);
            std::vector<double> w = doubles(s.master), g = doubles(s.gradient), m = doubles(s.momentum);
            const std::vector<double> w0 = w, m0 = m;
            ht::reference::lion(view_of(w), view_of(g), view_of(m), {0.9, 0.98}, 0.01, 0.1, factors);
            run(device, s.arguments(third));
            bool copied = true;
            for (ht::extent i = 0; i < n; ++i) {
                const auto k = static_cast<std::size_t>(i);
                const double read = ht::reference::read_gradient(g[k], factors);
                // Factors of the gradient, weights rounded to float, a product and a sum.
                const double error_direction = support::gamma(6) * (0.9 * std::fabs(m0[k]) + 0.1 * std::fabs(read));
                const double direction = std::fabs(0.9 * m0[k] + 0.1 * read);
                const bool is_clear = direction > error_direction || (m0[k] == 0 && read == 0);
                masters.expect(static_cast<double>(s.master[i]), w[k],
                               (is_clear ? 0 : 0.02) + support::gamma(3) * (std::fabs(w0[k]) + 0.01));
                const double error_m = support::gamma(6) * (0.98 * std::fabs(m0[k]) + 0.02 * std::fabs(read));
                const bool rounds = sizeof(typename S::State) < 4;
                momenta.expect(
                    static_cast<double>(s.momentum[i]), m[k],
                    error_m + (rounds ? 2 * support::rounding<typename S::State>(std::fabs(m[k]) + error_m) : 0));
                copied = copied && static_cast<float>(s.copy[i]) ==
                                       static_cast<float>(typename S::Copy(static_cast<float>(s.master[i])));
                either_way += is_clear ? 0 : 1, still += direction == 0 ? 1 : 0, ++all;
            }
            CHECK(copied);
            CHECK(s.intact());
        }
    }
    CHECK_WITHIN(masters);
    CHECK_WITHIN(momenta);
    CHECK(either_way * 1000 <= all);
    CHECK(still * 20 > all);
}

/// A moment in bf16 and a parameter in bf16 are rounded by the random bits of their tensors at their index.
template <class Device>
void rounds_by_place(Device& device) {
    const ht::extent n = 4099;
    support::random data{7};
    slabs<ht::bfloat16, float, float, ht::bfloat16> s(data, n);
    for (ht::extent i = 0; i < n; ++i) s.momentum[i] = ht::bfloat16(0.0f), s.master[i] = ht::bfloat16(1.0f);
    const kernel::gradient_factors plain;
    const kernel::step_record record{.steps = 9, .lr = 0x1p-12};
    auto a = s.arguments(record);
    a.rule = {0, 0};  // the moment is the gradient, and so is the direction
    a.rates.weight_decay = 0;
    a.factors = &plain;
    run<ht::rounding::stochastic>(device, a);
    for (ht::extent i = 0; i < n; ++i) {
        const std::uint64_t place = 64 + static_cast<std::uint64_t>(i);
        const float g = s.gradient[i], w = g > 0 ? 1 - 0x1p-12f : g < 0 ? 1 + 0x1p-12f : 1;
        CHECK(s.momentum[i].bits() == ht::round_stochastic<ht::bfloat16>(g, ht::random_bits(5, 9, 9, place)).bits());
        CHECK(s.master[i].bits() == ht::round_stochastic<ht::bfloat16>(w, ht::random_bits(5, 9, 8, place)).bits());
    }
}

/// A skipped step changes nothing, the copy is optional, and arguments that do not fit together throw.
template <class Device>
void skips_and_refuses(Device& device) {
    support::random one{5}, two{5};
    using mixed = slabs<float, ht::bfloat16, float, float>;
    const mixed s(one, 100), untouched(two, 100);
    step_checks::check_skips(s, untouched, [&](const kernel::step_record& record, bool has_copy) {
        auto a = s.arguments(record);
        if (!has_copy) a.copy = {};
        run(device, a);
    });
    auto a = s.arguments(third);
    a.moments[0] = {s.momentum.data(), {9}};
    CHECK_THROWS_WITH_AS(run(device, a), "lion: momentum is (9); expected (100)", ht::shape_error);
    a = s.arguments(third);
    a.key.first = 3;
    CHECK_THROWS_AS(run(device, a), ht::argument_error);
}

}  // namespace lion_checks
