// SPDX-License-Identifier: MIT
/// \file
/// Steps of AdamW, Lion, SGD and a rule outside of the library on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>

#include "kernel/optimizer_step/rule_checks.hpp"

namespace emulator_kernel_optimizer_step_tests {

using namespace rule_checks;
namespace emulator = ht::emulator;
using ht::bfloat16, ht::float16;

TEST_CASE_TEMPLATE("adamw, lion, sgd on a GPU: a step equals its definition", S,
                   slabs<adamw_rule, float, bfloat16, float, float>, slabs<adamw_rule, float, float, bfloat16, float>,
                   slabs<adamw_rule, float, float16, float, bfloat16>,
                   slabs<adamw_rule, bfloat16, float, float, bfloat16>, slabs<lion_rule, float, bfloat16, float, float>,
                   slabs<lion_rule, float, float16, bfloat16, bfloat16>, slabs<sgd_rule, float, bfloat16, float, float>,
                   slabs<sgd_rule, float, bfloat16, bfloat16, float>) {
    emulator::device device;
    equals_definition<S>(device);
}

TEST_CASE_TEMPLATE(
    "adamw, lion, sgd on a GPU: rounding by index, however parameters are partitioned; skipped steps, wrong arguments",
    Rule, adamw_rule, lion_rule, sgd_rule) {
    emulator::device device;
    checks_rule<Rule>(device);
}

TEST_CASE("adamw, sgd on a GPU: moments and parameters of 16 bits move on average") {
    emulator::device device;
    moment_shrinks(device);
    moves_on_average(device);
}

TEST_CASE_TEMPLATE(
    "adamw, lion, sgd, a program's own rule on a GPU: the bits are the CPU's", S,
    slabs<adamw_rule, float, bfloat16, float, float>, slabs<adamw_rule, float, float16, float, float>,
    slabs<adamw_rule, float, float, bfloat16, bfloat16>, slabs<adamw_rule, bfloat16, bfloat16, float, float>,
    slabs<adamw_rule, float16, float16, float, float>, slabs<adamw_rule, bfloat16, bfloat16, bfloat16, bfloat16>,
    slabs<lion_rule, float, bfloat16, float, float>, slabs<lion_rule, bfloat16, bfloat16, bfloat16, bfloat16>,
    slabs<sgd_rule, float, bfloat16, float, float>, slabs<sgd_rule, float, float16, bfloat16, bfloat16>,
    slabs<sgd_rule, bfloat16, bfloat16, float, float16>, slabs<sgd_rule, bfloat16, bfloat16, bfloat16, bfloat16>,
    slabs<own::ademamix_rule, float, bfloat16, float, float>) {
    // Portable code has no fused multiply-add.
    if (!ht::supports(ht::isa::avx2)) {
        MESSAGE("not checked: the bits of the CPU (this processor lacks avx2)");
        return;
    }
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    emulator::device device;
    agrees<S>(cpu, device);
}

TEST_CASE("adamw on a GPU: with few blocks each thread updates several runs of elements") {
    using pure = slabs<adamw_rule, bfloat16, float, float, bfloat16>;
    support::random one{1}, two{1};
    const pure all(one, 9001, placement::aligned), few(two, 9001, placement::aligned);
    emulator::device device;
    step(device, all);
    CHECK(device.count().blocks == 9);
    const auto a = few.arguments(third);
    device.launch(kernel::on_device::optimizer_step_kernel<adamw_rule, ht::rounding::stochastic,
                                                           ht::rounding::nearest_even, bfloat16, float, float, bfloat16,
                                                           kernel::on_device::run_access::vectors>(a, 2));
    CHECK(few.same_bits(all));
    CHECK(kernel::on_device::update_blocks(ht::extent{1} << 40, 256) == 2048);
}

TEST_CASE_TEMPLATE("average in a step on a GPU: equals its definition", S,
                   slabs<lion_rule, float, bfloat16, float, float>, slabs<lion_rule, bfloat16, float16, float, float>) {
    emulator::device device;
    keeps_average<S>(device);
}

TEST_CASE("average in a step on a GPU: the assigning rule, and saved parameters") {
    emulator::device device;
    assigns(device);
}

TEST_CASE_TEMPLATE("adamw, lion, sgd, average on a GPU: any schedule gives the same bits, and every damage is found", S,
                   slabs<adamw_rule, bfloat16, float, float, bfloat16>,
                   slabs<lion_rule, bfloat16, float, float, bfloat16>,
                   slabs<sgd_rule, bfloat16, float, float, bfloat16>,
                   averaged<slabs<lion_rule, float, bfloat16, float, float>>) {
    support::random data{9};
    const S want(data, 2077);
    emulator::device first;
    step(first, want);
    emulator::check_kernels([&](emulator::device& device) {
        support::random again{9};
        const S got(again, 2077);
        step(device, got);
        return got.same_bits(want);
    });
}

}  // namespace emulator_kernel_optimizer_step_tests
