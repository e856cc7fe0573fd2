// SPDX-License-Identifier: MIT
/// \file
/// Why parameters and moments of 16 bits are rounded stochastically: rounded to nearest, training stalls.
/// The kernels support both roundings; optimizers refuse rounding to nearest
/// (tests/compile_fail/optimizer_without_master.cpp).
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/number/round_to.hpp>

namespace optim_narrow_parameters_tests {

namespace ht = halftone;
namespace kernel = ht::kernel;
using ht::bfloat16, ht::rounding;

constexpr ht::extent count = 4096;
constexpr float rate = 0x1p-10f;
// Parameters begin at 1 and stay above 1/2: there bf16's step is 2^-8, and an update of 2^-10 is a quarter of it.
constexpr double bf16_step = 0x1p-8;

template <class T>
ht::view<T, 1> view_of(std::vector<T>& v) {
    return {v.data(), {count}};
}
template <class T>
double mean_of(const std::vector<T>& v) {
    double sum = 0;
    for (const T x : v) sum += static_cast<double>(static_cast<float>(x)) / count;
    return sum;
}
/// Five standard deviations of the mean after so many stochastic roundings of each, which are independent and each off
/// by half a step in standard deviation at most (p (1 - p) <= 1/4).
double five_deviations(int steps) { return 5 * std::sqrt(static_cast<double>(steps) / count) * bf16_step / 2; }

/// The mean parameter after gradient descent on (w - 1/2)^2 / 2, separately for each parameter.
template <rounding Rounding, class Param>
double descend(ht::cpu& device, int steps) {
    std::vector<Param> w(count, Param(1.0f));
    std::vector<float> gradient(count), copy(count);
    const kernel::gradient_factors factors;
    kernel::step_record record{.lr = static_cast<double>(rate)};
    for (record.steps = 1; record.steps <= steps; ++record.steps) {
        for (std::size_t i = 0; i < w.size(); ++i) gradient[i] = static_cast<float>(w[i]) - 0.5f;
        kernel::optimizer_step<ht::cpu>::run<Rounding>(
            device, kernel::optimizer_step_arguments<kernel::sgd_rule, Param, float, float, float>{
                        .master = view_of(w),
                        .gradient = view_of(gradient),
                        .factors = &factors,
                        .step = &record,
                        .key = {.seed = 3}});
    }
    return mean_of(w);
}

TEST_CASE("16-bit parameters: sgd stalls when rounded to nearest, and follows fp32 when rounded stochastically") {
    ht::cpu device{{.threads = 1}};
    constexpr int steps = 600;
    const double exact = 0.5 + 0.5 * std::pow(1 - static_cast<double>(rate), steps);
    const double masters = descend<rounding::nearest_even, float>(device, steps);
    CHECK(std::fabs(masters - exact) < steps * 0x1p-24);
    CHECK(descend<rounding::nearest_even, bfloat16>(device, steps) == 1);
    // The recurrence is linear, so that the mean follows the same recurrence, and errors shrink from step to step.
    const double stochastic = descend<rounding::stochastic, bfloat16>(device, steps);
    CHECK(std::fabs(stochastic - exact) < five_deviations(steps));
    CHECK(five_deviations(steps) < 0.02 * (1 - exact));
}

/// The mean parameter after AdamW with gradients of 1: fp32 moves by the rate each step.
template <rounding Rounding, class Param, class State>
double descend_by_adamw(ht::cpu& device, int steps) {
    std::vector<Param> w(count, Param(1.0f));
    std::vector<float> gradient(count, 1.0f);
    std::vector<State> first(count, State(0.0f)), second(count, State(0.0f));
    const kernel::gradient_factors factors;
    kernel::step_record record{.lr = static_cast<double>(rate)};
    for (record.steps = 1; record.steps <= steps; ++record.steps) {
        kernel::optimizer_step<ht::cpu>::run<Rounding>(
            device, kernel::optimizer_step_arguments<kernel::adamw_rule, Param, float, float, State>{
                        .master = view_of(w),
                        .gradient = view_of(gradient),
                        .moments = {view_of(first), view_of(second)},
                        .factors = &factors,
                        .step = &record,
                        .key = {.seed = 3}});
    }
    return mean_of(w);
}

TEST_CASE(
    "16-bit parameters: adamw stalls when rounded to nearest, and follows fp32 when rounded stochastically, also with "
    "bf16 moments") {
    ht::cpu device{{.threads = 1}};
    constexpr int steps = 256;
    const double exact = 1 - steps * static_cast<double>(rate);
    CHECK(std::fabs(descend_by_adamw<rounding::nearest_even, float, float>(device, steps) - exact) < 1e-4);
    CHECK(descend_by_adamw<rounding::nearest_even, bfloat16, float>(device, steps) == 1);
    CHECK(std::fabs(descend_by_adamw<rounding::stochastic, bfloat16, float>(device, steps) - exact) <
          five_deviations(steps));
    // Moments in bf16 are unbiased, too. The update is their quotient m / sqrt(v). `variance` is the variance of v relative
    // to v, after so many roundings whose standard deviation is at most half a step (2^-7 v). The mean of the quotient is off
    // by 3/8 of that (Jensen; the first moment and all further terms add less than the same again), and its standard deviation
    // is half of v's.
    const double variance = steps * 0x1p-14 / 4, moved = 1 - exact;
    const double narrow = descend_by_adamw<rounding::stochastic, bfloat16, bfloat16>(device, steps);
    CHECK(std::fabs(narrow - exact) <
          five_deviations(steps) + moved * (2 * 0.375 * variance + 5 * std::sqrt(variance / count)));
    CHECK(five_deviations(steps) < 0.02);
}

TEST_CASE(
    "16-bit moments: rounded to nearest, a second moment in bf16 never shrinks at beta2 = 0.999, nor does it grow by "
    "small squares") {
    for (std::uint16_t significand = 0; significand < 128; ++significand) {
        const bfloat16 v = bfloat16::from_bits(static_cast<std::uint16_t>(0x3f80 | significand));
        const float x = v, smaller = 0.999f * x,
                    larger = 0.999f * x + 0.001f * (2 * x);  // gradients of zero, and of sqrt(2 v)
        CHECK(ht::round_to<bfloat16>(smaller).bits() == v.bits());
        CHECK(ht::round_to<bfloat16>(larger).bits() == v.bits());
        // Stochastic rounding gives each neighbour with the right probability: the mean over all random bits is exact.
        double mean = 0;
        for (std::uint32_t random = 0; random < 0x10000; random += 0x100) {
            mean +=
                static_cast<double>(static_cast<float>(ht::round_stochastic<bfloat16>(smaller, random | 0x80))) / 256;
        }
        CHECK(std::fabs(mean - static_cast<double>(smaller)) <= 0x1p-7 / 256);
    }
}

}  // namespace optim_narrow_parameters_tests
