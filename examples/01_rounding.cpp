// SPDX-License-Identifier: MIT
/// \file
/// Lesson 1: what rounding keeps, and what it loses.
///
/// A 16-bit number spends its bits on range (the exponent) or on precision (the fraction); both run out in a training
/// step. Everything that mixed-precision training does is an answer to what this lesson shows: sums are kept in float,
/// weights have a float master, losses are scaled.
#include <cmath>
#include <cstdio>
#include <limits>

#include <halftone/number.hpp>

namespace ht = halftone;
using ht::bfloat16;
using ht::float16;

/// The distance from x to the next larger number of type T: number_traits knows how many bits a type has.
template <class T>
double step_at(double x) {
    return std::ldexp(1.0, std::ilogb(x) + 1 - ht::number_traits<T>::significand_bits);
}

template <class T>
void print_row() {
    using traits = ht::number_traits<T>;
    std::printf("%-9s %2d bits   step %.2g at 1, %.2g at 1000   from %.2g to %.6g\n", traits::name,
                traits::significand_bits, step_at<T>(1), step_at<T>(1000), traits::min_subnormal, traits::max);
}

void three_types() {
    // bfloat16 has float's range with coarse steps; float16 has finer steps in a short range.
    print_row<float>();
    print_row<float16>();
    print_row<bfloat16>();
    // Prints: float     24 bits   step 1.2e-07 at 1, 6.1e-05 at 1000   from 1.4e-45 to 3.40282e+38
    // Prints: float16   11 bits   step 0.00098 at 1, 0.5 at 1000   from 6e-08 to 65504
    // Prints: bfloat16   8 bits   step 0.0078 at 1, 4 at 1000   from 9.2e-41 to 3.38953e+38
}

void nearest_even() {
    // Between 1 and its successor 1 + 1/128, bfloat16 has nothing. A number halfway between two neighbours goes to the
    // one whose last bit is zero: sometimes down, sometimes up, so that many roundings do not drift to one side.
    std::printf("1 + 1/256 -> %.7g, 1 + 3/256 -> %.7g\n", static_cast<double>(bfloat16(1 + 1.0 / 256)),
                static_cast<double>(bfloat16(1 + 3.0 / 256)));
    // Prints: 1 + 1/256 -> 1, 1 + 3/256 -> 1.015625
    static_assert(bfloat16(1 + 3.0f / 256).bits() == bfloat16(1).bits() + 2);  // rounding is constexpr, too
}

void swamping() {
    // 1000 times 0.1, in a sum that is rounded after every addition. From 32 on, bfloat16's step is 0.25: a term of 0.1
    // is less than half of that, so every further addition rounds back to the same sum. This is why sums are kept in
    // float (the role `accum`).
    const bfloat16 term{0.1};
    bfloat16 narrow_sum{};
    float wide_sum = 0;
    for (int i = 0; i < 1000; ++i) {
        narrow_sum += term;  // computed in float, rounded once to bfloat16
        wide_sum += term;
    }
    std::printf("0.1 a thousand times: summed in bfloat16 %.7g, in float %.5g, rounded at the end %.7g\n",
                static_cast<double>(narrow_sum), static_cast<double>(wide_sum),
                static_cast<double>(bfloat16(wide_sum)));
    // Prints: 0.1 a thousand times: summed in bfloat16 32, in float 100.1, rounded at the end 100
}

void small_updates() {
    // A weight of 1 that 1000 steps change by 0.001 each. In bfloat16 an update below half a step, 1/256, is lost.
    constexpr float update = 0.001f;
    bfloat16 lost{1};
    float master = 1;
    for (int i = 0; i < 1000; ++i) {
        lost += update;
        master += update;  // what an optimizer keeps; products read bfloat16(master)
    }
    std::printf("1 + 1000 x 0.001: in bfloat16 %.3f, with a float master %.3f\n", static_cast<double>(lost),
                static_cast<double>(master));
    // Prints: 1 + 1000 x 0.001: in bfloat16 1.000, with a float master 2.000

    // Stochastic rounding needs no master: about one update in eight changes the weight, by a whole step, so that it is
    // right on average. The random bits are a function of (seed, step, tensor, index): a run can be repeated exactly.
    constexpr int runs = 1000;
    double mean = 0;
    for (int run = 0; run < runs; ++run) {
        bfloat16 weight{1};
        for (int step = 0; step < 1000; ++step) {
            const auto random =
                ht::random_bits(42, static_cast<std::uint32_t>(step), 0, static_cast<std::uint64_t>(run));
            weight = ht::round_stochastic<bfloat16>(weight + update, random);
        }
        mean += static_cast<double>(weight) / runs;
    }
    std::printf("rounded stochastically: %.2f in the mean of %d runs\n", mean, runs);
    // Prints: rounded stochastically: 2.00 in the mean of 1000 runs
}

void range_of_fp16() {
    // Large numbers: the largest is 65504, and from half a step beyond it on everything is infinite.
    std::printf("float16: %g -> %g, %g -> %g\n", 65519.0, static_cast<double>(float16(65519)), 65520.0,
                static_cast<double>(float16(65520)));
    // Prints: float16: 65519 -> 65504, 65520 -> inf

    // Small numbers: the least is 2^-24, and half of it rounds to zero. Gradients of 1e-8 are common; lesson 4 shows
    // how to keep them.
    const double least = static_cast<double>(std::numeric_limits<float16>::denorm_min());
    std::printf("float16: 2^%d is the least, half of it -> %g, 1e-8 -> %g; bfloat16: 1e-8 -> %.3g\n", std::ilogb(least),
                static_cast<double>(float16(least / 2)), static_cast<double>(float16(1e-8)),
                static_cast<double>(bfloat16(1e-8)));
    // Prints: float16: 2^-24 is the least, half of it -> 0, 1e-8 -> 0; bfloat16: 1e-8 -> 1e-08
}

int main() {
    three_types();
    nearest_even();
    swamping();
    small_updates();
    range_of_fp16();
}
