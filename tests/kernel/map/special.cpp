// SPDX-License-Identifier: MIT
/// \file
/// Functions of maps at zeros, infinities and NaNs, in every instruction set; special_checks.hpp has the tests.
#include <halftone/kernel/map/cpu.hpp>

#include "kernel/map/special_checks.hpp"
#include "support/each_set.hpp"

namespace kernel_map_special_tests {

namespace ht = halftone;

TEST_CASE("map: functions at zeros of both signs, infinities, NaNs and the ends of their domains") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        special_checks::all(device);
    });
}

}  // namespace kernel_map_special_tests
