// SPDX-License-Identifier: MIT
/// \file
/// Steps of AdamW, Lion and SGD on every instruction set; rule_checks.hpp has the tests.
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/memory/resource.hpp>

#include "kernel/optimizer_step/each_set.hpp"
#include "kernel/optimizer_step/rule_checks.hpp"

namespace kernel_optimizer_step_rules_tests {

using namespace rule_checks;
using ht::bfloat16, ht::float16;

TEST_CASE_TEMPLATE("adamw, lion, sgd: a step equals its definition", S,
                   slabs<adamw_rule, float, bfloat16, float, float>, slabs<adamw_rule, float, float16, float, float>,
                   slabs<adamw_rule, float, float, bfloat16, float>,
                   slabs<adamw_rule, float, bfloat16, float, bfloat16>,
                   slabs<adamw_rule, bfloat16, float, float, bfloat16>, slabs<lion_rule, float, bfloat16, float, float>,
                   slabs<lion_rule, float, float16, bfloat16, bfloat16>, slabs<sgd_rule, float, bfloat16, float, float>,
                   slabs<sgd_rule, float, bfloat16, bfloat16, float>) {
    on_each_set([](ht::cpu& device) { equals_definition<S>(device); });
}

TEST_CASE_TEMPLATE(
    "adamw, lion, sgd: rounding by index, however parameters are partitioned; skipped steps, wrong arguments", Rule,
    adamw_rule, lion_rule, sgd_rule) {
    on_each_set([](ht::cpu& device) { checks_rule<Rule>(device); });
}

TEST_CASE("adamw: a second moment in bf16 shrinks on average, where rounding to nearest would keep it") {
    on_each_set([](ht::cpu& device) { moment_shrinks(device); });
}

TEST_CASE("sgd: parameters without a master move on average") {
    on_each_set([](ht::cpu& device) { moves_on_average(device); });
}

TEST_CASE_TEMPLATE("average in a step: equals its definition", S, slabs<lion_rule, float, bfloat16, float, float>,
                   slabs<lion_rule, bfloat16, float16, float, float>) {
    on_each_set([](ht::cpu& device) { keeps_average<S>(device); });
}

TEST_CASE("average in a step: the assigning rule, and saved parameters") {
    on_each_set([](ht::cpu& device) { assigns(device); });
}

/// The bits of n copies after a step from a fixed pattern, in runs that end at `ends`.
std::vector<std::uint16_t> copies_after(ht::cpu& device, ht::extent n, const std::vector<ht::extent>& ends) {
    const auto size = static_cast<std::size_t>(n);
    std::vector<float> master(size), gradient(size), first(size), second(size);
    const ht::buffer memory(device.memory(), size * sizeof(ht::bfloat16), ht::memory_kind::copy);
    auto* const copy = reinterpret_cast<ht::bfloat16*>(memory.data());
    for (std::size_t i = 0; i < size; ++i) {
        master[i] = static_cast<float>(i % 8191) * 1e-3f - 4.0f;
        gradient[i] = static_cast<float>(i % 127) - 60.0f;
        first[i] = static_cast<float>(i % 13);
        second[i] = static_cast<float>(i % 17);
        copy[i] = ht::bfloat16(7.0f);
    }
    ht::extent begin = 0;
    for (const ht::extent end : ends) {
        const ht::shape<1> count{end - begin};
        kernel::optimizer_step<ht::cpu>::run<ht::rounding::nearest_even, adamw_rule, float, ht::bfloat16, float, float>(
            device, {.master = {master.data() + begin, count},
                     .copy = {copy + begin, count},
                     .gradient = {gradient.data() + begin, count},
                     .moments = {{first.data() + begin, count}, {second.data() + begin, count}},
                     .rates = {.weight_decay = 0.1},
                     .factors = &factors,
                     .step = &third});
        begin = end;
    }
    std::vector<std::uint16_t> bits(size);
    for (std::size_t i = 0; i < size; ++i) bits[i] = copy[i].bits();
    return bits;
}

TEST_CASE("adamw: copies written by non-temporal stores have the bits of the others") {
    constexpr auto enough = static_cast<ht::extent>(ht::detail::non_temporal_threshold / sizeof(ht::bfloat16));
    constexpr ht::extent n = enough + 33, half = enough / 2;
    on_each_set([](ht::cpu& device) { CHECK((copies_after(device, n, {n}) == copies_after(device, n, {half, n}))); });
}

}  // namespace kernel_optimizer_step_rules_tests
