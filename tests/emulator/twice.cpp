// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives on the emulated machine; tests/autodiff/twice.cpp has the other operations.
#include <doctest/doctest.h>

#include <halftone/kernel/device.hpp>

#include <emulator/device.hpp>

#include "autodiff/twice_checks.hpp"

namespace {

struct fixture {
    halftone::emulator::device device{{.seed = 5}};
};

TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: linear layers") {
    twice_checks::check_linear(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: embeddings") {
    twice_checks::check_embedding(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: cross-entropy") {
    twice_checks::check_cross_entropy(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: attention") {
    twice_checks::check_attention(device);
}

}  // namespace
