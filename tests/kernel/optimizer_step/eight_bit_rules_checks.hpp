// SPDX-License-Identifier: MIT
/// \file
/// What a step with moments in 8 bits has to do for every rule, on every device.
///
///     eight_bit_checks::equals_step_of_floats(device, kernel::lion_rule{0.9, 0.98});
#pragma once

#include <deque>

#include "kernel/optimizer_step/eight_bit_checks.hpp"

namespace eight_bit_checks {

/// A step with moments in 8 bits has the bits of the rule's step with the values of their codes as floats; then the new
/// moments get the codes of the definition.
template <class Rule, class Device>
void equals_step_of_floats(Device& device, const Rule& rule) {
    CAPTURE(Rule::name);
    support::random data{3};
    for (const extent n : {extent{1}, extent{67}, extent{256}, extent{1033}}) {
        CAPTURE(n);
        const int offset = n % 2 == 0 ? 0 : 1;
        const std::vector<float> begin = data.normals<float>(n);
        const guarded<float> got(begin, 3 * offset), want(begin, 3 * offset);
        const guarded<ht::bfloat16> got_copy(n, offset), want_copy(n, offset);
        const guarded<float> gradient(slabs<float, ht::bfloat16, float>::gradients(data, n), 5 * offset);
        std::deque<guarded<std::uint8_t>> codes;
        std::deque<guarded<float>> absmax, floats;
        const auto size = static_cast<std::size_t>(n), blocks = static_cast<std::size_t>(kernel::eight_bit_blocks(n));
        for (int k = 0; k < Rule::moments; ++k) {
            std::vector<std::uint8_t> all(size);  // every code is read in the first step
            for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::uint8_t>(i * 7);
            codes.emplace_back(all, 3 * offset);
            absmax.emplace_back(std::vector<float>(blocks, 0.37f), offset);
            floats.emplace_back(std::vector<float>(size), offset);
        }
        const auto map_of = [](std::size_t k) -> const kernel::dynamic_map& {
            return kernel::moment_has_sign<Rule>(static_cast<int>(k)) ? maps().with_sign : maps().without_sign;
        };
        for (int t = 1; t <= 3; ++t) {
            const kernel::step_record record{.steps = t, .lr = 0.01};
            kernel::eight_bit_step_arguments<Rule, float, ht::bfloat16, float> a{
                .step = {.master = got.view(), .copy = got_copy.view(), .gradient = gradient.const_view(), .rule = rule,
                         .rates = {.weight_decay = 0.1}, .factors = &factors, .step = &record},
                .maps = &maps()};
            kernel::optimizer_step_arguments<Rule, float, ht::bfloat16, float, float> exact = a.step;
            exact.master = want.view(), exact.copy = want_copy.view();
            for (std::size_t k = 0; k < codes.size(); ++k) {
                a.codes[k] = codes[k].view(), a.absmax[k] = absmax[k].view(), exact.moments[k] = floats[k].view();
                for (extent i = 0; i < n; ++i) floats[k][i] = map_of(k).value(codes[k][i]) * absmax[k][i / 256];
            }
            run(device, a);
            kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even>(device, exact);
            CHECK(got.same_bits(want));
            CHECK(got_copy.same_bits(want_copy));
            int wrong = 0;
            for (std::size_t k = 0; k < codes.size(); ++k) {
                const std::vector<double> map = ht::reference::dynamic_map(map_of(k).has_sign());
                for (extent first = 0; first < n; first += 256) {
                    const extent end = std::min(n, first + 256);
                    float most = 0;
                    for (extent i = first; i < end; ++i) most = std::max(most, std::fabs(floats[k][i]));
                    wrong += absmax[k][first / 256] == most ? 0 : 1;
                    for (extent i = first; i < end; ++i) {
                        const float quotient = floats[k][i] / (most > 0 ? most : 1.0f);
                        const bool is_zero = floats[0][i] == 0 && floats[k][i] == 0;
                        const bool is_raised = kernel::moment_divides<Rule>(static_cast<int>(k)) && !is_zero;
                        const std::uint8_t nearest = ht::reference::nearest_code(map, static_cast<double>(quotient));
                        wrong += codes[k][i] == std::max<std::uint8_t>(nearest, is_raised ? 1 : 0) ? 0 : 1;
                    }
                }
                CHECK(codes[k].intact());
                CHECK(absmax[k].intact());
            }
            CHECK(wrong == 0);
        }
    }
}

/// The same for each rule with elementwise moments.
template <class Device>
void equal_steps_of_floats(Device& device) {
    equals_step_of_floats(device, kernel::adamw_rule{0.9, 0.99, 1e-6});
    equals_step_of_floats(device, kernel::lion_rule{0.9, 0.98});
    equals_step_of_floats(device, kernel::sgd_rule{0.9, 0.1, kernel::momentum_kind::plain});
    equals_step_of_floats(device, kernel::sgd_rule{0.9, 0, kernel::momentum_kind::nesterov});
}

/// A rule without moments has none to store in 8 bits.
template <class Device>
void refuses_rules_without_moments(Device& device) {
    const guarded<float> w(std::vector<float>(4)), g(std::vector<float>(4)), absmax(std::vector<float>(1));
    const guarded<std::uint8_t> codes(std::vector<std::uint8_t>(4));
    const kernel::step_record record{.steps = 1, .lr = 0.01};
    const kernel::eight_bit_step_arguments<kernel::sgd_rule, float, float, float> a{
        .step = {.master = w.view(), .gradient = g.const_view(), .factors = &factors, .step = &record},
        .codes = {codes.view()},
        .absmax = {absmax.view()},
        .maps = &maps()};
    CHECK_THROWS_WITH_AS(run(device, a), "sgd: moments in 8 bits of a rule that stores none; expected a momentum",
                         ht::argument_error);
}

}  // namespace eight_bit_checks
