// SPDX-License-Identifier: MIT
/// \file
/// The optimizer's two passes on a GPU: the tests of tests/kernel, and slabs of a size that fills the machine.
// compile: joined, at most 60 kernels.
#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/cpu.hpp>

#include "cuda/device.cuh"
#include "kernel/gradient_norm/checks.hpp"
#include "kernel/optimizer_step/rows_checks.hpp"
#include "kernel/optimizer_step/rule_checks.hpp"

namespace {

using device_type = support::waiting_cuda;

namespace rules {
using namespace rule_checks;

TEST_CASE_TEMPLATE("adamw, sgd on cuda: a step equals its definition", S,
                   slabs<adamw_rule, float, ht::bfloat16, float, float>,
                   slabs<adamw_rule, float, float, ht::bfloat16, float>,
                   slabs<adamw_rule, float, ht::float16, float, ht::bfloat16>,
                   slabs<sgd_rule, float, ht::bfloat16, float, float>,
                   slabs<sgd_rule, float, ht::bfloat16, ht::bfloat16, float>) {
    device_type device;
    equals_definition<S>(device);
}

TEST_CASE_TEMPLATE("adamw, sgd on cuda: rounding by index, skipped steps, wrong arguments", Rule, adamw_rule, sgd_rule) {
    device_type device;
    checks_rule<Rule>(device);
}

TEST_CASE("adamw, sgd on cuda: moments and parameters of 16 bits move on average") {
    device_type device;
    moment_shrinks(device);
    moves_on_average(device);
}

TEST_CASE("a rule of a program's own on cuda: the bits of the CPU's sets with fused multiply-adds") {
    if (!ht::supports(ht::isa::avx2)) {
        MESSAGE("not tested here: this processor lacks avx2");
        return;
    }
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    device_type device;
    agrees<slabs<own::ademamix_rule, float, ht::bfloat16, float, float>>(cpu, device);
}

TEST_CASE("average in a step on cuda: equals its definition; parameters that are assigned and saved") {
    device_type device;
    keeps_average<slabs<lion_rule, float, ht::bfloat16, float, float>>(device);
    keeps_average<slabs<lion_rule, ht::bfloat16, ht::float16, float, float>>(device);
    assigns(device);
}
}  // namespace rules

namespace rows {
using namespace rows_checks;

TEST_CASE("steps over rows on cuda: the bits of a dense step in these rows, and no other byte") {
    device_type device;
    for (const extent width : {3, 8, 67}) equals_dense<float, float>(device, width, placements[width % 4 == 0 ? 0 : 1]);
    for (const extent width : {3, 4, 6, 68}) equals_dense<bfloat16, bfloat16>(device, width, placement::aligned);
    skips_and_refuses(device);
}
}  // namespace rows

namespace gradient_norm {
using namespace gradient_norm_checks;

TEST_CASE_TEMPLATE("gradient_norm on cuda: equals its definition, and one value that is not finite is found", G, float,
                   ht::bfloat16, ht::float16) {
    device_type device;
    equals_definition<G>(device);
    finds_one<G>(device);
}

TEST_CASE("gradient_norm on cuda: squares outside of float's range, several runs, wrong arguments") {
    device_type device;
    knows_all_magnitudes(device);
    finds_what_unscaling_overflows(device);
    adds_up(device);
    refuses(device);
}

TEST_CASE("gradient_norm on cuda: sums of small integers are exact at any size") {
    device_type device;
    const ht::extent n = (ht::extent{1} << 24) + 5;
    const std::vector<ht::bfloat16> ones(static_cast<std::size_t>(n), ht::bfloat16(1.0f));
    kernel::gradient_record record;
    std::int32_t found = 0;
    kernel::gradient_norm<device_type>::add(device, ht::const_view<ht::bfloat16, 1>{ones.data(), {n}}, &record, &found);
    CHECK(record.squares == static_cast<double>(n));
    CHECK(found == 0);
}
}  // namespace gradient_norm

}  // namespace
