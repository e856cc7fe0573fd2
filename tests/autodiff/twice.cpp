// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives on the CPU: every rule. tests/emulator/twice.cpp has the table of pointwise operations, too;
/// tests/scale/penalty.cpp whole steps.
#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "autodiff/twice_apply_checks.hpp"
#include "autodiff/twice_table.hpp"

namespace {

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
TEST_CASE_FIXTURE(fixture, "second derivatives of linear layers") { twice_checks::check_linear(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of embeddings") { twice_checks::check_embedding(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of cross-entropy") { twice_checks::check_cross_entropy(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of attention") { twice_checks::check_attention(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of products") { twice_checks::check_matmul(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of what is joined") { twice_checks::check_joins(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives by parameters as variables") {
    twice_checks::check_parameters_as_variables(device);
}
TEST_CASE_FIXTURE(fixture, "second derivatives of dropout") { twice_checks::check_dropout(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of operations of one's own") {
    twice_checks::check_own_operations(device);
}

}  // namespace
