// SPDX-License-Identifier: MIT
/// \file
/// The copying of new keys and values into a key-value cache on the emulated GPU.
#include <halftone/kernel/cache_heads/device.hpp>

#include <emulator/device.hpp>

#include "kernel/cache_heads/checks.hpp"

namespace {

namespace ht = halftone;

TEST_CASE("cache_heads on a GPU: as defined; positions outside the cache are ignored") {
    ht::emulator::device device;
    cache_heads_checks::as_defined(device);
    CHECK(cache_heads_checks::stays_inside(device, {-1, 1, 2}));
}

}  // namespace
