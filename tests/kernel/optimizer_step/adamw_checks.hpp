// SPDX-License-Identifier: MIT
/// \file
/// Tests of a step of AdamW, for every device.
///
///     adamw_checks::equals_definition<adamw_checks::slabs<float, ht::bfloat16, float, float>>(device);
#pragma once

#include <cmath>
#include <limits>
#include <memory>
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

namespace adamw_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using support::guarded;
using step_checks::doubles, step_checks::factors, step_checks::placement, step_checks::run,
    step_checks::sizes, step_checks::third, step_checks::view_of;

/// All operands of a step.
template <class Param_, class Copy, class Accumulate, class State>
struct slabs {
    using Param = Param_;

    guarded<Param> master;
    guarded<Copy> copy;
    guarded<Accumulate> gradient;
    guarded<State> first, second;

    slabs(support::random& data, ht::extent n, placement where = placement::unaligned)
        : master(data.normals<Param>(n), where == placement::aligned ? 0 : n % 5),
          copy(n, where == placement::aligned ? 0 : 1 + n % 5),
          gradient(data.normals<Accumulate>(n, 100), where == placement::aligned ? 0 : n % 3),
          first(data.normals<State>(n, 0.1), where == placement::aligned ? 0 : n % 5),
          second(data.normals<State>(n, 0.01), where == placement::aligned ? 0 : n % 7) {
        for (ht::extent i = 0; i < n; ++i) second[i] = static_cast<State>(std::fabs(static_cast<float>(second[i])));
    }
    kernel::optimizer_step_arguments<kernel::adamw_rule, Param, Copy, Accumulate, State> arguments(
        const kernel::gradient_factors& f, const kernel::step_record& s) const {
        return {.master = master.view(),
                .copy = copy.view(),
                .gradient = gradient.const_view(),
                .moments = {first.view(), second.view()},
                .rule = {0.9, 0.99, 1e-6},
                .rates = {.weight_decay = 0.1},
                .factors = &f,
                .step = &s,
                .key = {.seed = 5, .tensor = 8, .first = 64}};
    }
    bool intact() const {
        return master.intact() && copy.intact() && gradient.intact() && first.intact() && second.intact();
    }
    bool same_bits(const slabs& o) const {
        return master.same_bits(o.master) && copy.same_bits(o.copy) && first.same_bits(o.first) &&
               second.same_bits(o.second);
    }
};

/// One unit in the last place, for a number that may be rounded up or down.
template <class T>
double either_way(double x) {
    return 2 * support::rounding<T>(x);
}

/// Parameters and moments within their bounds of the definition; copies are their masters, rounded.
template <class S, class Device>
void equals_definition(Device& device) {
    support::random data{1};
    support::comparison masters, firsts, seconds;
    for (const ht::extent n : sizes) {
        for (const placement where : {placement::aligned, placement::unaligned}) {
            const S s(data, n, where);
            std::vector<double> w = doubles(s.master), g = doubles(s.gradient), m = doubles(s.first),
                                v = doubles(s.second);
            const std::vector<double> m0 = m, w0 = w;
            ht::reference::adamw(view_of(w), view_of(g), view_of(m), view_of(v), {0.9, 0.99, 1e-6}, 0.01, 0.1, 3,
                                 factors);
            run(device, s.arguments(factors, third));
            bool copied = true;
            for (ht::extent i = 0; i < n; ++i) {
                const auto k = static_cast<std::size_t>(i);
                using state = std::remove_reference_t<decltype(s.first[0])>;
                const double read = std::fabs(ht::reference::read_gradient(g[k], factors));
                // Sums of magnitudes: two factors of the gradient, and four or five further roundings.
                const double error_m = support::gamma(6) * (0.9 * std::fabs(m0[k]) + 0.1 * (read + std::fabs(m0[k])));
                const double error_v = support::gamma(9) * v[k];
                const bool rounds = sizeof(state) < 4;
                firsts.expect(static_cast<double>(s.first[i]), m[k],
                              error_m + (rounds ? either_way<state>(std::fabs(m[k]) + error_m) : 0));
                seconds.expect(static_cast<double>(s.second[i]), v[k],
                               error_v + (rounds ? either_way<state>(v[k] + error_v) : 0));
                const double update = std::fabs(w[k] - w0[k] * (1 - 0.01 * 0.1)), size = 0.01 / (1 - 0.729);
                const double denominator = std::sqrt(v[k] / (1 - 0.970299)) + 1e-6;
                masters.expect(static_cast<double>(s.master[i]), w[k],
                               support::gamma(3) * std::fabs(w0[k]) + update * support::gamma(12) +
                                   size * error_m / denominator + support::u * std::fabs(w[k]));
                using copy = std::remove_reference_t<decltype(s.copy[0])>;
                copied = copied &&
                         static_cast<float>(s.copy[i]) == static_cast<float>(copy(static_cast<float>(s.master[i])));
            }
            CHECK(copied);
            CHECK(s.intact());
        }
    }
    CHECK_WITHIN(masters);
    CHECK_WITHIN(firsts);
    CHECK_WITHIN(seconds);
}

