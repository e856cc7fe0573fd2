// SPDX-License-Identifier: MIT
/// \file
/// Tests of a step of AdamW with moments in 8 bits, for every device.
///
///     eight_bit_checks::finds_nearest_codes(device);
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/eight_bit/reference.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/scale/device_value.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace eight_bit_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using ht::extent;
using support::guarded;

inline const kernel::dynamic_maps& maps() {
    static const kernel::dynamic_maps made = kernel::make_dynamic_maps();
    return made;
}

/// All operands of a step, with zeros as state; in host memory, which the tests' devices can read.
template <class Param, class Copy, class Accumulate>
struct slabs {
    guarded<Param> master;
    guarded<Copy> copy;
    guarded<Accumulate> gradient;
    guarded<std::uint8_t> codes[2];
    guarded<float> absmax[2];

    slabs(const std::vector<Param>& w, const std::vector<Accumulate>& g, bool aligned = false)
        : master(w, aligned ? 0 : 3),
          copy(static_cast<extent>(w.size()), aligned ? 0 : 1),
          gradient(g, aligned ? 0 : 5),
          codes{bytes(w.size(), aligned ? 0 : 3), bytes(w.size(), aligned ? 0 : 1)},
          absmax{zeros(w.size()), zeros(w.size())} {}
    slabs(support::random& data, extent n, bool aligned = false)
        : slabs(data.normals<Param>(n), gradients(data, n), aligned) {}

    /// Fills the state with random codes and absmaxes.
    void fill_state(support::random& data) const {
        for (int k = 0; k < 2; ++k) {
            for (extent i = 0; i < codes[k].size(); ++i) codes[k][i] = static_cast<std::uint8_t>(data.below(256));
            for (extent i = 0; i < absmax[k].size(); ++i) absmax[k][i] = static_cast<float>(data.uniform(0.5, 1));
        }
    }
    /// Of magnitudes that fill the codes.
    static std::vector<Accumulate> gradients(support::random& data, extent n) {
        std::vector<Accumulate> g = data.normals<Accumulate>(n, 100);
        for (Accumulate& x : g)
            x = static_cast<Accumulate>(static_cast<float>(x) * static_cast<float>(std::exp2(-data.uniform(0, 20))));
        return g;
    }
    static guarded<std::uint8_t> bytes(std::size_t n, int offset) { return {std::vector<std::uint8_t>(n), offset}; }
    static guarded<float> zeros(std::size_t n) {
        return {std::vector<float>(static_cast<std::size_t>(kernel::eight_bit_blocks(static_cast<extent>(n)))), 1};
    }

    kernel::eight_bit_step_arguments<kernel::adamw_rule, Param, Copy, Accumulate> arguments(
        const kernel::gradient_factors& f, const kernel::step_record& s) const {
        return {.step = {.master = master.view(),
                         .copy = copy.view(),
                         .gradient = gradient.const_view(),
                         .rule = {0.9, 0.99, 1e-6},
                         .rates = {.weight_decay = 0.1},
                         .factors = &f,
                         .step = &s,
                         .key = {.seed = 5, .tensor = 8, .first = 64}},
                .codes = {codes[0].view(), codes[1].view()},
                .absmax = {absmax[0].view(), absmax[1].view()},
                .maps = &maps()};
    }
    bool intact() const {
        bool all = master.intact() && copy.intact() && gradient.intact();
        for (int k = 0; k < 2; ++k) all = all && codes[k].intact() && absmax[k].intact();
        return all;
    }
    bool same_bits(const slabs& o) const {
        bool all = master.same_bits(o.master) && copy.same_bits(o.copy);
        for (int k = 0; k < 2; ++k) all = all && codes[k].same_bits(o.codes[k]) && absmax[k].same_bits(o.absmax[k]);
        return all;
    }
};

inline const kernel::gradient_factors factors{1.0f / 128, 0.75f, 1.5f};

template <ht::rounding Rounding = ht::rounding::nearest_even, class Device, class Arguments>
void run(Device& device, const Arguments& a) {
    kernel::eight_bit_step<Device>::template run<Rounding>(device, a);
}

/// Steps whose gradients differ from one to the next.
template <ht::rounding Rounding = ht::rounding::nearest_even, class Device, class S>
void run_steps(Device& device, const S& s, int steps) {
    for (int t = 1; t <= steps; ++t) {
        const kernel::step_record record{.steps = t, .lr = 0.01};
        run<Rounding>(device, s.arguments(factors, record));
        for (extent i = 0; i < s.gradient.size(); ++i) {
            using number = std::remove_reference_t<decltype(s.gradient[i])>;
            s.gradient[i] = static_cast<number>(static_cast<float>(s.gradient[i]) * ((i + t) % 3 == 0 ? -0.5f : 0.75f));
        }
    }
}

