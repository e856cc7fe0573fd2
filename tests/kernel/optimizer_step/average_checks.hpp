// SPDX-License-Identifier: MIT
/// \file
/// The average of parameters that a step updates, on every device.
///
///     average_checks::keeps_average<lion_checks::slabs<float, ht::bfloat16, float, float>>(device);
#pragma once

#include "kernel/optimizer_step/lion_checks.hpp"

namespace average_checks {

using namespace lion_checks;

/// All operands of a step of Lion with an average.
template <class S>
struct averaged {
    S slabs;
    guarded<float> average;

    averaged(support::random& data, ht::extent n, placement where = placement::unaligned)
        : slabs(data, n, where), average(data.normals<float>(n), where == placement::aligned ? 0 : 1 + n % 3) {}
    auto arguments(const kernel::step_record& s) const {
        auto a = slabs.arguments(s);
        a.average = average.view();
        a.average_decay = 0.9;
        return a;
    }
    bool same_bits(const averaged& o) const { return slabs.same_bits(o.slabs) && average.same_bits(o.average); }
};

inline const kernel::step_record first{.steps = 1, .lr = 0.01};
inline const kernel::step_record skipped{.steps = 3, .lr = 0.01, .skips = 1};

/// Parameters have the bits of a step without an average. The average is that of the stored parameters; in the first step it equals
/// them within the rounding of a difference. A skipped step does not change it.
template <class S, class Device>
void keeps_average(Device& device) {
    support::comparison averages, firsts;
    for (const ht::extent n : {ht::extent{1}, ht::extent{5}, ht::extent{67}, ht::extent{1009}}) {
        for (const placement where : {placement::aligned, placement::unaligned}) {
            for (const kernel::step_record* record : {&first, &third, &skipped}) {
                support::random one{1}, two{1};
                const averaged<S> s(one, n, where);
                const S plain(two, n, where);
                const std::vector<double> before = doubles(s.average);
                run(device, s.arguments(*record));
                run(device, plain.arguments(*record));
                CHECK(s.slabs.same_bits(plain));
                for (ht::extent i = 0; i < n; ++i) {
                    const double w = static_cast<double>(s.slabs.master[i]), e = before[static_cast<std::size_t>(i)],
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
                CHECK(s.slabs.intact());
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
    const kernel::gradient_factors none;
    kernel::optimizer_step_arguments<kernel::assign_rule, ht::bfloat16, ht::bfloat16, float, float> a{
        .master = master.view(), .copy = copy.view(), .gradient = from.const_view(), .rule = {false}, .factors = &none,
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

}  // namespace average_checks
