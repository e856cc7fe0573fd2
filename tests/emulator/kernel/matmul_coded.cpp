// SPDX-License-Identifier: MIT
/// \file
/// Products with coded matrices on the emulated GPU, where they are decoded before.
#include <doctest/doctest.h>

#include <halftone/kernel/matmul/device.hpp>

#include "emulator/device.hpp"
#include "kernel/matmul/coded_checks.hpp"

namespace emulator_kernel_matmul_coded_tests {

using namespace matmul_test;

template <class P, class Compute, class Format, class A, class C>
void expect_products() {
    ht::emulator::device device;
    const coded_numbers<Format> b(40, 192);
    for (const bool is_transposed : {true, false})
        expect_coded_product<P, Compute, Format, A, C>(device, 33, b, is_transposed);
}

TEST_CASE("matmul on a GPU: coded matrices have the bits of their numbers") {
    expect_products<ht::amp_bf16, ht::bfloat16, ht::nf4, ht::bfloat16, ht::bfloat16>();
    expect_products<ht::full_fp32, float, ht::nf4, float, float>();
    expect_products<ht::amp_bf16, ht::bfloat16, ht::q8_0, ht::bfloat16, float>();
    expect_products<ht::full_fp32, float, ht::q8_0, double, double>();
}

}  // namespace emulator_kernel_matmul_coded_tests
