// SPDX-License-Identifier: MIT
/// \file
/// Generation with a key-value cache as a GPU runs it.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "nn/generation_checks.hpp"

namespace emulator_models_generation_tests {

namespace ht = halftone;
using namespace generation_test;

TEST_CASE("key_value_cache on a GPU: steps of a Llama have the bits of whole texts; generation, those tokens") {
    ht::emulator::device device;
    const lively<ht::nn::llama<ht::amp_bf16>> model(device, llama_of(80));
    CHECK(different_rows(device, model, {80, 1, 9}, 1) == 0);
    check_generation(device, model, 4);
    CHECK(different_rows(device, model, {20, 1, 9}, 1, ht::cache_type::int8) == 0);
}

TEST_CASE("key_value_cache on a GPU: offsets in its memory are refused") {
    ht::emulator::device device;
    const lively<ht::nn::llama<ht::amp_bf16>> model(device, llama_of(16));
    ht::inference eval{device};
    ht::key_value_cache cache{device, 1, 16};
    const ids tokens{1, 2}, offsets{0, 2};
    const auto there = ht::to_device(device, ht::const_view<std::int32_t, 1>(offsets.data(), {2}));
    CHECK_THROWS_AS(model.next_logits(eval, row_of(tokens), ht::packed{there, &cache}), ht::argument_error);
    CHECK_THROWS_AS(model.next_logits(eval, row_of(tokens), ht::packed{there}), ht::argument_error);
}

}  // namespace emulator_models_generation_tests
