// SPDX-License-Identifier: MIT
/// \file
/// Tests of a step by any rule, for every device.
///
///     rule_checks::equals_definition<slabs<adamw_rule, float, ht::bfloat16, float, float>>(device);
#pragma once

#include <limits>
#include <string>

#include <halftone/number/philox.hpp>

#include "kernel/optimizer_step/step_checks.hpp"
#include "optim/ademamix.hpp"

namespace step_checks {

/// A rule outside of the library, with its usual coefficients.
template <>
inline std::vector<own::ademamix_rule> rules() {
    return {own::ademamix_options{}.rule()};
}

}  // namespace step_checks

namespace rule_checks {

using namespace step_checks;

/// The first step, which has no earlier moments, and the third.
template <class S, class Device>
void equals_definition(Device& device) {
    definition<S> all;
    support::random data{1};
    for (const auto& rule : rules<typename S::Rule>()) {
        for (const std::int64_t steps : {1, 3}) {
            const kernel::step_record record{.steps = steps, .lr = 0.01};
            for (const ht::extent n : sizes) {
                for (const placement where : placements) {
                    S s(data, n, where);
                    s.rule = rule;
                    const in_doubles before(s);
                    step(device, s, record);
                    all.expect(s, before, record);
                }
            }
        }
    }
    all.check();
}

/// A parameter and moments of 16 bits are those of a step with floats, rounded by the random bits of their tensors at
/// their index; a NaN stays one. Half of the parameters are rounded up.
template <class Rule, class Param, class Device>
void rounds_by_place(Device& device) {
    const ht::extent n = 16384 + 77;
    const kernel::rounding_key keys[] = {
        {.seed = 5, .tensor = 8, .first = 64},
        {.seed = 0x123456789abcdef0, .tensor = 40, .first = (std::uint64_t{1} << 34) - 128}};
    for (const kernel::rounding_key& key : keys) {
        const kernel::step_record record{.steps = key.seed == 5 ? 3 : 4000000000, .lr = 0.01};
        for (const placement where : placements) {
            support::random one{7}, two{7};
            slabs<Rule, Param, ht::bfloat16, float, ht::bfloat16> s(one, n, where);
            slabs<Rule, float, float, float, float> exact(two, n, where);
            s.gradient[5] = std::numeric_limits<float>::quiet_NaN();
            s.gradient[6] = -0x1.fffffep127f;
            s.gradient[7] = 0x1p-140f;
            for (ht::extent i = 8; i < 100; ++i)
                s.gradient[i] *= 0x1p-18f, s.master[i] = Param(0.0f);  // subnormal in fp16
            for (ht::extent i = 0; i < n; ++i) {
                exact.gradient[i] = s.gradient[i], exact.master[i] = static_cast<float>(s.master[i]);
                for (int k = 0; k < Rule::moments; ++k) exact.moment(k)[i] = static_cast<float>(s.moment(k)[i]);
            }
            auto a = s.arguments(record);
            auto b = exact.arguments(record);
            a.key = b.key = key;
            run<ht::rounding::stochastic>(device, a);
            run(device, b);
            const auto is_rounded = [&]<class T>(T got, float from, int tensor, ht::extent i) {
                const std::uint64_t place = key.first + static_cast<std::uint64_t>(i);
                const std::uint32_t bits = ht::random_bits(key.seed, static_cast<std::uint32_t>(record.steps),
                                                           key.tensor + static_cast<std::uint32_t>(tensor), place);
                return from != from ? ht::is_nan(got) : got.bits() == ht::round_stochastic<T>(from, bits).bits();
            };
            int wrong = 0, up = 0;
            for (ht::extent i = 0; i < n; ++i) {
                wrong += is_rounded(s.master[i], exact.master[i], 0, i) ? 0 : 1;
                for (int k = 0; k < Rule::moments; ++k)
                    wrong += is_rounded(s.moment(k)[i], exact.moment(k)[i], k + 1, i) ? 0 : 1;
                up += static_cast<float>(s.master[i]) > exact.master[i] ? 1 : 0;
            }
            CHECK(wrong == 0);
            CHECK(ht::is_nan(s.moment(0)[5]));
            CHECK(std::fabs(up / static_cast<double>(n) - 0.5) < 0.05);
            CHECK(s.intact());
        }
    }
}

/// The random numbers of an element depend only on its index, however the parameters are partitioned.
template <class Rule, class Device>
void cuts_alike(Device& device) {
    support::random one{3}, two{3};
    const slabs<Rule, ht::bfloat16, ht::bfloat16, float, ht::bfloat16> whole(one, 1000, placement::aligned),
        parts(two, 1000, placement::aligned);
    step(device, whole);
    for (const auto& [begin, end] : {std::pair<ht::extent, ht::extent>{0, 64}, {64, 500}, {500, 1000}}) {
        const ht::extent first = begin, count = end - begin;  // a lambda captures no bindings
        auto a = parts.arguments(third);
        const auto cut = [&](auto& v) { v = std::decay_t<decltype(v)>(v.data() + first, {count}); };
        cut(a.master), cut(a.copy), cut(a.gradient);
        for (auto& m : a.moments) cut(m);
        a.key.first += static_cast<std::uint64_t>(first);
        run<ht::rounding::stochastic>(device, a);
    }
    CHECK(whole.same_bits(parts));
}

/// A second moment in bf16 shrinks on average, where rounding to nearest would keep it.
template <class Device>
void moment_shrinks(Device& device) {
    const ht::extent n = 4096;
    support::random data{4};
    slabs<adamw_rule, float, float, float, ht::bfloat16> s(data, n, placement::aligned);
    for (ht::extent i = 0; i < n; ++i) s.gradient[i] = 0, s.moments[1][i] = ht::bfloat16(1.0f);
    s.rule.beta2 = 0.999;
    kernel::step_record record{.steps = 1, .lr = 0};
    for (; record.steps <= 20; ++record.steps) step(device, s, record);
    double mean = 0;
    for (ht::extent i = 0; i < n; ++i) mean += static_cast<double>(s.moments[1][i]) / static_cast<double>(n);
    // The error of a rounding below 1 is at most 2^-8; twenty of them have a standard deviation of at most sqrt(20) 2^-9.
    CHECK(std::fabs(mean - std::pow(0.999, 20)) < 5 * std::sqrt(20.0 / static_cast<double>(n)) * 0x1p-9);
}

/// Parameters without a master move on average.
template <class Device>
void moves_on_average(Device& device) {
    const ht::extent n = 4099;
    const guarded<ht::bfloat16> master(std::vector<ht::bfloat16>(n, ht::bfloat16(1.0f)));
    const guarded<float> gradient(std::vector<float>(n, 1.0f));
    kernel::step_record record{.steps = 1, .lr = 1e-4};
    for (; record.steps <= 10; ++record.steps) {
        run<ht::rounding::stochastic>(
            device, kernel::optimizer_step_arguments<sgd_rule, ht::bfloat16, ht::bfloat16, float, float>{
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

/// A skipped step changes nothing, the copy is optional, and arguments that do not fit together throw.
template <class Rule, class Device>
void skips_and_refuses(Device& device) {
    support::random one{5}, two{5};
    const slabs<Rule, float, ht::bfloat16, float, float> s(one, 10), untouched(two, 10);
    check_skips(s, untouched, [&](const kernel::step_record& record, bool has_copy) {
        auto a = s.arguments(record);
        if (!has_copy) a.copy = {};
        run(device, a);
    });
    const std::string name = Rule::name;
    auto a = s.arguments(third);
    a.gradient = {s.gradient.data(), {9}};
    CHECK_THROWS_WITH_AS(run(device, a), (name + ": gradient is (9); expected (10)").c_str(), ht::shape_error);
    for (int k = 0; k < Rule::moments; ++k) {
        a = s.arguments(third);
        a.moments[k] = {s.moment(k).data(), {9}};
        CHECK_THROWS_WITH_AS(run(device, a), (name + ": " + Rule::moment_names[k] + " is (9); expected (10)").c_str(),
                             ht::shape_error);
        a.moments[k] = {s.moment(k).data(), {5}, {2}};
        CHECK_THROWS_AS(run(device, a), ht::shape_error);
        a.moments[k] = {};
        CHECK_THROWS_AS(run(device, a), ht::shape_error);
    }
    a = s.arguments(third);
    a.key.first = 3;
    CHECK_THROWS_AS(run(device, a), ht::argument_error);
}

/// What every rule has to do.
template <class Rule, class Device>
void checks_rule(Device& device) {
    CAPTURE(Rule::name);
    rounds_by_place<Rule, ht::bfloat16>(device);
    rounds_by_place<Rule, ht::float16>(device);
    cuts_alike<Rule>(device);
    skips_and_refuses<Rule>(device);
}

/// A step has the bits of `cpu`, which has a set with fused multiply-adds.
template <class S, class Cpu, class Device>
void agrees(Cpu& cpu, Device& device) {
    for (const auto& rule : rules<typename S::Rule>()) {
        for (const ht::extent n : sizes) {
            CAPTURE(n);
            for (const placement where : placements) {
                support::random data[] = {support::random{1}, support::random{1}, support::random{1}};
                S one(data[0], n, where), two(data[1], n, where), untouched(data[2], n, where);
                one.rule = two.rule = rule;
                step(cpu, one), step(device, two);
                CHECK(two.same_bits(one));
                CHECK(two.intact());
                CHECK_FALSE(one.same_bits(untouched));
            }
        }
    }
}

/// All operands of a step with an average.
template <class S>
struct averaged : S {
    guarded<float> average;

    averaged(support::random& data, ht::extent n, placement where = placement::unaligned)
        : S(data, n, where), average(data.normals<float>(n), where == placement::aligned ? 0 : 1 + n % 3) {}
    auto arguments(const kernel::step_record& s) const {
        auto a = S::arguments(s);
        a.average = average.view();
        a.average_decay = 0.9;
        return a;
    }
    bool same_bits(const averaged& o) const { return S::same_bits(o) && average.same_bits(o.average); }
};

inline const kernel::step_record first{.steps = 1, .lr = 0.01};
inline const kernel::step_record skipped{.steps = 3, .lr = 0.01, .skips = 1};

/// Parameters have the bits of a step without an average. The average is that of the stored parameters; in the first step it equals
/// them within the rounding of a difference. A skipped step does not change it.
template <class S, class Device>
void keeps_average(Device& device) {
    support::comparison averages, firsts;
    for (const ht::extent n : {ht::extent{1}, ht::extent{5}, ht::extent{67}, ht::extent{1009}}) {
        for (const placement where : placements) {
            for (const kernel::step_record* record : {&first, &third, &skipped}) {
                support::random one{1}, two{1};
                const averaged<S> s(one, n, where);
                const S without(two, n, where);
                const std::vector<double> before = doubles(s.average);
                run(device, s.arguments(*record));
                run(device, without.arguments(*record));
                CHECK(without.same_bits(s));
                for (ht::extent i = 0; i < n; ++i) {
                    const double w = static_cast<double>(s.master[i]), e = before[static_cast<std::size_t>(i)],
                                 got = static_cast<double>(s.average[i]);
                    const double error = support::gamma(4) * (std::fabs(w) + std::fabs(e));
                    if (record == &skipped) {
                        CHECK(got == e);
                    } else if (record == &first) {
                        firsts.expect(got, w, error);
                    } else {
                        averages.expect(got, 0.9 * e + 0.1 * w, error);
                    }
                }
                CHECK(s.average.intact());
                CHECK(s.intact());
            }
        }
    }
    CHECK_WITHIN(averages);
    CHECK_WITHIN(firsts);
}

/// The assigning rule: parameters become the gradient's values, or are unchanged; an average with decay 0 becomes the parameters.
template <class Device>
void assigns(Device& device) {
    const ht::extent n = 131;
    support::random data{3};
    guarded<ht::bfloat16> master(data.normals<ht::bfloat16>(n), 1), copy(n, 2);
    guarded<float> from(data.normals<float>(n), 1), saved(std::vector<float>(static_cast<std::size_t>(n)), 3);
    const std::vector<double> before = doubles(master);
    kernel::optimizer_step_arguments<kernel::assign_rule, ht::bfloat16, ht::bfloat16, float, float> a{
        .master = master.view(),
        .copy = copy.view(),
        .gradient = from.const_view(),
        .rule = {false},
        .factors = &plain,
        .step = &first};
    a.average = saved.view();
    run(device, a);
    CHECK((doubles(master) == before));
    CHECK((doubles(saved) == before));
    a.average = {};
    a.rule = {true};
    run(device, a);
    for (ht::extent i = 0; i < n; ++i) {
        CHECK(master[i].bits() == ht::bfloat16(from[i]).bits());
        CHECK(copy[i].bits() == master[i].bits());
    }
    CHECK(master.intact());
    CHECK(copy.intact());
    CHECK(saved.intact());
    a.average = {saved.data(), {9}};
    CHECK_THROWS_WITH_AS(run(device, a), "assign: average is (9); expected (131)", ht::shape_error);
}

}  // namespace rule_checks