/// Parameters without a master are rounded to one of their two neighbours, each by its own random numbers.
template <class Device>
void rounds_to_neighbours(Device& device) {
    using pure = slabs<ht::bfloat16, float, float, ht::bfloat16>;
    const auto step = [&](ht::extent n, const kernel::rounding_key& key, std::int64_t steps) {
        support::random data{2};
        auto s = std::make_unique<pure>(data, n);
        auto a = s->arguments(factors, third);
        const kernel::step_record record{.steps = steps, .lr = 0.01};
        a.step = &record;
        a.key = key;
        run<ht::rounding::stochastic>(device, a);
        return s;
    };
    support::random data{2};
    const pure start(data, 5003);
    std::vector<double> w = doubles(start.master), g = doubles(start.gradient), m = doubles(start.first),
                        v = doubles(start.second);
    ht::reference::adamw(view_of(w), view_of(g), view_of(m), view_of(v), {0.9, 0.99, 1e-6}, 0.01, 0.1, 3, factors);
    const auto s = step(5003, {1, 4, 0}, 3);
    support::comparison c;
    double up = 0;
    for (ht::extent i = 0; i < 5003; ++i) {
        const double exact = w[static_cast<std::size_t>(i)], got = static_cast<double>(s->master[i]);
        // The error of stochastic rounding is less than a unit in the last place, twice that of rounding to nearest.
        c.expect(got, exact, either_way<ht::bfloat16>(exact) + 1e-5 * (std::fabs(exact) + 0.1));
        up += got > exact ? 1 : 0;
        CHECK(s->copy[i] == static_cast<float>(s->master[i]));
    }
    CHECK_WITHIN(c);
    CHECK(std::fabs(up / 5003 - 0.5) < 0.05);

    CHECK(s->same_bits(*step(5003, {1, 4, 0}, 3)));
    CHECK_FALSE(s->master.same_bits(step(5003, {2, 4, 0}, 3)->master));
    CHECK_FALSE(s->master.same_bits(step(5003, {1, 8, 0}, 3)->master));
    CHECK_FALSE(s->master.same_bits(step(5003, {1, 4, 4}, 3)->master));
}

/// The random numbers of an element depend only on its index, however the parameters are partitioned.
template <class Device>
void cuts_alike(Device& device) {
    using pure = slabs<ht::bfloat16, ht::bfloat16, float, ht::bfloat16>;
    support::random one{3}, two{3};
    const pure whole(one, 1000, placement::aligned), parts(two, 1000, placement::aligned);
    run<ht::rounding::stochastic>(device, whole.arguments(factors, third));
    const auto all = parts.arguments(factors, third);
    for (const auto& [begin, end] : {std::pair<ht::extent, ht::extent>{0, 64}, {64, 500}, {500, 1000}}) {
        const ht::extent first = begin, count = end - begin;  // a lambda captures no bindings
        auto a = all;
        const auto cut = [&](auto v) { return decltype(v)(v.data() + first, {count}); };
        a.master = cut(all.master), a.copy = cut(all.copy), a.gradient = cut(all.gradient);
        a.moments[0] = cut(all.moments[0]), a.moments[1] = cut(all.moments[1]);
        a.key.first = all.key.first + static_cast<std::uint64_t>(first);
        run<ht::rounding::stochastic>(device, a);
    }
    CHECK(whole.same_bits(parts));
}

