// SPDX-License-Identifier: MIT
/// \file
/// Runs each kernel once on this GPU, on integers: smoke_checks.hpp.
// compile: with --full, at most 150 kernels.
#include <chrono>

#include <halftone/exec/cuda/sort.cuh>
#include <halftone/kernel.cuh>

#include "bench.hpp"
#include "smoke_checks.hpp"

namespace bench {

void run_smoke_test(std::int64_t large, smoke_listener& to) {
    ht::cuda gpu;
    auto began = std::chrono::steady_clock::now();
    smoke_checks<ht::cuda>{gpu, large}.run([&](const smoke_result& r) {
        const auto now = std::chrono::steady_clock::now();
        to.on_kernel({r.kernel, r.wrong, r.of, r.what, std::chrono::duration<double>(now - began).count()});
        began = now;
    });
}

}  // namespace bench
