// SPDX-License-Identifier: MIT
/// \file
/// Tests of a step of stochastic gradient descent, for every device.
///
///     sgd_checks::equals_definition<float>(device);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/number/round_to.hpp>

#include "kernel/optimizer_step/step_checks.hpp"
#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace sgd_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using support::guarded;
using step_checks::doubles, step_checks::factors, step_checks::placement, step_checks::run,
    step_checks::sizes, step_checks::view_of;

/// All operands of a step.
template <class Param, class Copy, class Accumulate, class State>
struct slabs {
    guarded<Param> master;
    guarded<Copy> copy;
    guarded<Accumulate> gradient;
    guarded<State> momentum;

    slabs(support::random& data, ht::extent n, placement where = placement::unaligned)
        : master(data.normals<Param>(n), where == placement::aligned ? 0 : n % 5),
          copy(n, where == placement::aligned ? 0 : 1),
          gradient(data.normals<Accumulate>(n, 100), where == placement::aligned ? 0 : 3),
          momentum(data.normals<State>(n), where == placement::aligned ? 0 : 2) {}
    kernel::optimizer_step_arguments<kernel::sgd_rule, Param, Copy, Accumulate, State> arguments(
        const kernel::sgd_rule& c, const kernel::step_record& s) const {
        return {.master = master.view(),
                .copy = copy.view(),
                .gradient = gradient.const_view(),
                .moments = {momentum.view()},
                .rule = c,
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

template <class Accumulate, class Device>
void check_steps(Device& device, const kernel::sgd_rule& c, std::int64_t steps, placement where) {
    support::random data{1};
    support::comparison masters, momenta;
    const kernel::step_record record{.steps = steps, .lr = 0.01};
    for (const ht::extent n : sizes) {
        const slabs<float, ht::bfloat16, Accumulate, float> s(data, n, where);
        std::vector<double> w = doubles(s.master), g = doubles(s.gradient), m = doubles(s.momentum);
        const std::vector<double> w0 = w, m0 = m;
        ht::reference::sgd(view_of(w), view_of(g), view_of(m), c, 0.01, 0.1, static_cast<double>(steps), factors);
        run(device, s.arguments(c, record));
        bool copied = true;
        for (ht::extent i = 0; i < n; ++i) {
            const auto k = static_cast<std::size_t>(i);
            const double read = std::fabs(ht::reference::read_gradient(g[k], factors)) + 0.1 * std::fabs(w0[k]);
            const double sum = read + c.momentum * std::fabs(m0[k]);
            if (c.momentum != 0) momenta.expect(static_cast<double>(s.momentum[i]), m[k], support::gamma(8) * sum);
            masters.expect(static_cast<double>(s.master[i]), w[k],
                           0.01 * support::gamma(13) * 2 * sum + support::u * std::fabs(w[k]));
            copied = copied && s.copy[i].bits() == ht::bfloat16(s.master[i]).bits();
        }
        CHECK(copied);
        if (c.momentum == 0) CHECK(doubles(s.momentum) == m0);
        CHECK(s.intact());
    }
    CHECK_WITHIN(masters);
    if (c.momentum != 0) CHECK_WITHIN(momenta);
}

inline const kernel::sgd_rule kinds[] = {{},
                                         {.momentum = 0.9},
                                         {.momentum = 0.9, .dampening = 0.5},
                                         {.momentum = 0.9, .kind = kernel::momentum_kind::nesterov}};

template <class Accumulate, class Device>
void equals_definition(Device& device) {
    for (const std::int64_t steps : {1, 5}) {
        for (const kernel::sgd_rule& c : kinds) {
            check_steps<Accumulate>(device, c, steps, placement::aligned);
            check_steps<Accumulate>(device, c, steps, placement::unaligned);
        }
    }
}

/// A parameter is rounded by the random bits of its index.
template <class Param, class Device>
void rounds_by_place(Device& device) {
    const ht::extent n = 16384 + 77;
    for (const int offset : {0, 5}) {
        support::random data{3};
        const guarded<Param> master(std::vector<Param>(static_cast<std::size_t>(n), Param(0.0f)), offset);
        const guarded<float> gradient(data.normals<float>(n), offset);
        for (ht::extent i = 0; i < 100; ++i) gradient[i] *= 0x1p-18f;  // subnormal in fp16
        const kernel::step_record record{.steps = 9, .lr = 1};
        const kernel::gradient_factors plain;
        run<ht::rounding::stochastic>(device,
                                      kernel::optimizer_step_arguments<kernel::sgd_rule, Param, float, float, float>{
                                          .master = master.view(),
                                          .gradient = gradient.const_view(),
                                          .factors = &plain,
                                          .step = &record,
                                          .key = {.seed = 77, .tensor = 12, .first = 256}});
        for (ht::extent i = 0; i < n; ++i) {
            const std::uint32_t bits = ht::random_bits(77, 9, 12, 256 + static_cast<std::uint64_t>(i));
            CHECK(master[i].bits() == ht::round_stochastic<Param>(-gradient[i], bits).bits());
        }
        CHECK(master.intact());
    }
}

/// Parameters without a master move on average.
template <class Device>
void moves_on_average(Device& device) {
    const ht::extent n = 4099;
    const guarded<ht::bfloat16> master(std::vector<ht::bfloat16>(n, ht::bfloat16(1.0f)));
    const guarded<float> gradient(std::vector<float>(n, 1.0f));
    kernel::step_record record{.steps = 1, .lr = 1e-4};
    for (; record.steps <= 10; ++record.steps) {
        const kernel::gradient_factors plain;
        run<ht::rounding::stochastic>(
            device, kernel::optimizer_step_arguments<kernel::sgd_rule, ht::bfloat16, ht::bfloat16, float, float>{
                        .master = master.view(),
                        .gradient = gradient.const_view(),
                        .factors = &plain,
                        .step = &record,
                        .key = {.seed = 1}});
    }
    double moved = 0;
    for (ht::extent i = 0; i < n; ++i) moved += (1 - static_cast<double>(master[i])) / static_cast<double>(n);
    CHECK(std::fabs(moved - 1e-3) < 5 * std::sqrt(10.0 / static_cast<double>(n)) * 0x1p-9);
    CHECK(master.intact());
}

/// A skipped step changes nothing; arguments that do not fit together throw.
template <class Device>
void skips_and_refuses(Device& device) {
    const guarded<float> master(std::vector<float>(10, 1.0f)), gradient(std::vector<float>(10, 1.0f)),
        momentum(std::vector<float>(10, 0.0f));
    kernel::step_record record{.steps = 1, .lr = 0.1, .skips = 1};
    kernel::optimizer_step_arguments<kernel::sgd_rule, float, float, float, float> a{.master = master.view(),
                                                                                     .gradient = gradient.const_view(),
                                                                                     .moments = {momentum.view()},
                                                                                     .rule = {.momentum = 0.9},
                                                                                     .factors = &factors,
                                                                                     .step = &record};
    run(device, a);
    CHECK(master[3] == 1);
    CHECK(momentum[3] == 0);
    a.moments[0] = {};
    CHECK_THROWS_AS(run(device, a), ht::shape_error);
    a.rule.momentum = 0;
    a.key.first = 1;
    CHECK_THROWS_AS(run(device, a), ht::argument_error);
}

}  // namespace sgd_checks
