// SPDX-License-Identifier: MIT
/// \file
/// Tests of a step of Adafactor, for every device.
///
///     adafactor_checks::equals_definition<adafactor_checks::slabs<float, ht::bfloat16, float>>(device);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/adafactor/adafactor.hpp>
#include <halftone/kernel/optimizer_step/adafactor/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/number/round_to.hpp>

#include "kernel/optimizer_step/step_checks.hpp"
#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace adafactor_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using support::guarded;
using step_checks::doubles, step_checks::factors, step_checks::third, step_checks::view_of;

/// Matrices, and vectors (0 rows): several tiles, parts of tiles, one row, one column.
inline constexpr ht::shape<2> shapes[] = {{1, 1},  {3, 5},   {64, 128}, {65, 513}, {130, 67}, {7, 1030},
                                          {301, 4}, {1, 9}, {9, 1},    {0, 1},    {0, 67},  {0, 2053}};
inline constexpr kernel::adafactor_rule rule{.beta2_decay = -0.8, .epsilon1 = 0x1p-9, .epsilon2 = 1e-3, .d = 1.25};

/// All operands of a step. The second row of the gradient is 0, and its fourth column is small; variances are positive.
template <class Param_, class Copy_, class Accumulate>
struct slabs {
    using Param = Param_;
    using Copy = Copy_;
    using arguments_type = kernel::adafactor_arguments<Param, Copy, Accumulate>;

    ht::shape<2> shape;
    bool is_vector;
    guarded<Param> master;
    guarded<Copy> copy;
    guarded<Accumulate> gradient;
    guarded<float> rows, columns, average;
    kernel::adafactor_record* record;

    template <class Device>
    slabs(Device& device, support::random& data, ht::shape<2> s, ht::extent off = 0)
        : shape{s[0] == 0 ? 1 : s[0], s[1]},
          is_vector(s[0] == 0),
          master(data.normals<Param>(shape.size()), off),
          copy(shape.size(), off),
          gradient(data.normals<Accumulate>(shape.size(), 100), off),
          rows(shape[0], off),
          columns(shape[1], off),
          average(shape.size(), off),
          memory_(device.memory(), sizeof(kernel::adafactor_record), ht::memory_kind::other) {
        record = reinterpret_cast<kernel::adafactor_record*>(memory_.data());
        for (ht::extent i = 0; i < shape.size(); ++i) {
            if (i / shape[1] == 1) gradient[i] = Accumulate(0.0f);
            if (i % shape[1] == 3) gradient[i] = Accumulate(0x1p-6f);
            average[i] = 0.5f;
        }
        const auto square = [&](guarded<float>& all) {
            for (ht::extent i = 0; i < all.size(); ++i) all[i] = std::fabs(data.normals<float>(1)[0]);
        };
        square(rows), square(columns);
    }
    arguments_type arguments(const kernel::step_record& s) const {
        return {.step = {.master = master.view(),
                         .copy = copy.view(),
                         .gradient = gradient.const_view(),
                         .rule = rule,
                         .rates = {.weight_decay = 0.1},
                         .factors = &factors,
                         .step = &s,
                         .key = {.seed = 5, .tensor = 8, .first = 64},
                         .average = average.view(),
                         .average_decay = 0.75},
                .shape = shape,
                .rows = is_vector ? ht::view<float, 1>{} : rows.view(),
                .columns = columns.view(),
                .record = record};
    }
    bool intact() const {
        return master.intact() && copy.intact() && gradient.intact() && rows.intact() && columns.intact() && average.intact();
    }
    bool same_bits(const slabs& o) const {
        return master.same_bits(o.master) && copy.same_bits(o.copy) && rows.same_bits(o.rows) &&
               columns.same_bits(o.columns) && average.same_bits(o.average);
    }

  private:
    ht::buffer memory_;
};

template <ht::rounding Rounding = ht::rounding::nearest_even, class Device, class Arguments>
void run(Device& device, const Arguments& a) {
    kernel::adafactor_step<Device>::template run<Rounding>(device, a);
}

