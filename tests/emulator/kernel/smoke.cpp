// SPDX-License-Identifier: MIT
/// \file
/// The kernels of bench_cuda --smoke on the emulated GPU.
#include <doctest/doctest.h>

#include <halftone/kernel/device.hpp>

#include "../../../bench/cuda/smoke_checks.hpp"
#include "emulator/damage.hpp"

namespace emulator_kernel_smoke_tests {

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

TEST_CASE("smoke test of a GPU: damaged kernels are reported by name") {
    emulator::device device;
    device.how() = {.seed = 1000, .harm = emulator::damage::shuffle_misdirected, .harmed_site = 0};
    int kernels = 0, told = 0;
    bench::smoke_checks<emulator::device>{device, 72}.run([&](const bench::smoke_result& r) {
        ++kernels;
        told += r.what.empty() ? 0 : 1;
        if (r.kernel == "softmax") CHECK(r.what != "");
        if (r.kernel == "map") CHECK(r.what == "");  // a map has no shuffles
    });
    CHECK(kernels == 19);
    CHECK(told >= 5);
}

}  // namespace emulator_kernel_smoke_tests
