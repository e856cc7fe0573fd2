// SPDX-License-Identifier: MIT
/// \file
/// Training with sparse gradients on the emulated GPU, also in captured steps.
#include <halftone/kernel/device.hpp>
#include <halftone/train/captured_step.hpp>

#include <emulator/device.hpp>

#include "optim/sparse_checks.hpp"
#include "scale/penalised_steps.hpp"

namespace emulator_models_sparse_tests {

using namespace sparse_checks;
using ht::step_run;
using machine = ht::emulator::device;

/// Other files look for races in these kernels.
ht::emulator::options quick(std::uint64_t seed) { return {.seed = seed, .check = ht::emulator::checking::values_only}; }

TEST_CASE("sparse gradients on a GPU: SGD has the bits of dense ones") {
    machine one{quick(1)}, two{quick(2)};
    sgd_agrees<ht::full_fp32>(one, two);
}

TEST_CASE("sparse gradients on a GPU: AdamW has the bits of dense ones in rows of every step, and is lazy in others") {
    machine one{quick(3)}, two{quick(4)};
    adamw_agrees(one, two);
    adamw_is_lazy(two);
}

TEST_CASE("sparse gradients on a GPU: rounded at random they have the bits of dense ones, in rows of any width") {
    machine one{quick(11)}, two{quick(12)};
    random_rounding_agrees<ht::with_state<ht::pure_bf16, ht::bfloat16>>(one, two, 6);
}

TEST_CASE("sparse gradients on a GPU: in the norm, and in the finite check once duplicates are summed") {
    machine one{quick(5)}, two{quick(6)};
    norms_agree(one, two);
    duplicates_overflow(one);
}

TEST_CASE("sparse gradients on a GPU: captured steps have the bits of others, whatever is looked up") {
    machine one{quick(7)}, two{quick(8)};
    const ht::adamw_options options{.lr = 0.05};
    auto plain = with_adamw<sparse<ht::full_fp32>>(one, options);
    auto other = with_adamw<sparse<ht::full_fp32>>(two, options);
    plain.max_norm = other.max_norm = 0.2f;
    ht::captured_step step{two, [&](const batch& b) { return other.body(b); }};
    ids all;
    {
        // Scratch memory and the tape's memory fit the largest shape; the rows of the step's accumulator do not yet.
        ht::accumulator before{other.model};
        const batch b = all.next(1, 7);
        for (int micro = 0; micro < 3; ++micro)
            other.tape.backward(other.scaler.scale(other.model.loss(other.tape, b)), before);
    }
    std::vector<step_run> runs;
    std::vector<std::string> reasons;
    std::size_t fewest = 40, most = 0;
    for (int t = 0; t < 12; ++t) {
        CAPTURE(t);
        // From the seventh step on a shape with more lookups, for which the rows grow; then the first shape again.
        const batch b = t >= 6 && t < 9 ? all.next(3, 7) : all.next(2, 5, t % 3 == 0 ? 3 : 40);
        const float loss = plain.body(b).item();
        runs.push_back(step(b));
        reasons.push_back(step.reason());
        CHECK(step.loss() == loss);
        CHECK(same_bits(masters_of(other.model.tokens.table), masters_of(plain.model.tokens.table)));
        CHECK(same_bits(masters_of(other.model.positions.table), masters_of(plain.model.positions.table)));
        for (int which = 0; which < 2; ++which) {
            CHECK(same_bits(moments_of(other.optimizer, which, other.model.tokens.table),
                            moments_of(plain.optimizer, which, plain.model.tokens.table)));
        }
        const auto seen = other.acc.find(other.model.parameters())->read_rows(other.model.tokens.table).indices.size();
        fewest = std::min(fewest, seen), most = std::max(most, seen);
    }
    CHECK(fewest <= 3);
    CHECK(most > 10);
    for (const std::size_t t : {2, 3, 4, 5, 11}) CHECK(runs[t] == step_run::replayed);
    CHECK(runs[6] == step_run::uncaptured);
    // Graphs captured before the rows grew cannot be replayed.
    CHECK(runs[9] == step_run::uncaptured);
    CHECK(reasons[9].find("the rows of a sparse gradient have moved") != std::string::npos);
    CHECK(runs[10] == step_run::captured);
}

TEST_CASE("sparse gradients on a GPU: captured steps with a gradient penalty have the bits of dense uncaptured ones") {
    machine one{quick(9)}, two{quick(10)};
    penalised_steps::check(one, two);
}

}  // namespace emulator_models_sparse_tests
