// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives of gathering along an axis, of masks and of losses with options, on the CPU.
#include <halftone/kernel.hpp>

#include "autodiff/twice_choosing.hpp"

namespace autodiff_twice_choosing_tests {

namespace ht = halftone;

TEST_CASE("second derivatives of gather, index_select, index_add, where, masked_fill, tril") {
    ht::cpu device{{.threads = 1}};
    twice_checks::check_choosing(device);
}

TEST_CASE("second derivatives of losses with options") {
    ht::cpu device{{.threads = 1}};
    twice_checks::check_loss_options(device);
}

}  // namespace autodiff_twice_choosing_tests
