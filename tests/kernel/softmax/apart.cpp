// SPDX-License-Identifier: MIT
/// \file
/// Softmax on the CPU of rows with a stride.
#include <doctest/doctest.h>

#include <halftone/kernel/softmax/cpu.hpp>

#include "kernel/softmax/apart.hpp"
#include "support/each_set.hpp"

namespace kernel_softmax_apart_tests {

namespace ht = halftone;

TEST_CASE("softmax, log_softmax: rows may have a stride") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const ht::extent width : {1, 5, 64, 67, 1000}) {
            softmax_checks::rows_apart<ht::kernel::softmax<ht::cpu>, float, float>(device, 37, width);
            softmax_checks::rows_apart<ht::kernel::softmax<ht::cpu>, ht::bfloat16, ht::bfloat16>(device, 37, width);
            softmax_checks::rows_apart<ht::kernel::log_softmax<ht::cpu>, ht::bfloat16, float>(device, 37, width);
        }
    });
    ht::cpu device{{.threads = 2}};
    softmax_checks::rows_apart<ht::kernel::softmax<ht::cpu>, double, double>(device, 37, 67);
}

}  // namespace kernel_softmax_apart_tests
