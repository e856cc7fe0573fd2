// SPDX-License-Identifier: MIT
/// \file
/// Tests of Adafactor over a model, for every device: compared with torch.optim.Adafactor over 100 steps; state and groups.
///
///     adafactor_model::equals_torch(device, 100);
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/adafactor/reference.hpp>
#include <halftone/optim/adafactor.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/golden.hpp"
#include "optim/matrix_model.hpp"
#include "support/bounds.hpp"

namespace adafactor_model {

namespace ht = halftone;
template <class P>
using net = small::matrix_net<P>;

/// The gradients of tests/golden/adafactor.py: the matrix's numbers begin at index 0, all others at 300; one row of the matrix
/// has zeros.
inline float gradient_of(std::size_t entry, std::size_t i, int t) {
    if (entry == 0 && i / 13 == 2) return 0;
    return static_cast<float>(small::gradient((entry == 0 ? 0 : 300) + static_cast<int>(i), t));
}

/// A parameter by the definition, and a bound of the error of float arithmetic.
struct exact {
    ht::shape<2> shape;
    std::size_t entry;
    std::vector<double> w, rows, columns, error;

    exact(ht::shape<2> s, std::size_t e, int first) : shape(s), entry(e) {
        for (int i = 0; i < s.size(); ++i) w.push_back(small::initial_parameter(first + i));
        error.resize(w.size()), rows.resize(static_cast<std::size_t>(s[0])), columns.resize(static_cast<std::size_t>(s[1]));
    }
    void step(int t, const ht::adafactor_options& o, double amplitude) {
        std::vector<double> g;
        for (std::size_t i = 0; i < w.size(); ++i) g.push_back(static_cast<double>(gradient_of(entry, i, t)) * amplitude);
        const std::vector<double> before = w;
        const auto all = [](std::vector<double>& v) {
            return ht::view<double, 1>(v.data(), {static_cast<ht::extent>(v.size())});
        };
        const auto found = ht::reference::adafactor(
            ht::view<double, 2>(w.data(), shape), ht::view<double, 2>(g.data(), shape),
            entry == 0 ? all(rows) : ht::view<double, 1>{}, all(columns),
            {o.beta2_decay, o.epsilon1.value_or(0x1p-23), o.epsilon2, o.d}, o.lr, o.weight_decay, t);
        // The error of a variance: a sum of at most 13 squares, of whose root torch takes the square, and in each step a
        // quotient and three roundings. An update has half the errors of three variances, and so has its root mean square. The
        // root mean squares of update and parameter are sums of at most 91 terms; that of the parameter also has its error.
        const double of_update = support::gamma(3 * (13 + 4 + 4 * t) + 2 * 91 + 24);
        double errors = 0, squares = 0;
        for (std::size_t i = 0; i < w.size(); ++i) errors += error[i] * error[i], squares += before[i] * before[i];
        const double of_size = std::sqrt(errors / squares);
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double move = std::fabs(found.rate * found.updates[i]);
            error[i] += move * (of_update + of_size) + support::gamma(3) * (std::fabs(before[i]) + move);
        }
    }
};

/// The cases of tests/golden/adafactor.py, up to `last` steps: halftone's parameters and torch's within the bound.
template <class Device>
void equals_torch(Device& device, int last) {
    const std::vector<support::golden_line> lines = support::read_golden("adafactor.txt");
    support::comparison mine, theirs;
    for (std::size_t c = 0; c < lines.size(); ++c) {
        if (lines[c].kind != "case") continue;
        const ht::adafactor_options o{
            .lr = lines[c].number(1),
            .beta2_decay = lines[c].number(2),
            .epsilon1 = lines[c].number(3) == 0 ? std::nullopt : std::optional(lines[c].number(3)),
            .epsilon2 = lines[c].number(4),
            .d = lines[c].number(5),
            .weight_decay = lines[c].number(6)};
        const double amplitude = lines[c].number(7);
        net<ht::amp_fp16> model{device};
        small::assign_initial(model.wide.weight, 0), small::assign_initial(model.wide.bias, 300);
        ht::adafactor optimizer{device, model, o};
        ht::grad_scaler scaler{device};
        ht::accumulator acc{model};
        small::tape tape;
        exact matrix({7, 13}, 0, 0), vector({1, 7}, 1, 300);
        std::size_t line = c + 1;
        for (int t = 1; t <= last; ++t) {
            tape.gradients = [=](std::size_t entry, std::size_t i) {
                return gradient_of(entry, i, t) * static_cast<float>(amplitude);
            };
            for (int micro = 0; micro < 2; ++micro) tape.backward(scaler.scale(small::loss{} / 2), acc, model.parameters());
            auto grads = scaler.unscale(acc.take());
            CHECK_FALSE(optimizer.step(grads).skipped());
            scaler.update();
            matrix.step(t, o, amplitude), vector.step(t, o, amplitude);
            if (line >= lines.size() || lines[line].kind != "step" || static_cast<int>(lines[line].number(0)) != t) continue;
            const std::vector<float> of_matrix = small::master_of(model.wide.weight), of_vector = small::master_of(model.wide.bias);
            for (std::size_t i = 0; i < 98; ++i) {
                const exact& e = i < 91 ? matrix : vector;
                const std::size_t k = i < 91 ? i : i - 91;
                mine.expect(static_cast<double>(i < 91 ? of_matrix[k] : of_vector[k]), e.w[k], e.error[k]);
                theirs.expect(lines[line].number(1 + i), e.w[k], e.error[k]);
            }
            ++line;
        }
        CHECK(line > c + (last >= 100 ? 4 : 3));
    }
    CHECK_WITHIN(mine);
    CHECK_WITHIN(theirs);
}

