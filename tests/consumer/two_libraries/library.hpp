// SPDX-License-Identifier: MIT
/// \file
/// What each of the two libraries offers. No type of halftone crosses the border: the libraries were built with other
/// flags, so their types of one name are not the same type.
#pragma once

#include <cstdint>
#include <string>

/// A line after some steps of training.
struct fitted {
    float first, second, bias;
    int skipped;
    float scale;
};

#define LIBRARY_FUNCTIONS                                                                                  \
    bool is_finite(float x);                                                                               \
    std::uint16_t to_bfloat16(float x);                                                                    \
    std::uint16_t to_float16(float x);                                                                     \
    std::string complaint();                                                                               \
    void product(const float* a, const float* b, float* c, int rows, int inner, int columns); /* c = ab */ \
    fitted fit(const float* x, const float* targets, int points, int steps);

namespace plain {
LIBRARY_FUNCTIONS
}
namespace fast {
LIBRARY_FUNCTIONS
}
