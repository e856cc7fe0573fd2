// SPDX-License-Identifier: MIT
/// \file
/// A whole model with number types that the library does not know on the emulated GPU.
#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>

#include "nn/gpt_gradients.hpp"
#include "support/own_numbers.hpp"

namespace emulator_models_own_numbers_tests {

namespace ht = halftone;

template <class P, class T>
void within_what_rounding_does(float seed) {
    ht::emulator::device device{{.seed = 7}};
    nn_test::within_what_rounding_does_on<P, T>(device, seed);
}

TEST_CASE("gpt on the emulated machine: number types of a user's own") {
    SUBCASE("a float of 6 exponent bits") { within_what_rounding_does<support::amp_e6m9, support::float16_e6m9>(1024); }
    SUBCASE("operands in fixed point") { within_what_rounding_does<support::fixed_operands, support::fixed16>(64); }
}

}  // namespace emulator_models_own_numbers_tests
