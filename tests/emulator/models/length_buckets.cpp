// SPDX-License-Identifier: MIT
/// \file
/// Batches of nine lengths on the emulated GPU: nine captures, whatever the kind of its arenas, and the same bits; captured
/// steps in memory that grows.
#include <doctest/doctest.h>

#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "train/captured.hpp"
#include "train/length_buckets.hpp"

namespace emulator_models_length_buckets_tests {

namespace ht = halftone;
using machine = ht::emulator::device;

/// Other files look for races in these kernels.
ht::emulator::options quick(std::uint64_t seed) { return {.seed = seed, .check = ht::emulator::checking::values_only}; }

TEST_CASE("length buckets: each of nine lengths is captured once, for every kind of arena, with the same bits") {
    std::vector<std::byte> first;
    for (const ht::arena_kind kind :
         {ht::arena_kind::segments, ht::arena_kind::planned, ht::arena_kind::growable, ht::arena_kind::caching}) {
        machine device{quick(1)};
        const auto masters = buckets::check_captures(device, kind);
        if (first.empty()) first = masters;
        CHECK((masters == first));
    }
}

TEST_CASE("captured step: in growable memory, the same bits as uncaptured steps") {
    machine one{quick(1)}, two{quick(99)};
    one.memory().set_arenas(ht::arena_kind::growable);
    two.memory().set_arenas(ht::arena_kind::growable);
    captured::check_same_bits(one, two);
}

}  // namespace emulator_models_length_buckets_tests
