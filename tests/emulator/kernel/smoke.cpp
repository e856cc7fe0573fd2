// SPDX-License-Identifier: MIT
/// \file
/// What bench_cuda --smoke runs on a GPU, on the emulated machine.
#include <doctest/doctest.h>

#include <halftone/kernel/device.hpp>

#include "../../../bench/cuda/smoke_checks.hpp"
#include "emulator/damage.hpp"

namespace {

namespace ht = halftone;
namespace emulator = ht::emulator;

TEST_CASE("smoke test of a GPU: the emulated machine passes it") {
    emulator::device device;
    bench::smoke_checks<emulator::device>{device, 72}.run([&](const bench::smoke_result& r) {
        CAPTURE(r.kernel);
        CHECK(r.what == "");
        CHECK(r.wrong == 0);
        CHECK(r.of > 0);
    });
}

}  // namespace
