// SPDX-License-Identifier: MIT
/// \file
/// Keys and values in eight bits on every instruction set, against their definition and its bounds.
#include <halftone/kernel/cache_heads/eight_bit/cpu.hpp>

#include "kernel/cache_heads/eight_bit_checks.hpp"
#include "support/each_cpu.hpp"

namespace kernel_cache_heads_eight_bit_tests {

namespace ht = halftone;

TEST_CASE("eight_bit_heads: the bits of the definition, on every instruction set") {
    support::for_each_cpu([](ht::cpu& device) { eight_bit_checks::as_defined(device); });
    ht::cpu device{{.threads = 2}};
    eight_bit_checks::as_defined(device);
    eight_bit_checks::check_sequences<double>(device, 1, 2, 5, 4, {4, 3}, {true, true});
}

TEST_CASE("eight_bit_heads: errors within the bound of the definition, from the largest numbers to subnormal ones") {
    support::for_each_cpu([](ht::cpu& device) {
        eight_bit_checks::within_bounds(device);
        eight_bit_checks::passes_on_infinities(device);
    });
}

TEST_CASE("eight_bit_heads: slots outside of the cache") {
    ht::cpu device{{.threads = 1}};
    CHECK_THROWS_WITH_AS(eight_bit_checks::stays_inside(device, {0, 1, 2}),
                         "eight_bit_heads: the slot of row 2 is 2; expected 0 to 1", ht::argument_error);
}

}  // namespace kernel_cache_heads_eight_bit_tests
