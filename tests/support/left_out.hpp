// SPDX-License-Identifier: MIT
/// \file
/// Test cases that leave instruction sets to another run of the program (each_set.hpp), and may so have no values to compare.
///
///     support::note_left_out();        // where a set is not tested for that reason
///     support::is_left_out()           // whether the test case that runs has said so
#pragma once

#include <doctest/doctest.h>

namespace support {

/// The test case that said so last; nullptr: none.
inline const void* last_left_out = nullptr;

inline void note_left_out() { last_left_out = doctest::getContextOptions()->currentTest; }
inline bool is_left_out() { return last_left_out != nullptr && last_left_out == doctest::getContextOptions()->currentTest; }

}  // namespace support