/// Variances and parameters within their bounds of the definition; copies are their masters, rounded.
template <class S, class Device>
void equals_definition(Device& device) {
    support::random data{1};
    support::comparison variances, masters;
    constexpr double terms = static_cast<double>(kernel::adafactor_step<Device>::depth);
    for (const ht::shape<2>& shape : shapes) {
        for (const ht::extent off : {0, 1}) {
            CAPTURE(shape[0]);
            CAPTURE(shape[1]);
            const S s(device, data, shape, off);
            std::vector<double> w = doubles(s.master), g = doubles(s.gradient), r = doubles(s.rows), c = doubles(s.columns);
            const std::vector<double> w0 = w;
            const auto found = ht::reference::adafactor(
                ht::view<double, 2>(w.data(), s.shape), ht::view<double, 2>(g.data(), s.shape),
                s.is_vector ? ht::view<double, 1>{} : view_of(r), view_of(c), rule, 0.01, 0.1, 3, factors);
            run(device, s.arguments(third));
            // The roundings of a gradient's two factors, of the square, the sum and the variance; no term is negative.
            const double of_variance = support::gamma(5 + terms) + support::u;
            for (ht::extent i = 0; i < s.shape[0] && !s.is_vector; ++i) {
                const double want = r[static_cast<std::size_t>(i)];
                variances.expect(static_cast<double>(s.rows[i]), want, of_variance * want);
            }
            for (ht::extent j = 0; j < s.shape[1]; ++j) {
                const double want = c[static_cast<std::size_t>(j)];
                variances.expect(static_cast<double>(s.columns[j]), want, of_variance * want);
            }
            // Half the errors of row, column and mean, in the update and in its root mean square; the sums of the root mean
            // squares of update and parameter; quotients, roots and products.
            const double of_update = support::gamma(3 * (terms + 6) + terms + 24);
            bool copied = true;
            for (ht::extent i = 0; i < s.shape.size(); ++i) {
                const auto k = static_cast<std::size_t>(i);
                const double move = std::fabs(found.rate * found.updates[k]);
                double bound = of_update * move + support::gamma(2) * std::fabs(w0[k]);
                bound += support::rounding<typename S::Param>(std::fabs(w[k]) + bound);
                masters.expect(static_cast<double>(s.master[i]), w[k], bound);
                const float stored = static_cast<float>(s.master[i]);
                copied = copied && static_cast<float>(s.copy[i]) == static_cast<float>(typename S::Copy(stored)) &&
                         std::fabs(s.average[i] - (0.5f + 0.25f * (stored - 0.5f))) <= 0x1p-22f * (1 + std::fabs(stored));
            }
            CHECK(copied);
            CHECK(s.intact());
        }
    }
    CHECK_WITHIN(variances);
    CHECK_WITHIN(masters);
}

/// A parameter in bf16 is rounded by the random bits of its index.
template <class Device>
void rounds_by_place(Device& device) {
    support::random one{7}, two{7};
    using pure = slabs<ht::bfloat16, float, float>;
    const slabs<float, float, float> exact(device, one, {30, 67});
    const pure s(device, two, {30, 67});
    for (ht::extent i = 0; i < 30 * 67; ++i) exact.master[i] = static_cast<float>(s.master[i]);
    run<ht::rounding::stochastic>(device, s.arguments(third));
    run(device, exact.arguments(third));
    bool is_by_place = true;
    for (ht::extent i = 0; i < 30 * 67; ++i) {
        const std::uint32_t random = ht::random_bits(5, 3, 8, 64 + static_cast<std::uint64_t>(i));
        is_by_place = is_by_place &&
                      s.master[i].bits() == ht::round_stochastic<ht::bfloat16>(exact.master[i], random).bits();
    }
    CHECK(is_by_place);
}

/// A skipped step changes nothing, the copy is optional, and arguments that do not fit together throw.
template <class Device>
void skips_and_refuses(Device& device) {
    support::random one{5}, two{5};
    using mixed = slabs<float, ht::bfloat16, float>;
    const mixed s(device, one, {10, 12}), untouched(device, two, {10, 12});
    const auto step = [&](const kernel::step_record& record, bool has_copy) {
        auto arguments = s.arguments(record);
        if (!has_copy) arguments.step.copy = {};
        run(device, arguments);
    };
    step_checks::check_skips(s, untouched, step, 3);
    auto a = s.arguments(third);
    a.rows = {s.rows.view().data(), {9}};
    CHECK_THROWS_WITH_AS(run(device, a), "adafactor: rows is (9); expected (10)", ht::shape_error);
    a.rows = {};
    CHECK_THROWS_WITH_AS(run(device, a),
                         "adafactor: (10, 12) without variances of rows; expected these, or a vector (1, n)",
                         ht::shape_error);
    a = s.arguments(third);
    a.shape = {10, 11};
    CHECK_THROWS_AS(run(device, a), ht::shape_error);
    a = s.arguments(third);
    a.step.key.first = 3;
    CHECK_THROWS_AS(run(device, a), ht::argument_error);
}

}  // namespace adafactor_checks
