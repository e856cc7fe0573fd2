// SPDX-License-Identifier: MIT
/// \file
/// The plans of many configurations on the CPU; of policies and models that take long to compile with --full.
#include <ctime>

#include "train/plan_checks.hpp"

namespace train_plan_models_tests {

namespace ht = halftone;

TEST_CASE("plan: optimizers, packed documents, checkpoints and evaluations, to the byte") {
    for (const int threads : {1, 2}) {
        ht::cpu device{{.threads = threads}};
        plan_checks::optimizers_and_rows<ht::amp_bf16>(device, 4);
    }
}

#if defined(HALFTONE_FULL_TESTS)
TEST_CASE("plan: fp8, split masters, 16-bit parameters, Llamas and an encoder, to the byte") {
    ht::cpu device{{.threads = 2}};
    plan_checks::policies_and_models(device, 4);
}
#endif

TEST_CASE("plan: GPT-2 of 124 million and of 1.5 billion parameters" * doctest::skip()) {
    ht::cpu device{{.threads = 2}};
    const std::string corpus(4096, 'a');
    const auto seconds_of = [&](const ht::nn::gpt_config& config) {
        const std::clock_t begin = std::clock();  // of the processor: others may share it
        const ht::memory_plan plan = ht::plan(device, [&](auto& d) {
            ht::nn::gpt<ht::amp_bf16> model{d, config};
            ht::language_data data{ht::token_view{corpus}, {.context = 1024, .held_out = 0}};
            ht::trainer trainer{d, model, {.per_device_train_batch_size = 2, .max_steps = 2}};
            trainer.train(data);
        });
        const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        MESSAGE("a plan of ", static_cast<double>(plan.peak_bytes) / (1 << 30), " GiB in ", seconds, " s");
        return seconds;
    };
    CHECK(seconds_of({.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768}) < 0.2);
    CHECK(seconds_of({.vocabulary = 50304, .context = 1024, .layers = 48, .heads = 25, .width = 1600}) < 0.2);
}

}  // namespace train_plan_models_tests
