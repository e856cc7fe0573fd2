// SPDX-License-Identifier: MIT
/// \file
/// Training steps with a gradient penalty, with dropout and with sparse gradients on a GPU: with whole numbers they have the
/// CPU's bits; captured steps have those of uncaptured ones, sparse gradients those of dense ones.
// compile: read, at most 330 kernels. tests/emulator/models takes steps like these.
#include <halftone/amp.hpp>
#include <halftone/cuda.cuh>

#include "autodiff/dropout_checks.hpp"
#include "optim/sparse_checks.hpp"
#include "scale/penalised_steps.hpp"
#include "train/exact_steps.hpp"

namespace {

namespace ht = halftone;

struct devices {
    ht::cpu cpu;
    ht::cuda one, two;
};

TEST_CASE_FIXTURE(devices, "steps in whole numbers on cuda: a gradient penalty has the CPU's bits") {
    exact_steps::check_penalty(one, cpu);
}
TEST_CASE_FIXTURE(devices, "steps in whole numbers on cuda: dropout has the CPU's bits") {
    exact_steps::check_dropout(one, cpu);
}
TEST_CASE_FIXTURE(devices, "steps in whole numbers on cuda: sparse gradients have the CPU's bits") {
    exact_steps::check_lookup(one, cpu);
}

TEST_CASE_FIXTURE(devices,
                  "gradient penalties on cuda: captured steps with a sparse table have the bits of a dense one") {
    penalised_steps::check(one, two);
}

TEST_CASE_FIXTURE(devices,
                  "sparse gradients on cuda: the bits of dense ones, in the norm, and summed before the check") {
    sparse_checks::sgd_agrees<ht::full_fp32>(one, two);
    sparse_checks::norms_agree(one, two);
    sparse_checks::duplicates_overflow(one);
}

TEST_CASE_FIXTURE(devices, "dropout on cuda: the backward pass uses the forward pass's mask, and a step repeats") {
    dropout_test::same_mask_backward<ht::bfloat16, float>(one);
    dropout_test::replays(one);
    dropout_test::keeps_its_numbers(one);
}

}  // namespace
