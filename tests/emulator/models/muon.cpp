// SPDX-License-Identifier: MIT
/// \file
/// Muon with all its values in a GPU's memory: its definition, and the parameters that AdamW updates.
#include <halftone/kernel/gradient_norm/device.hpp>
#include <halftone/kernel/matmul/device.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>
#include <halftone/kernel/quantize/device.hpp>

#include <emulator/device.hpp>

#include "optim/muon_checks.hpp"

namespace emulator_models_muon_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;

TEST_CASE("muon on a GPU: equals its definition, in bfloat16 as well as torch.optim.Muon") {
    emulator::device device;
    muon_checks::equals_definition<ht::amp_bf16>(device, 10);
}

TEST_CASE("muon on a GPU: matrices of one shape have the bits that they have one by one") {
    emulator::device device;
    muon_checks::batches_alike(device);
}

TEST_CASE("muon on a GPU: all but hidden matrices goes by AdamW; skipped steps change nothing") {
    emulator::device device;
    muon_checks::leaves_the_rest_to_adamw(device);
}

}  // namespace emulator_models_muon_tests
