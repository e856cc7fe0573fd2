// SPDX-License-Identifier: MIT
/// \file
/// The optimizer's two passes on a GPU: the tests of tests/kernel, and slabs of a size that fills the machine.
// compile: joined, at most 60 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/gradient_norm/checks.hpp"
#include "kernel/optimizer_step/adamw_checks.hpp"
#include "kernel/optimizer_step/average_checks.hpp"
#include "kernel/optimizer_step/rows_checks.hpp"
#include "kernel/optimizer_step/sgd_checks.hpp"

namespace {

using device_type = support::waiting_cuda;

namespace adamw {
using namespace adamw_checks;

TEST_CASE_TEMPLATE("adamw on cuda: equals its definition", S, slabs<float, ht::bfloat16, float, float>,
                   slabs<float, float, ht::bfloat16, float>, slabs<float, ht::float16, float, ht::bfloat16>) {
    device_type device;
    equals_definition<S>(device);
}

TEST_CASE("adamw on cuda: stochastic rounding, skipped steps, wrong arguments") {
    device_type device;
    rounds_to_neighbours(device);
    cuts_alike(device);
    rounds_by_place(device);
    moment_shrinks(device);
    skips(device);
    refuses(device);
}
}  // namespace adamw

namespace sgd {
using namespace sgd_checks;

TEST_CASE_TEMPLATE("sgd on cuda: equals its definition", G, float, ht::bfloat16) {
    device_type device;
    equals_definition<G>(device);
}

TEST_CASE("sgd on cuda: stochastic rounding, skipped steps, wrong arguments") {
    device_type device;
    rounds_by_place<ht::bfloat16>(device);
    rounds_by_place<ht::float16>(device);
    moves_on_average(device);
    skips_and_refuses(device);
}
}  // namespace sgd

namespace average {
using namespace average_checks;

TEST_CASE("average in a step on cuda: equals its definition; parameters that are assigned and saved") {
    device_type device;
    keeps_average<slabs<float, ht::bfloat16, float, float>>(device);
    keeps_average<slabs<ht::bfloat16, ht::float16, float, float>>(device);
    assigns(device);
}
}  // namespace average

namespace rows {
using namespace rows_checks;

TEST_CASE("steps over rows on cuda: the bits of a dense step in these rows, and no other byte") {
    device_type device;
    for (const extent width : {3, 8, 67}) equals_dense<float, float>(device, width, width % 4 == 0 ? 16 : 1);
    for (const extent width : {3, 4, 6, 68}) equals_dense<bfloat16, bfloat16>(device, width, 16);
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
