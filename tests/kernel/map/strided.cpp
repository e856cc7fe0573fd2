// SPDX-License-Identifier: MIT
/// \file
/// Maps of views of any strides on the CPU.
#include <doctest/doctest.h>

#include <halftone/kernel/map/cpu.hpp>

#include "kernel/map/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_map_strided_tests {

namespace ht = halftone;

TEST_CASE("map: operands of any strides") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        map_checks::strided<float>(device);
        map_checks::strided<ht::bfloat16>(device);
        map_checks::strided<double>(device);
        map_checks::refuses(device);
    });
}

}  // namespace kernel_map_strided_tests