/// The state of a matrix is one number for each row and each column. A run resumes from these and the step counts; a skipped
/// step changes nothing; frozen parameters have no state; groups have different rates.
template <class Device>
void keeps_little(Device& device) {
    const std::vector<ht::parameter_group> groups{{"tall", {.lr = 0.0}}, {"head", {.lr_scale = 0.5}}, {"wide.bias", ht::frozen}};
    const auto make = [&](net<ht::amp_fp16>& model) {
        return std::make_unique<ht::adafactor<Device, net<ht::amp_fp16>>>(
            device, model, ht::adafactor_options{.lr = 0.01, .ema_decay = 0.5}, groups);
    };
    net<ht::amp_fp16> one{device}, two{device};
    auto all = make(one), parted = make(two);
    std::size_t floats = 0;
    for (std::size_t g = 0; g < one.parameters().groups().size(); ++g) floats += all->moment(0, g).size() / sizeof(float);
    CHECK(floats == 3 * 2 * 16 + 2 * 16);  // whole cache lines
    CHECK(all->variances(one.head.weight).rows.extent_of(0) == 3);
    CHECK(all->variances(one.head.weight).columns.extent_of(0) == 5);
    CHECK(all->variances(one.head.bias).rows.data() == nullptr);
    CHECK(all->variances(one.head.bias).columns.extent_of(0) == 3);
    CHECK_THROWS_AS(all->variances(one.wide.bias), ht::argument_error);
    ht::grad_scaler scaler{device};
    ht::accumulator acc{one}, other{two};
    small::tape tape;
    const std::vector<float> first = small::master_of(one.tall.weight);
    const auto same = [&] {
        return small::master_of(one.wide.weight) == small::master_of(two.wide.weight) &&
               small::master_of(one.head.weight) == small::master_of(two.head.weight) &&
               small::master_of(one.head.bias) == small::master_of(two.head.bias);
    };
    for (int t = 1; t <= 6; ++t) {
        const bool overflow = t == 4;
        tape.reaches = [=](std::size_t entry) { return t % 2 == 0 || entry != 0; };  // the matrix takes fewer steps
        tape.gradients = [=](std::size_t entry, std::size_t i) {
            return overflow && i == 1 ? std::numeric_limits<float>::infinity() : gradient_of(entry, i, t);
        };
        tape.backward(scaler.scale(small::loss{}), acc, one.parameters());
        tape.backward(scaler.scale(small::loss{}), other, two.parameters());
        auto grads = scaler.unscale(acc.take());
        auto others = scaler.unscale(other.take());
        const std::vector<float> before = small::master_of(one.head.weight), wide = small::master_of(one.wide.weight);
        CHECK(all->step(grads).skipped() == overflow);
        CHECK(parted->step(others).skipped() == overflow);
        scaler.update();
        CHECK((small::master_of(one.head.weight) == before) == overflow);
        CHECK((small::master_of(one.wide.weight) == wide) == (overflow || t % 2 != 0));
        CHECK(same());
        if (t != 3) continue;
        auto next = make(two);
        ht::store& s = two.parameters();
        for (std::size_t g = 0; g < s.groups().size(); ++g) {
            const auto from = parted->moment(0, g);
            s.memory().write(next->moment(0, g).data(), small::bytes_at(s, from.data(), from.size()).data(), from.size());
        }
        next->load(parted->state());
        parted = std::move(next);
    }
    CHECK((small::master_of(one.tall.weight) == first));  // a rate of 0
    CHECK(all->state().step_counts == std::vector<std::int64_t>{2, 5, 5, 5, 5});
}

}  // namespace adafactor_model
