// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy with label smoothing, class weights and a z-loss on the CPU against its definition.
#include <halftone/kernel/weighted_cross_entropy/cpu.hpp>

#include "kernel/weighted_cross_entropy/checks.hpp"
#include "support/each_cpu.hpp"

namespace kernel_weighted_cross_entropy_tests {

using namespace weighted_cross_entropy_checks;

TEST_CASE("weighted cross_entropy: within its bound of the definition") {
    support::for_each_cpu([](ht::cpu& device) { all(device); });
}

TEST_CASE("weighted cross_entropy: in double, and the definition's gradient") {
    ht::cpu device{{.threads = 2}};
    in_double(device);
    definition();
}

TEST_CASE("weighted cross_entropy: the same bits at one and at two threads") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    const run<mixed, ht::cpu> a(one, 300, 501, 0, 2.0, cases[5], 1), b(two, 300, 501, 0, 2.0, cases[5], 1);
    CHECK(a.losses.same_bits(b.losses));
    CHECK(a.dx.same_bits(b.dx));
}

}  // namespace kernel_weighted_cross_entropy_tests
