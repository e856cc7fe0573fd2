// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives on the CPU: every rule, those of embeddings, attention and linear layers in a whole GPT, and the
/// table of named operations. tests/emulator/models/twice.cpp has them one by one, tests/scale/penalty.cpp whole steps.
#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "autodiff/function_checks.hpp"
#include "autodiff/twice_apply_checks.hpp"
#include "autodiff/twice_gpt.hpp"
#include "autodiff/twice_table.hpp"
#include "nn/packed_checks.hpp"

namespace autodiff_twice_tests {

namespace ht = halftone;

struct fixture {
    ht::cpu device{{.threads = 1}};
};

TEST_CASE_FIXTURE(fixture, "second derivatives of maps") {
    twice_checks::check_maps(device);
    twice_checks::check_columns(device);
    twice_checks::check_casts(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives of sums") { twice_checks::check_reductions(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of softmax") { twice_checks::check_softmax(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of norms") { twice_checks::check_norms(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of products") { twice_checks::check_matmul(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of what is joined") { twice_checks::check_joins(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of shapes and broadcasting") { twice_checks::check_shapes(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives by parameters as variables") {
    twice_checks::check_parameters_as_variables(device);
}
TEST_CASE_FIXTURE(fixture, "gradients that are variables: of the weights as they are, whatever they were before") {
    twice_checks::check_changed_weights(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives of what is detached") { twice_checks::check_detach(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of dropout") { twice_checks::check_dropout(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of gates") { twice_checks::check_gates(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of turns and of shared heads") { twice_checks::check_rotary(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of operations of one's own") {
    twice_checks::check_own_operations(device);
}

// By the rule of maps, which is tested above, from first and second derivatives that tests/kernel/map/derivative.cpp has of every function.
#if defined(HALFTONE_FULL_TESTS)
TEST_CASE_FIXTURE(fixture, "second derivatives of arithmetic by name") { twice_checks::check_arithmetic(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of functions by name") { function_checks::check_twice(device); }
#endif
TEST_CASE_FIXTURE(fixture, "second derivatives of reductions along axes") { twice_checks::check_axis_reductions(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of losses by name") { twice_checks::check_losses(device); }

TEST_CASE_FIXTURE(fixture, "the Hessian of a GPT times a vector") {
    twice_checks::check_gpt(device, twice_checks::quick_gpt, 1, 3, 16);
}
TEST_CASE_FIXTURE(fixture, "the Hessian of a GPT over packed documents times a vector") {
    const nn_test::pack documents({3, 1, 0, 2}, static_cast<int>(twice_checks::quick_gpt.vocabulary));
    twice_checks::check_gpt(device, twice_checks::quick_gpt, documents.in_a_row(), nn_test::padded(documents, 3), 16);
}
TEST_CASE_FIXTURE(fixture, "the Hessian of a larger GPT times a vector" * doctest::skip()) {
    twice_checks::check_gpt(device, twice_checks::larger_gpt, 2, 5, 32);
}

}  // namespace autodiff_twice_tests
