// SPDX-License-Identifier: MIT
/// \file
/// Compiled with HALFTONE_NO_RANGES, ranges tell nobody. tests/headers/unwatched.sh shows that they have no code.
#define HALFTONE_NO_RANGES

#include <doctest/doctest.h>

#include <halftone/exec/ranges.hpp>

namespace {

struct counting final : halftone::range_listener {
    int told = 0;
    void begin(const char*, halftone::pass) override { ++told; }
    void end() override { ++told; }
    void begin_scope(const char*, halftone::track) override { ++told; }
    void end_scope() override { ++told; }
};

}  // namespace

TEST_CASE("without ranges a listener hears nothing") {
    counting heard;
    {
        const halftone::scoped_range outer(&heard, "outer", halftone::track::step);
        const halftone::range inner(&heard, "inner", halftone::pass::forward);
    }
    CHECK(heard.told == 0);
}
