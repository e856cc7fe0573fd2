// SPDX-License-Identifier: MIT
/// \file
/// Epilogues of products on the CPU, on every instruction set.
#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/tensor/tensor.hpp>

#include "kernel/matmul/each_set.hpp"
#include "kernel/matmul/epilogue_checks.hpp"

namespace kernel_matmul_epilogue_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using matmul_test::gelu;
using matmul_test::gelu_derivative;

template <class P, class T, class Bias>
void every_epilogue() {
    matmul_test::every_epilogue<P, T, Bias, matmul_test::errors_on_vectors>(
        {35, 37, 67}, matmul_test::layouts[2], [](const auto& test) { matmul_test::on_every_set(2, test); });
}

TEST_CASE("matmul epilogues within their bounds: fp32") { every_epilogue<ht::full_fp32, float, float>(); }
TEST_CASE("matmul epilogues within their bounds: bf16 with fp32 biases") {
    every_epilogue<ht::amp_bf16, bfloat16, float>();
}

TEST_CASE("gelu_gradient is the slope of gelu by central differences") {
    for (double x = -6; x <= 6; x += 0.37) {
        const double h = 1e-5, slope = (gelu(x + h) - gelu(x - h)) / (2 * h);
        CHECK(gelu_derivative(x) == doctest::Approx(slope).epsilon(1e-8));
    }
}

TEST_CASE("matmul epilogues: operands that do not fit are refused") {
    ht::cpu device{{.threads = 1}};
    std::vector<float> memory(64), product(8);
    const auto matrix = [&](extent rows, extent columns) { return ht::view<float, 2>(memory.data(), {rows, columns}); };
    const auto row = [&](extent n) { return ht::view<float, 1>(memory.data(), {n}); };
    const auto run = [&](const auto& epilogue) {
        ht::matmul<ht::full_fp32>(device, matrix(2, 3), matrix(3, 4), ht::view<float, 2>(product.data(), {2, 4}),
                                  epilogue);
    };
    CHECK_THROWS_WITH_AS(run(ht::bias{row(3)}), "matmul: a bias of 3 values for 4 columns", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(ht::bias_gelu{ht::view<float, 1>(memory.data(), {4}, {2})}),
                         "matmul: the bias (4) is not contiguous; its strides are (2)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(ht::bias_residual{row(4), matrix(4, 2)}),
                         "matmul: an epilogue's operand is (4, 2), the product (2, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(ht::gelu_gradient{ht::transpose(matrix(4, 2))}),
                         "matmul: an epilogue's operand (2, 4) has gaps within its rows; its strides are (1, 2)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(run(ht::then{[](auto sum, auto x) { return sum * x; }, row(2)}),
                         "matmul: a bias of 2 values for 4 columns", ht::shape_error);
}

TEST_CASE("epilogues accept tensors as well as views") {
    static_assert(std::is_same_v<decltype(ht::bias{std::declval<ht::tensor<float, 1>&>()}), ht::bias<float>>);
    static_assert(std::is_same_v<decltype(ht::gelu_gradient{std::declval<const ht::tensor<ht::bfloat16, 2>&>()}),
                                 ht::gelu_gradient<ht::bfloat16>>);
    ht::cpu device{{.threads = 1}};
    const auto filled = [&]<int Rank>(const ht::shape<Rank>& s) {
        ht::tensor<float, Rank> t{device.memory(), s};
        std::fill_n(t.data(), t.size(), 0.5f);
        return t;
    };
    const auto a = filled(ht::shape<2>{2, 3}), b = filled(ht::shape<2>{3, 4}), c = filled(ht::shape<2>{2, 4}),
               residual = filled(ht::shape<2>{2, 4});
    const auto of_columns = filled(ht::shape<1>{4});
    ht::matmul<ht::full_fp32>(device, a, b, c, ht::bias_residual{of_columns, residual});
    CHECK(c(1, 3) == 1.75f);
    ht::matmul<ht::full_fp32>(device, a, b, c, ht::bias_gelu{of_columns});
    const float by_tensor = c(1, 3);
    ht::matmul<ht::full_fp32>(device, a, b, c, ht::bias_gelu{of_columns.view()});
    CHECK(c(1, 3) == by_tensor);
}

}  // namespace kernel_matmul_epilogue_tests
