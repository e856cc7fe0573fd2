// SPDX-License-Identifier: MIT
/// \file
/// Sets environment variables of this process.
///
///     support::set_environment("HALFTONE_ISA", "portable");       // nullptr removes it
#pragma once

#include <cstdlib>

namespace support {

inline void set_environment(const char* name, const char* value) {
#if defined(_WIN32)
    _putenv_s(name, value == nullptr ? "" : value);  // an empty value removes it
#else
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
#endif
}

}  // namespace support
