// SPDX-License-Identifier: MIT
/// \file
/// The main of every test executable. HALFTONE_ISA names the instruction set to test: where this processor lacks it,
/// the program says so and returns 77, which CTest counts as skipped; so it does, where HALFTONE_TEST_ISA_ONCE is set, for
/// the set that this processor takes by itself, which CTest tests without a name.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include <halftone/exec/cpu/isa.hpp>

int main(int argc, char** argv) {
    if (const char* wanted = std::getenv("HALFTONE_ISA"); wanted != nullptr && *wanted != '\0') {
        try {
            const halftone::isa set = halftone::parse_isa(wanted);
            if (!halftone::supports(set)) {
                std::printf("skipped: this processor lacks %s\n", halftone::name(set));
                return 77;
            }
            if (std::getenv("HALFTONE_TEST_ISA_ONCE") != nullptr && set == halftone::detail::inspect_processor().preferred) {
                std::printf("skipped: the test without a name runs it, as this processor takes %s by itself\n", halftone::name(set));
                return 77;
            }
        } catch (const halftone::error& e) {
            std::fprintf(stderr, "%s\n", e.what());
            return 2;
        }
    }
    return doctest::Context(argc, argv).run();
}
