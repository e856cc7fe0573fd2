// SPDX-License-Identifier: MIT
/// \file
/// What attention's masks hide on a tape for second derivatives, on the emulated GPU.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "autodiff/twice_hidden.hpp"

namespace emulator_models_twice_hidden_tests {

namespace ht = halftone;
using twice_hidden::check;
using twice_hidden::problem;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

template <class P, class T>
void check_causal() {
    ht::emulator::device device{{.seed = 9}};
    // Batch, queries, keys, heads, key heads, head size. Eleven keys, so that matrices share flags.
    check<P>(device, problem<T>({2, 5, 11, 2, 1, 4, causal}), {1}, {8}, 2);
}
template <class P, class T>
void check_packed() {
    ht::emulator::device device{{.seed = 9}};
    check<P>(device, problem<T>({1, 0, 0, 2, 1, 4, full}, {{1, 3, 2, 4}, {1, 3, 0, 9}}), {1}, {12}, 2);
}

TEST_CASE("masked keys have no effect on derivatives on the emulated machine: fp32") {
    check_causal<ht::full_fp32, float>();
    check_packed<ht::full_fp32, float>();
}
TEST_CASE("masked keys have no effect on derivatives on the emulated machine: bf16") {
    check_causal<ht::amp_bf16, ht::bfloat16>();
    check_packed<ht::amp_bf16, ht::bfloat16>();
}
TEST_CASE("masked keys have no effect on derivatives on the emulated machine: fp16") {
    check_causal<ht::amp_fp16, ht::float16>();
}

}  // namespace emulator_models_twice_hidden_tests
