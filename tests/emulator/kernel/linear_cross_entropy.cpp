// SPDX-License-Identifier: MIT
/// \file
/// The fused head on the emulated machine.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cross_entropy/device.hpp>
#include <halftone/kernel/matmul/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/linear_cross_entropy/checks.hpp"

namespace {

using namespace linear_cross_entropy_checks;
namespace emulator = ht::emulator;
using head = ht::kernel::linear_cross_entropy<emulator::device>;
/// Chunks of the fewest rows, 64.
using chunked_head = ht::kernel::linear_cross_entropy<emulator::device, 1>;

TEST_CASE_TEMPLATE("linear_cross_entropy on a GPU: loss and gradients within their bounds", M, types<float, float, float>, types<bfloat16, bfloat16, bfloat16>,
                   types<bfloat16, float, bfloat16>) {
    emulator::device device;
    within_bounds<M>(head{}, device, {2, 1, 3}, write_mode::overwrite);
    within_bounds<M>(head{}, device, {37, 19, 53}, write_mode::overwrite);
    within_bounds<M>(head{}, device, {24, 32, 40}, write_mode::add);
}

TEST_CASE("linear_cross_entropy on a GPU: rows in several chunks") {
    emulator::device device;
    REQUIRE(chunked_head::chunk_rows<float>(67, 5) == 64);
    REQUIRE(head::chunk_rows<float>(67, 5) == 67);
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) within_bounds<types<float, float, float>>(chunked_head{}, device, {67, 3, 5}, mode);
}

TEST_CASE("linear_cross_entropy on a GPU: gradients that nobody wants, and a batch without rows") {
    emulator::device device;
    less_than_everything(head{}, device);
}

TEST_CASE("linear_cross_entropy on a GPU: a target that is no class") {
    emulator::device device;
    run<types<float, float, float>> r({5, 4, 7});
    r.targets[2] = 7;
    r(head{}, device, 1, write_mode::overwrite);
    CHECK(std::isnan(r.loss[0]));
    CHECK(std::isnan(r.losses[2]));
    CHECK_FALSE(std::isnan(r.losses[1]));
    CHECK(std::isnan(r.dw[0]));
}

}  // namespace
