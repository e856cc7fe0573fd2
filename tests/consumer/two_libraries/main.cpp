// SPDX-License-Identifier: MIT
/// \file
/// Two libraries that both use halftone, one of them built with -ffast-math, in one program: each must go on working by
/// its own rules, whichever of them the loader takes first.
#include <cstdio>
#include <limits>

#include "library.hpp"

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
    if (holds) return;
    std::printf("does not hold: %s\n", what);
    ++failures;
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

    if (failures == 0) std::puts("two libraries, one program");
    return failures;
}
