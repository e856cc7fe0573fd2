// SPDX-License-Identifier: MIT
/// \file
/// Two libraries that both use halftone, one of them built with -ffast-math, in one program: each must go on working by
/// its own rules, whichever of them the loader takes first.
#include <cstdio>
#include <limits>
#include <vector>

#include "library.hpp"

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
    if (holds) return;
    std::printf("does not hold: %s\n", what);
    ++failures;
}

/// Small integers, so that every sum is exact in whatever order it is computed; deeper than one panel of a kernel.
void multiply() {
    constexpr int rows = 37, inner = 300, columns = 41;
    std::vector<float> a(rows * inner), b(inner * columns), exact(rows * columns), of_plain(exact.size()),
        of_fast(exact.size());
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 9) - 4;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 5 % 11) - 5;
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t k = 0; k < inner; ++k) {
            for (std::size_t j = 0; j < columns; ++j) exact[i * columns + j] += a[i * inner + k] * b[k * columns + j];
        }
    }
    plain::product(a.data(), b.data(), of_plain.data(), rows, inner, columns);
    fast::product(a.data(), b.data(), of_fast.data(), rows, inner, columns);
    expect(of_plain == exact, "the plain library's product is exact");
    expect(of_fast == exact, "the fast library's product is exact");
}

bool is(const fitted& f, float first, float second, float bias, int skipped, float scale) {
    return f.first == first && f.second == second && f.bias == bias && f.skipped == skipped && f.scale == scale;
}

/// y = 2 a - b + 0.5 at eight points: gradients and steps are short binary fractions.
void train() {
    const float x[] = {1, 0, 0, 1, 1, 1, -1, 0, 0, -1, -1, -1, 1, -1, -1, 1};
    float targets[] = {2.5f, -0.5f, 1.5f, -1.5f, 1.5f, -0.5f, 3.5f, -2.5f};
    expect(is(plain::fit(x, targets, 8, 1), 0.75f, -0.375f, 0.25f, 0, 1024), "one step of the plain library");
    expect(is(fast::fit(x, targets, 8, 1), 0.75f, -0.375f, 0.25f, 0, 1024), "one step of the fast library");
    const fitted one = plain::fit(x, targets, 8, 8), other = fast::fit(x, targets, 8, 8);
    expect(is(other, one.first, one.second, one.bias, 0, 1024), "eight steps are the same in both");
    // Gradients that are infinite change nothing but the loss scale, -ffast-math or not.
    targets[3] = std::numeric_limits<float>::infinity();
    expect(is(plain::fit(x, targets, 8, 2), 0, 0, 0, 2, 256), "infinite gradients in the plain library");
    expect(is(fast::fit(x, targets, 8, 2), 0, 0, 0, 2, 256), "infinite gradients in the fast library");
}

}  // namespace

#define EXPECT(...) expect((__VA_ARGS__), #__VA_ARGS__)

int main() {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();

    EXPECT(plain::is_finite(1.0f) && fast::is_finite(1.0f));
    EXPECT(!plain::is_finite(infinity) && !fast::is_finite(infinity));
    EXPECT(!plain::is_finite(nan) && !fast::is_finite(nan));

    EXPECT(plain::to_bfloat16(1.0f / 3) == 0x3eab && fast::to_bfloat16(1.0f / 3) == 0x3eab);
    EXPECT(plain::to_float16(1.0f / 3) == 0x3555 && fast::to_float16(1.0f / 3) == 0x3555);
    // A library linked with -ffast-math turns on flushing of subnormals for the whole program.
    EXPECT(plain::to_bfloat16(0x1p-130f) == 0x0008 && fast::to_bfloat16(0x1p-130f) == 0x0008);
    EXPECT(plain::to_float16(0x1p-24f) == 0x0001 && fast::to_float16(0x1p-24f) == 0x0001);

    EXPECT(plain::complaint() == "complaint: given 1; expected 2");
    EXPECT(fast::complaint() == plain::complaint());

    multiply();
    train();

    if (failures == 0) std::puts("two libraries, one program");
    return failures;
}
