// SPDX-License-Identifier: MIT
/// \file
/// The copying of new keys and values into a key-value cache, against its definition.
#include <halftone/kernel/cache_heads/cpu.hpp>

#include "kernel/cache_heads/checks.hpp"

namespace kernel_cache_heads_tests {

namespace ht = halftone;

TEST_CASE("cache_heads: as defined, with one thread and with two") {
    for (const int threads : {1, 2}) {
        ht::cpu device{{.threads = threads}};
        cache_heads_checks::as_defined(device);
        CHECK_THROWS_WITH_AS(cache_heads_checks::stays_inside(device, {0, 1, 2}),
                             "cache_heads: the slot of row 2 is 2; expected 0 to 1", ht::argument_error);
        CHECK_THROWS_AS(cache_heads_checks::stays_inside(device, {-1, 1, 0}), ht::argument_error);
    }
}

}  // namespace kernel_cache_heads_tests
