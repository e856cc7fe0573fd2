// SPDX-License-Identifier: MIT
/// \file
/// Each rule of the lint, verified in the type that it is about.
#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/number/bfloat16.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/observe/lint/policy_lint.hpp>
#include <halftone/policy/presets.hpp>

namespace policy_lint_tests {

namespace ht = halftone;

template <class T>
T running_sum(std::uint64_t k, float term) {
    T sum(0.0f);
    for (std::uint64_t i = 0; i < k; ++i) sum = T(static_cast<float>(sum) + term);
    return sum;
}

TEST_CASE_TEMPLATE("lint: a running sum counts 2^p terms of equal size, and loses the rest", T, ht::bfloat16,
                   ht::float16, float) {
    const std::uint64_t most = ht::countable_terms<T>;
    CHECK(static_cast<double>(static_cast<float>(running_sum<T>(most, 1))) == static_cast<double>(most));
    CHECK(static_cast<double>(static_cast<float>(running_sum<T>(most - 1, 1))) == static_cast<double>(most - 1));
    CHECK(static_cast<double>(static_cast<float>(running_sum<T>(most + most / 2, 1))) == static_cast<double>(most));
    CHECK(ht::lost_share<T>(most) == 0);
    CHECK(ht::lost_share<T>(most + most / 2) == doctest::Approx(1.0 / 3));
    // Terms of any size.
    if (most < 10000) {
        for (const float term : {0.75f, 1.3125f, 0.01171875f}) {
            CHECK(static_cast<float>(running_sum<T>(4 * most, term)) ==
                  static_cast<float>(running_sum<T>(5 * most, term)));
            CHECK(static_cast<float>(running_sum<T>(4 * most, term)) < 2 * static_cast<float>(most) * term);
        }
    }
}

TEST_CASE("lint: gradients begin at scale / terms") {
    CHECK(ht::is_inf(ht::float16(65536.0f)));
    CHECK(ht::is_finite(ht::float16(65536.0f * 2 / 4)));
    static_assert(ht::check_loss_scale<ht::amp_fp16, 65504>());
    static_assert(ht::check_loss_scale<ht::amp_fp16, 65536, 2>());
    static_assert(ht::check_loss_scale<ht::amp_bf16, std::uint64_t{1} << 40>());
    static_assert(ht::check_loss_scale<ht::full_fp32, ~std::uint64_t{0}>());
    static_assert(ht::check_loss_scale<ht::with_output<ht::amp_bf16, ht::float16>, 65504>());
    static_assert(std::is_same_v<ht::narrowest_gradient<ht::with_output<ht::amp_bf16, ht::float16>>, ht::float16>);
    static_assert(std::is_same_v<ht::narrowest_gradient<ht::with_stream<ht::amp_bf16, ht::float16>>, ht::float16> &&
                  std::is_same_v<ht::narrowest_gradient<ht::with_stream<ht::amp_fp16, float>>, ht::float16>);
    static_assert(std::is_same_v<ht::narrowest_gradient<ht::with_grad<ht::amp_bf16, ht::float16>>, ht::float16>);
    // Gradients in eight bits have their own scale.
    static_assert(ht::check_loss_scale<ht::fp8_hybrid, std::uint64_t{1} << 20>());
}

TEST_CASE("lint: products reach k |x| |w|") {
    CHECK(ht::is_inf(ht::float16(2048.0f * 8 * 4)));
    CHECK(static_cast<float>(ht::float16(2047.0f * 8 * 4)) == 65504);
    static_assert(ht::check_product_range<ht::amp_fp16, 2047, 8, 4>());
    static_assert(ht::check_product_range<ht::amp_bf16, ~std::uint64_t{0}, 8, 4>());
}

static_assert(ht::check_sum_length<ht::amp_bf16, 16777216>());
// Kernels sum in float where the `accum` role is narrower, and in double where they read doubles.
static_assert(ht::check_sum_length<ht::with_accum<ht::amp_fp16, ht::float16>, 16777216>());
static_assert(std::is_same_v<ht::summed_in<ht::with_accum<ht::amp_fp16, ht::float16>>, float>);
static_assert(ht::check_sum_length<ht::full_fp64, std::uint64_t{1} << 53>());
static_assert(ht::check_micro_batches<ht::with_accumulate<ht::amp_bf16, ht::bfloat16>, 256>());

// 448 / (2^-9 / 2); restricting scales to powers of two may cost a binade, and each unit of margin costs one.
static_assert(ht::scaled_range<ht::float8_e4m3>({}) == 458752);
static_assert(ht::scaled_range<ht::float8_e4m3>({.margin = 1, .steps = ht::scale_steps::powers_of_two}) == 114688);
static_assert(ht::check_scaled_range<ht::fp8_hybrid, 458751>());
static_assert(ht::check_scaled_range<ht::amp_bf16, ~std::uint64_t{0}>());

}  // namespace policy_lint_tests
