// SPDX-License-Identifier: MIT
/// \file
/// Batch norm and group norm on the CPU against their definition.
#include <halftone/kernel/channel_norm/cpu.hpp>

#include "kernel/channel_norm/checks.hpp"
#include "support/each_cpu.hpp"

namespace kernel_channel_norm_tests {

using namespace channel_norm_checks;

TEST_CASE("batch_norm, group_norm: within their bounds of the definition") {
    support::for_each_cpu([](ht::cpu& device) {
        within_bounds<float, float, float>(device);
        within_bounds<bfloat16, float, bfloat16>(device);
        far_from_zero(device);
        what_is_special(device);
    });
    ht::cpu device;
    within_bounds<double, double, double>(device);
}

TEST_CASE("batch_norm: the same bits at one and at three threads") {
    ht::cpu one{{.threads = 1}}, three{{.threads = 3}};
    CHECK(many(one) == many(three));
}

TEST_CASE("batch_norm, group_norm: wrong shapes and options") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
}

}  // namespace kernel_channel_norm_tests
