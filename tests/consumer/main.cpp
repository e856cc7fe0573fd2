// SPDX-License-Identifier: MIT
/// \file
/// Somebody else's program: rung 1 and an error, with no flag of halftone's.
#include <cstdio>

#include <halftone/error.hpp>
#include <halftone/number.hpp>

namespace ht = halftone;

static_assert(ht::bfloat16(1.0f / 3).bits() == 0x3eab);

int main() {
    try {
        ht::fail<ht::shape_error>("consumer: given ", 3, " rows; expected ", 4);
    } catch (const ht::error& e) {
        std::printf("halftone %d.%d.%d says: %s\n", HALFTONE_VERSION_MAJOR, HALFTONE_VERSION_MINOR,
                    HALFTONE_VERSION_PATCH, e.what());
        return 0;
    }
    return 1;
}
