// SPDX-License-Identifier: MIT
/// \file
/// What bench_cuda --smoke expects of a GPU, on the CPU: the numbers themselves are right, and a wrong one is found.
#include <doctest/doctest.h>

#include <halftone/kernel.hpp>

#include "../../../bench/cuda/smoke_checks.hpp"

namespace {

namespace ht = halftone;

TEST_CASE("smoke test of a GPU: the CPU passes it") {
    ht::cpu device;
    int kernels = 0;
    bench::smoke_checks<ht::cpu>{device, 264}.run([&](const bench::smoke_result& r) {
        CAPTURE(r.kernel);
        CHECK(r.what == "");
        CHECK(r.wrong == 0);
        CHECK(r.of > 0);
        ++kernels;
    });
    CHECK(kernels == 19);
}

}  // namespace