/// Each code is that of a number within the error bound of the definition's moment. Moments and their quotients by absmax
/// have rounding errors, so that a number near the middle between two may get either code.
template <class S, class Device>
void equals_definition(Device& device) {
    support::random data{1};
    const std::vector<double> map[2] = {ht::reference::dynamic_map(true), ht::reference::dynamic_map(false)};
    support::comparison masters, largest;
    bool coded = true, copied = true;
    for (const extent n : {extent{1}, extent{67}, extent{256}, extent{1009}}) {
        const S s(data, n, n % 2 == 0);
        for (int t = 1; t <= 4; ++t) {
            const kernel::step_record record{.steps = t, .lr = 0.01};
            std::vector<double> w, g, m[2];
            for (extent i = 0; i < n; ++i) {
                w.push_back(static_cast<double>(s.master[i])), g.push_back(static_cast<double>(s.gradient[i]));
            }
            for (int k = 0; k < 2; ++k)
                m[k] = ht::reference::eight_bit_moment{s.codes[k].view(), s.absmax[k].view()}.read(map[k]);
            const std::vector<double> w0 = w, m0 = m[0];
            const auto flat = [](std::vector<double>& x) {
                return ht::view<double, 1>{x.data(), {static_cast<extent>(x.size())}};
            };
            ht::reference::adamw(flat(w), flat(g), flat(m[0]), flat(m[1]), {0.9, 0.99, 1e-6}, 0.01, 0.1, t, factors);
            run(device, s.arguments(factors, record));
            const double correction1 = 1 - std::pow(0.9, t), correction2 = 1 - std::pow(0.99, t);
            for (extent i = 0; i < n; ++i) {
                const auto j = static_cast<std::size_t>(i);
                const double read = std::fabs(ht::reference::read_gradient(g[j], factors));
                // As for moments in float (step_checks.hpp), plus one rounding when the moment is read.
                const double error[2] = {support::gamma(7) * (0.9 * std::fabs(m0[j]) + 0.1 * (read + std::fabs(m0[j]))),
                                         support::gamma(10) * m[1][j]};
                for (int k = 0; k < 2; ++k) {
                    const double most = static_cast<double>(s.absmax[k][i / 256]);
                    const double x = most == 0 ? 0 : m[k][j] / most;
                    const double off = most == 0 ? 0 : error[k] / most + support::gamma(2) * std::fabs(x);
                    const auto code = [&](double at) {
                        return k == 0 ? ht::reference::nearest_code(map[0], at)
                                      : ht::reference::second_moment_code(map[1], at, m[0][j] == 0 && m[1][j] == 0);
                    };
                    coded = coded && s.codes[k][i] >= code(x - off) && s.codes[k][i] <= code(x + off);
                }
                const double update = std::fabs(w[j] - w0[j] * (1 - 0.01 * 0.1)), size = 0.01 / correction1;
                const double denominator = std::sqrt(m[1][j] / correction2) + 1e-6;
                masters.expect(static_cast<double>(s.master[i]), w[j],
                               support::gamma(3) * std::fabs(w0[j]) + update * support::gamma(13) +
                                   size * error[0] / denominator + support::u * std::fabs(w[j]));
                using copy = std::remove_reference_t<decltype(s.copy[0])>;
                copied = copied && static_cast<float>(s.copy[i]) == static_cast<float>(copy(static_cast<float>(s.master[i])));
            }
            for (int k = 0; k < 2; ++k) {
                for (extent block = 0; block < s.absmax[k].size(); ++block) {
                    double most = 0, off = 0;
                    for (extent i = 256 * block; i < n && i < 256 * (block + 1); ++i) {
                        const auto j = static_cast<std::size_t>(i);
                        most = std::max(most, std::fabs(m[k][j]));
                        const double read = std::fabs(ht::reference::read_gradient(g[j], factors));
                        off = std::max(off, k == 0 ? support::gamma(7) * (std::fabs(m0[j]) + 0.1 * read)
                                                   : support::gamma(10) * m[1][j]);
                    }
                    largest.expect(static_cast<double>(s.absmax[k][block]), most, off);
                }
            }
        }
        CHECK(s.intact());
    }
    CHECK(coded);
    CHECK(copied);
    CHECK_WITHIN(masters);
    CHECK_WITHIN(largest);
}

/// A skipped step changes nothing, and the copy is optional.
template <class Device>
void skips(Device& device) {
    support::random one{5}, two{5};
    using mixed = slabs<float, ht::bfloat16, float>;
    const mixed s(one, 600), same(two, 600);
    run_steps(device, s, 2), run_steps(device, same, 2);
    CHECK(s.same_bits(same));
    const kernel::step_record skipping{.steps = 2, .lr = 0.01, .skips = 1}, third{.steps = 3, .lr = 0.01};
    run(device, s.arguments(factors, skipping));
    CHECK(s.same_bits(same));
    auto a = s.arguments(factors, third);
    a.step.copy = {};
    run(device, a);
    CHECK(s.copy.same_bits(same.copy));
    CHECK_FALSE(s.master.same_bits(same.master));
    CHECK_FALSE(s.codes[0].same_bits(same.codes[0]));
}

