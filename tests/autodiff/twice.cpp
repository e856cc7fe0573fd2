// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives on the CPU; tests/emulator/twice.cpp has the other operations, tests/scale/penalty.cpp whole
/// steps. The rules are the same on every device.
#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "autodiff/twice_checks.hpp"

namespace {

namespace ht = halftone;

struct fixture {
    ht::cpu device{{.threads = 1}};
};

TEST_CASE_FIXTURE(fixture, "second derivatives of maps") {
    twice_checks::check_maps(device);
    twice_checks::check_columns(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives of sums") { twice_checks::check_reductions(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of softmax") { twice_checks::check_softmax(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of norms") { twice_checks::check_norms(device); }

}  // namespace
