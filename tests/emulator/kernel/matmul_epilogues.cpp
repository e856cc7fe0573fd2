// SPDX-License-Identifier: MIT
/// \file
/// The epilogues of the matrix product's GPU kernels on the emulated GPU.
#include <doctest/doctest.h>

#include <halftone/kernel/matmul/device.hpp>

#include "emulator/device.hpp"
#include "kernel/matmul/epilogue_checks.hpp"

namespace emulator_kernel_matmul_epilogues_tests {

using namespace matmul_test;
namespace emulator = ht::emulator;

template <class P, class T, class Bias>
void all_epilogues(const sizes& s, const layout& of_c) {
    emulator::device device;
    every_epilogue<P, T, Bias, errors_in_float>(s, of_c, [&](const auto& test) { test(device); });
}

TEST_CASE("matmul on a GPU: epilogues within their bounds, fp32") {
    all_epilogues<ht::full_fp32, float, float>({35, 37, 67}, layouts[2]);
}
TEST_CASE("matmul on a GPU: epilogues within their bounds, fp32, aligned") {
    all_epilogues<ht::full_fp32, float, float>({35, 40, 72}, layouts[0]);
}
TEST_CASE("matmul on a GPU: epilogues within their bounds, bf16") {
    all_epilogues<ht::amp_bf16, bfloat16, float>({35, 37, 67}, layouts[2]);
}
TEST_CASE("matmul on a GPU: epilogues within their bounds, bf16, aligned") {
    all_epilogues<ht::amp_bf16, bfloat16, float>({40, 40, 72}, layouts[0]);
}
TEST_CASE("matmul on a GPU: epilogues within their bounds, tf32, aligned") {
    all_epilogues<ht::tf32, float, float>({40, 40, 72}, layouts[0]);
}

}  // namespace emulator_kernel_matmul_epilogues_tests
