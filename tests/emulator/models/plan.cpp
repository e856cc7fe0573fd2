// SPDX-License-Identifier: MIT
/// \file
/// The plan of a training run on a GPU: its own twin of the device, with the same bytes by kind.
#include <type_traits>

#include <doctest/doctest.h>

#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>
#include <halftone/observe/memory/history.hpp>
#include <halftone/observe/memory/plan.hpp>

#include "train/loop.hpp"
#include "train/plan_checks.hpp"

namespace emulator_models_plan_tests {

namespace ht = halftone;

TEST_CASE("the plan of a training step on a device is what the step needs there") {
    using halftone::emulator::device;
    const auto steps = [](auto& d) {
        training::loop<ht::amp_bf16, std::remove_reference_t<decltype(d)>> loop(d);
        for (int i = 0; i < 2; ++i) loop.step();
    };
    device gpu;
    const ht::memory_plan plan = ht::plan(gpu, steps);
    CHECK(gpu.launches() == 0);
    CHECK(gpu.memory().usage().peak() == 0);

    ht::memory_history history{gpu};
    steps(gpu);
    const ht::memory_usage& usage = gpu.memory().usage();
    CHECK(plan.peak_bytes == usage.peak());
    for (int k = 0; k < ht::memory_kinds; ++k) {
        const auto kind = static_cast<ht::memory_kind>(k);
        CAPTURE(ht::name(kind));
        CHECK(plan.peak_of(kind) == usage.peak(kind));
        CHECK(history.snapshot().bytes_at_peak[static_cast<std::size_t>(k)] == plan.at_peak(kind));
    }
    // The history, too, has each block of the device's memory, from its allocation to its end.
    const ht::memory_snapshot all = history.snapshot();
    CHECK(all.peak_bytes == plan.peak_bytes);
    for (const ht::memory_allocation& a : all.allocations)
        CHECK((a.ended > a.began || a.kind == ht::memory_kind::workspace));  // which the device keeps
    CHECK(!all.segments.empty());
}

TEST_CASE("plan on a device: optimizers, packed documents, checkpoints and evaluations, to the byte, and captured steps") {
    halftone::emulator::device gpu{{.check = halftone::emulator::checking::values_only}};
    plan_checks::optimizers_and_rows<ht::amp_bf16>(gpu, 3);
}

TEST_CASE("plan on a device: fp8, split masters, 16-bit parameters, Llamas and an encoder, to the byte") {
    halftone::emulator::device gpu{{.check = halftone::emulator::checking::values_only}};
    plan_checks::policies_and_models(gpu, 3);
}

}  // namespace emulator_models_plan_tests
