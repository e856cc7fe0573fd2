// SPDX-License-Identifier: MIT
/// \file
/// AdamW with moments in 8 bits with all its operands in a GPU's memory.
#include <halftone/kernel/gradient_norm/device.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/device.hpp>
#include <halftone/kernel/quantize/device.hpp>

#include <halftone/optim/lion_8bit.hpp>
#include <halftone/optim/sgd_8bit.hpp>

#include <emulator/device.hpp>

#include "optim/adamw_8bit_checks.hpp"

namespace emulator_models_adamw_8bit_tests {

namespace emulator = halftone::emulator;
using namespace adamw_8bit_checks;

TEST_CASE("adamw_8bit on a GPU: small parameters are AdamW's, a run goes on from its state, averages, bytes") {
    emulator::device device;
    small_parameters_are_adamws<ht::amp_bf16>(device);
    resumes<ht::amp_bf16>(device);
    averages<ht::amp_bf16>(device);
    counts_bytes(device);
}

TEST_CASE("lion_8bit, sgd_8bit on a GPU: a run goes on from its state") {
    emulator::device device;
    using model_type = small::model<ht::amp_bf16>;
    resumes<ht::amp_bf16, emulator::device, ht::lion_8bit<emulator::device, model_type>>(
        device, ht::lion_8bit_options{.lr = 0.01, .min_8bit_size = least});
    resumes<ht::amp_bf16, emulator::device, ht::sgd_8bit<emulator::device, model_type>>(
        device, ht::sgd_8bit_options{.lr = 0.1, .min_8bit_size = least});
}

}  // namespace emulator_models_adamw_8bit_tests