/// Blocks of zeros have absmax 0 and the codes of 0; moments stay zeros, whatever the codes before.
template <class Device>
void keeps_zeros(Device& device) {
    std::vector<float> w(600, 1.0f), g(600, 0.0f);
    g[599] = 1;
    const slabs<float, ht::bfloat16, float> s(w, g);
    const kernel::step_record first{.steps = 1, .lr = 0.01};
    const kernel::gradient_factors none;
    run(device, s.arguments(none, first));
    for (int i = 0; i < 512; ++i) {
        CHECK(s.codes[0][i] == 127);
        CHECK(s.codes[1][i] == 0);
        CHECK(s.master[i] == static_cast<float>(1 - 0.01 * 0.1));
    }
    CHECK(s.absmax[0][0] == 0);
    CHECK(s.absmax[1][1] == 0);
    CHECK(s.absmax[0][2] == static_cast<float>(1 - 0.9));
    CHECK(s.codes[0][599] == 255);
    CHECK(s.codes[1][599] == 255);
}

template <class Device>
void refuses(Device& device) {
    support::random data{6};
    const slabs<float, ht::bfloat16, float> s(data, 300);
    const kernel::step_record record{.steps = 1, .lr = 0.01};
    auto a = s.arguments(factors, record);
    a.step.gradient = {s.gradient.data(), {299}};
    CHECK_THROWS_WITH_AS(run(device, a), "adamw: gradient is (299); expected (300)", ht::shape_error);
    a = s.arguments(factors, record);
    a.codes[1] = {s.codes[1].data(), {256}};
    CHECK_THROWS_WITH_AS(run(device, a), "adamw: codes is (256); expected (300)", ht::shape_error);
    a = s.arguments(factors, record);
    a.absmax[0] = {s.absmax[0].data(), {1}};
    CHECK_THROWS_WITH_AS(run(device, a), "adamw: absmax is (1); expected (2)", ht::shape_error);
    a = s.arguments(factors, record);
    a.step.key.first = 3;
    CHECK_THROWS_AS(run(device, a), ht::argument_error);
}

/// All numbers of the maps and all middles between two, their neighbouring floats, and random numbers have the definition's
/// codes. The first gradient of a block makes its absmax 1.
template <class Device>
void finds_nearest_codes(Device& device) {
    std::vector<float> x;
    const auto around = [&](float v) {
        x.push_back(v), x.push_back(std::nextafterf(v, 0)), x.push_back(std::nextafterf(v, 2));
    };
    for (const bool has_sign : {true, false}) {
        const std::vector<double> map = ht::reference::dynamic_map(has_sign);
        for (std::size_t code = 0; code + 1 < map.size(); ++code) {
            if (map[code] < 0) continue;
            around(static_cast<float>(map[code])), around(static_cast<float>((map[code] + map[code + 1]) / 2));
        }
    }
    support::random data{7};
    for (int i = 0; i < 4000; ++i) x.push_back(static_cast<float>(std::exp2(-data.uniform(0, 30))));
    for (const float tiny : {0x1p-149f, 0x1p-126f, 0x1p-60f, 0x1p-23f, 0x1p-24f, 0.0f, 0x1.fffffep-1f, 1.0f}) x.push_back(tiny);
    std::vector<float> g;
    for (const float sign : {1.0f, -1.0f}) {
        for (const float v : x) {
            if (g.size() % 256 == 0) g.push_back(1);
            if (v <= 1) g.push_back(sign * v);
        }
    }
    const auto n = static_cast<extent>(g.size());
    const slabs<float, ht::bfloat16, float> s(std::vector<float>(g.size()), g);
    const kernel::step_record first{.steps = 1, .lr = 0.01};
    const kernel::gradient_factors none;
    auto a = s.arguments(none, first);
    a.step.rule = {0, 0, 1e-8};  // the first moment is the gradient, the second one its square
    run(device, a);
    const std::vector<double> with_sign = ht::reference::dynamic_map(true), without_sign = ht::reference::dynamic_map(false);
    int wrong = 0;
    for (extent i = 0; i < n; ++i) {
        const float v = s.gradient[i], square = v * v;
        wrong += s.codes[0][i] == ht::reference::nearest_code(with_sign, static_cast<double>(v)) ? 0 : 1;
        wrong += s.codes[1][i] == ht::reference::second_moment_code(without_sign, static_cast<double>(square), v == 0) ? 0 : 1;
    }
    CHECK(wrong == 0);
    for (extent block = 0; block < s.absmax[0].size(); ++block) CHECK(s.absmax[0][block] == 1);
}

}  // namespace eight_bit_checks