/// A moment in bf16 is rounded by the random bits of its index; a NaN stays one.
template <class Device>
void rounds_by_place(Device& device) {
    const ht::extent n = 16384 + 77;
    for (const placement where : {placement::aligned, placement::unaligned}) {
        support::random data{7};
        slabs<float, float, float, ht::bfloat16> s(data, n, where);
        s.gradient[5] = std::numeric_limits<float>::quiet_NaN();
        s.gradient[6] = -0x1.fffffep127f;
        s.gradient[7] = 0x1p-140f;
        for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{0x123456789abcdef0}}) {
            const kernel::gradient_factors plain;
            const kernel::step_record record{.steps = 4000000000, .lr = 0.1};
            auto a = s.arguments(plain, record);
            a.rule.beta1 = 0;  // the first moment is the gradient
            a.key = kernel::rounding_key{.seed = seed, .tensor = 40, .first = (std::uint64_t{1} << 34) - 128};
            for (ht::extent i = 0; i < n; ++i) s.first[i] = ht::bfloat16(0.0f);
            run(device, a);
            CHECK(ht::is_nan(s.first[5]));
            for (ht::extent i = 0; i < n; ++i) {
                if (i == 5) continue;
                const std::uint32_t bits =
                    ht::random_bits(seed, 4000000000u, 41, a.key.first + static_cast<std::uint64_t>(i));
                CHECK(s.first[i].bits() == ht::round_stochastic<ht::bfloat16>(s.gradient[i], bits).bits());
            }
        }
    }
}

/// A second moment in bf16 shrinks on average, where rounding to nearest would keep it.
template <class Device>
void moment_shrinks(Device& device) {
    const ht::extent n = 4096;
    support::random data{4};
    slabs<float, float, float, ht::bfloat16> s(data, n, placement::aligned);
    for (ht::extent i = 0; i < n; ++i) s.gradient[i] = 0, s.second[i] = ht::bfloat16(1.0f);
    auto a = s.arguments(factors, third);
    a.rule.beta2 = 0.999;
    kernel::step_record record{.steps = 0, .lr = 0};
    a.step = &record;
    for (record.steps = 1; record.steps <= 20; ++record.steps) run(device, a);
    double mean = 0;
    for (ht::extent i = 0; i < n; ++i) mean += static_cast<double>(s.second[i]) / static_cast<double>(n);
    // The error of a rounding below 1 is at most 2^-8; twenty of them have a standard deviation of at most sqrt(20) 2^-9.
    CHECK(std::fabs(mean - std::pow(0.999, 20)) < 5 * std::sqrt(20.0 / static_cast<double>(n)) * 0x1p-9);
}

/// A skipped step changes nothing, and the copy is optional.
template <class Device>
void skips(Device& device) {
    support::random one{5}, two{5};
    using mixed = slabs<float, ht::bfloat16, float, float>;
    const mixed s(one, 100), untouched(two, 100);
    step_checks::check_skips(s, untouched, [&](const kernel::step_record& record, bool has_copy) {
        auto a = s.arguments(factors, record);
        if (!has_copy) a.copy = {};
        run(device, a);
    });
}

template <class Device>
void refuses(Device& device) {
    support::random data{6};
    const slabs<float, ht::bfloat16, float, float> s(data, 10);
    auto a = s.arguments(factors, third);
    a.gradient = {s.gradient.data(), {9}};
    CHECK_THROWS_WITH_AS(run(device, a), "adamw: gradient is (9); expected (10)", ht::shape_error);
    a = s.arguments(factors, third);
    a.moments[1] = {s.second.data(), {5}, {2}};
    CHECK_THROWS_AS(run(device, a), ht::shape_error);
    a = s.arguments(factors, third);
    a.key.first = 3;
    CHECK_THROWS_AS(run(device, a), ht::argument_error);
}

}  // namespace adamw_checks
