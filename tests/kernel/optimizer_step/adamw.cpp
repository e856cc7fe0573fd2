// SPDX-License-Identifier: MIT
/// \file
/// A step of AdamW on every instruction set; adamw_checks.hpp has the tests.
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/memory/resource.hpp>

#include "kernel/optimizer_step/adamw_checks.hpp"
#include "kernel/optimizer_step/each_set.hpp"

namespace kernel_optimizer_step_adamw_tests {

using namespace adamw_checks;
using step_checks::on_each_set;

TEST_CASE_TEMPLATE("adamw: equals its definition", S, slabs<float, ht::bfloat16, float, float>,
                   slabs<float, ht::float16, float, float>, slabs<float, float, ht::bfloat16, float>,
                   slabs<float, ht::bfloat16, float, ht::bfloat16>) {
    on_each_set([](ht::cpu& device) { equals_definition<S>(device); });
}

TEST_CASE("adamw: parameters without a master are rounded to one of two neighbours, by different random numbers") {
    on_each_set([](ht::cpu& device) { rounds_to_neighbours(device); });
}

TEST_CASE("adamw: the random numbers of an element depend on its index alone, however parameters are partitioned") {
    on_each_set([](ht::cpu& device) { cuts_alike(device); });
}

TEST_CASE("adamw: a moment in bf16 is rounded by the random bits of its index") {
    on_each_set([](ht::cpu& device) { rounds_by_place(device); });
}

TEST_CASE("adamw: a second moment in bf16 shrinks on average, where rounding to nearest would keep it") {
    on_each_set([](ht::cpu& device) { moment_shrinks(device); });
}

TEST_CASE("adamw: a skipped step changes nothing, and the copy is optional") {
    on_each_set([](ht::cpu& device) { skips(device); });
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
        kernel::optimizer_step<ht::cpu>::run<ht::rounding::nearest_even, kernel::adamw_rule, float, ht::bfloat16, float,
                                             float>(
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

TEST_CASE("adamw: arguments that do not fit together are refused") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
}

}  // namespace kernel_optimizer_step_adamw_tests
