// SPDX-License-Identifier: MIT
/// \file
/// Runs on the emulated GPU that are saved and loaded go on with the bits of those that were not interrupted: all state is in a
/// memory that the host cannot access, steps of a trainer are captured, and a loader copies its batches.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/device.hpp>
#include <halftone/kernel/quantize/device.hpp>

#include "io/resume_checks.hpp"

namespace emulator_models_resume_tests {

namespace ht = halftone;
using machine = ht::emulator::device;

TEST_CASE("checkpoint on a GPU: a resumed run has the bits of an uninterrupted one") {
    keeping::resumes<ht::amp_fp16, keeping::by_adamw, machine>(2);
    keeping::resumes<ht::amp_fp16, keeping::by_adamw_8bit, machine>(3);
}

TEST_CASE("checkpoint on a GPU: a run goes on in the middle of an epoch of its loader") {
    keeping::resumes_in_an_epoch<ht::amp_fp16, keeping::by_adamw_8bit, machine>();
    keeping::trainer_resumes_in_an_epoch<ht::amp_fp16, machine>();
}

}  // namespace emulator_models_resume_tests
