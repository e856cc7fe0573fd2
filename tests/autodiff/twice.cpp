// SPDX-License-Identifier: MIT
/// \file
/// Tapes for second derivatives on the CPU: against differences of definitions, and what they refuse.
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
TEST_CASE_FIXTURE(fixture, "second derivatives of linear layers") { twice_checks::check_linear(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of embeddings") { twice_checks::check_embedding(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of cross-entropy") { twice_checks::check_cross_entropy(device); }
TEST_CASE_FIXTURE(fixture, "second derivatives of attention") { twice_checks::check_attention(device); }

}  // namespace
