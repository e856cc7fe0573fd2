// SPDX-License-Identifier: MIT
/// \file
/// Steps over the rows of sparse gradients on the CPU.
#include <halftone/kernel/adamw/cpu.hpp>
#include <halftone/kernel/sgd/cpu.hpp>

#include "kernel/update/rows_checks.hpp"
#include "support/each_set.hpp"

namespace {

using namespace rows_checks;

TEST_CASE("steps over rows: the bits of a dense step in these rows, and no other byte") {
    support::for_each_set([](ht::isa set) {
        for (const int threads : {1, 2}) {
            ht::cpu device{{.threads = threads, .instruction_set = set}};
            for (const extent width : {1, 3, 8, 67, 260}) equals_dense<float, float>(device, width);
            for (const extent width : {4, 68}) equals_dense<bfloat16, bfloat16>(device, width);
        }
    });
}

TEST_CASE("steps over rows: skipped steps, refusals") {
    ht::cpu device;
    skips_and_refuses(device);
}

}  // namespace
