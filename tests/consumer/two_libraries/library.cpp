// SPDX-License-Identifier: MIT
/// \file
/// Built into two shared libraries, one of them with -ffast-math. LIBRARY is the namespace of its functions.
#include <halftone/error.hpp>
#include <halftone/number.hpp>

#include "library.hpp"

namespace ht = halftone;

namespace LIBRARY {

bool is_finite(float x) { return ht::is_finite(x); }

std::uint16_t to_bfloat16(float x) { return ht::bfloat16(x).bits(); }

std::uint16_t to_float16(float x) { return ht::float16(x).bits(); }

std::string complaint() {
    try {
        ht::fail<ht::argument_error>("complaint: given ", 1, "; expected ", 2);
    } catch (const ht::error& e) {
        return e.what();
    }
}

}  // namespace LIBRARY
