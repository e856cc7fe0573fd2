// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives on the emulated GPU: every rule, and the table of all operations by name.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "autodiff/function_checks.hpp"
#include "autodiff/twice_apply_checks.hpp"
#include "autodiff/twice_conv2d.hpp"
#include "autodiff/twice_table.hpp"

namespace emulator_models_twice_tests {

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
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: softmax and norms") {
    twice_checks::check_softmax(device);
    twice_checks::check_norms(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: products, parameters as variables") {
    twice_checks::check_matmul(device);
    twice_checks::check_parameters_as_variables(device);
    twice_checks::check_changed_weights(device);
    twice_checks::check_detach(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: cat, stack, dropout, casts, columns") {
    twice_checks::check_joins(device);
    twice_checks::check_shapes(device);
    twice_checks::check_dropout(device);
    twice_checks::check_gates(device);
    twice_checks::check_rotary(device);
    twice_checks::check_casts(device);
    twice_checks::check_columns(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: convolutions") {
    twice_checks::check_conv2d(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: custom operations") {
    twice_checks::check_own_operations(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: arithmetic by name") {
    twice_checks::check_arithmetic(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: functions by name") {
    function_checks::check_twice(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives on the emulated machine: losses by name") {
    twice_checks::check_losses(device);
    twice_checks::check_axis_reductions(device);
}

}  // namespace emulator_models_twice_tests
