// SPDX-License-Identifier: MIT
/// \file
/// Trainers of any optimizer on the emulated GPU: captured steps have the bits of uncaptured ones.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>

#include "train/any_optimizer.hpp"

namespace emulator_models_any_optimizer_tests {

namespace ht = halftone;

using machine = ht::emulator::device;

TEST_CASE_TEMPLATE("trainer of any optimizer: captured steps have the bits of uncaptured ones", Options, ANY_OPTIMIZER) {
    machine one{{.seed = 1, .check = ht::emulator::checking::values_only}},
        two{{.seed = 2, .check = ht::emulator::checking::values_only}};
    ht::training_arguments a = any::arguments;
    any::run<Options, machine> captured{one, a};
    a.capture_steps = ht::step_capture::off;
    any::run<Options, machine> plain{two, a};
    CHECK(captured.trainer.train(captured.data).train_loss == plain.trainer.train(plain.data).train_loss);
    CHECK(captured.bytes() == plain.bytes());
    CHECK(captured.trainer.capture_refused().empty());
    CHECK(captured.trainer.captured().replays() > 2);
    CHECK(plain.trainer.captured().replays() == 0);
}

}  // namespace emulator_models_any_optimizer_tests
