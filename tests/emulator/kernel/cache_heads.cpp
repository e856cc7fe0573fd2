// SPDX-License-Identifier: MIT
/// \file
/// What a key-value cache takes in, as a GPU runs it.
#include <halftone/kernel/cache_heads/device.hpp>

#include <emulator/device.hpp>

#include "kernel/cache_heads/checks.hpp"

namespace {

namespace ht = halftone;

TEST_CASE("cache_heads on a GPU: as defined; places that the cache has not are left out") {
    ht::emulator::device device;
    cache_heads_checks::as_defined(device);
    CHECK(cache_heads_checks::stays_inside(device, {-1, 1, 2}));
}

}  // namespace
