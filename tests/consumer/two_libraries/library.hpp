// SPDX-License-Identifier: MIT
/// \file
/// What each of the two libraries offers. No type of halftone crosses the border: the libraries were built with other
/// flags, so their types of one name are not the same type.
#pragma once

#include <cstdint>
#include <string>

namespace plain {
bool is_finite(float x);
std::uint16_t to_bfloat16(float x);
std::uint16_t to_float16(float x);
std::string complaint();
}  // namespace plain

namespace fast {
bool is_finite(float x);
std::uint16_t to_bfloat16(float x);
std::uint16_t to_float16(float x);
std::string complaint();
}  // namespace fast
