// SPDX-License-Identifier: MIT
/// \file
/// New keys and values go into a key-value cache, as they are and in eight bits, on the emulated GPU.
#include <halftone/kernel/cache_heads/device.hpp>
#include <halftone/kernel/cache_heads/eight_bit/device.hpp>

#include <emulator/device.hpp>

#include "kernel/cache_heads/checks.hpp"
#include "kernel/cache_heads/eight_bit_checks.hpp"

namespace emulator_kernel_cache_heads_tests {

namespace ht = halftone;

TEST_CASE("cache_heads on a GPU: as defined; positions outside the cache are ignored") {
    ht::emulator::device device;
    cache_heads_checks::as_defined(device);
    CHECK(cache_heads_checks::stays_inside(device, {-1, 1, 2}));
}

TEST_CASE("eight_bit_heads on a GPU: as defined and within bounds; slots that the cache does not have are left out") {
    ht::emulator::device device;
    eight_bit_checks::as_defined(device);
    eight_bit_checks::within_bounds(device);
    eight_bit_checks::passes_on_infinities(device);
    CHECK(eight_bit_checks::stays_inside(device, {-1, 1, 2}));
}

}  // namespace emulator_kernel_cache_heads_tests
