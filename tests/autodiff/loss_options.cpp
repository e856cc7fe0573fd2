// SPDX-License-Identifier: MIT
/// \file
/// Losses with options on tapes of the CPU; loss_options_checks.hpp has the tests.
#include <halftone/kernel.hpp>

#include "autodiff/loss_options_checks.hpp"

namespace autodiff_loss_options_tests {

namespace ht = halftone;
using namespace loss_options_checks;

TEST_CASE("losses: label smoothing, class weights, soft targets, reductions: PyTorch's values and gradients") {
    ht::cpu device{{.threads = 2}};
    as_pytorch<double>(device);
    as_pytorch<float>(device);
    as_pytorch<ht::bfloat16>(device);
}

TEST_CASE("losses: gradients against differences, the z-loss, refusals") {
    ht::cpu device{{.threads = 1}};
    differences(device);
    z_loss(device);
    refuses(device);
}

}  // namespace autodiff_loss_options_tests
