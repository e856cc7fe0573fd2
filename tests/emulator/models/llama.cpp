// SPDX-License-Identifier: MIT
/// \file
/// A Llama compared with that of transformers on the emulated GPU.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "nn/llama_checks.hpp"

namespace emulator_models_llama_tests {

namespace ht = halftone;
using namespace llama_test;

TEST_CASE("llama on a GPU: logits, loss and gradients are transformers', in float32") {
    ht::emulator::device device;
    for (const golden_case& c : golden_cases()) is_as_transformers_has_it<ht::full_fp32>(device, c);
}

TEST_CASE("llama on a GPU: in bfloat16 at most twice as far off as PyTorch's autocast") {
    ht::emulator::device device;
    errs_as_autocast<ht::amp_bf16>(device, golden_case_of("llama3"));
#if defined(HALFTONE_FULL_TESTS)  // 16 batches of each take minutes here
    for (const golden_case& c : golden_cases()) errs_as_autocast<ht::amp_bf16>(device, c);
    errs_as_autocast<ht::amp_bf16, ht::nn::qk_norm::rms>(device, golden_case_of("qwen3"));
#endif
}

}  // namespace emulator_models_llama_tests
