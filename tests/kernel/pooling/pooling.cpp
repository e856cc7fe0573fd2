// SPDX-License-Identifier: MIT
/// \file
/// Pooling on the CPU against its definition.
#include <halftone/kernel/pooling/cpu.hpp>

#include "kernel/pooling/checks.hpp"
#include "support/each_cpu.hpp"

namespace kernel_pooling_tests {

using namespace pooling_checks;

TEST_CASE("max_pool2d, avg_pool2d, adaptive_avg_pool2d: as defined") {
    support::for_each_cpu([](ht::cpu& device) { all(device); });
}

TEST_CASE("pooling: the same bits at one and at three threads, and in every instruction set") {
    ht::cpu three{{.threads = 3}};
    const std::vector<float> want = overlapping(three);
    support::for_each_cpu([&](ht::cpu& device) { CHECK(overlapping(device) == want); });
}

TEST_CASE("pooling: invalid windows and wrong shapes") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
}

}  // namespace kernel_pooling_tests
