// SPDX-License-Identifier: MIT
/// \file
/// Times by operation and pass, measured by a clock that the test controls.
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include <halftone/observe/profile/profile.hpp>

namespace observe_profile_tests {

namespace ht = halftone;

std::int64_t now = 0;
std::int64_t hand_turned() { return now; }

const ht::profiler::row& row_of(const ht::profiler& profile, const std::string& name) {
    for (const ht::profiler::row& r : profile.rows()) {
        if (r.operation == name) return r;
    }
    FAIL("no row " << name);
    return profile.rows().front();
}

TEST_CASE("time in an inner range counts there alone, and the rows add up to the whole") {
    now = 1000;
    ht::profiler profile(&hand_turned);
    for (int step = 0; step < 2; ++step) {
        const ht::range outer(&profile, "block", ht::pass::forward);
        now += 3;
        {
            const ht::range inner(&profile, "matmul", ht::pass::forward);
            now += 10;
        }
        now += 4;
        {
            const ht::range inner(&profile, "matmul", ht::pass::backward);
            now += 20;
        }
        now += 5;
    }
    now += 1000;  // outside of all ranges
    CHECK(row_of(profile, "block").nanoseconds[0] == 2 * 12);
    CHECK(row_of(profile, "block").calls[0] == 2);
    CHECK(row_of(profile, "matmul").nanoseconds[0] == 2 * 10);
    CHECK(row_of(profile, "matmul").nanoseconds[1] == 2 * 20);
    CHECK(row_of(profile, "matmul").calls[1] == 2);
    CHECK(row_of(profile, "matmul").total() == 60);
    CHECK(profile.total() == 2 * 42);
    profile.clear();
    CHECK(profile.total() == 0);
}

TEST_CASE("names are compared as text: equal literals of two translation units are one name") {
    now = 0;
    ht::profiler profile(&hand_turned);
    const char one[] = "norm", two[] = "norm";
    for (const char* name : {one, two}) {
        const ht::range r(&profile, name, ht::pass::update);
        now += 1;
    }
    CHECK(profile.rows().size() == 1);
    CHECK(row_of(profile, "norm").nanoseconds[2] == 2);
}

TEST_CASE("without a listener a range does nothing") {
    const ht::range r(nullptr, "norm", ht::pass::forward);
    CHECK(true);
}

TEST_CASE("the table: largest first, milliseconds a step, the total last") {
    now = 0;
    ht::profiler profile(&hand_turned);
    {
        const ht::range r(&profile, "small", ht::pass::forward);
        now += 2'000'000;
    }
    {
        const ht::range r(&profile, "large", ht::pass::backward);
        now += 6'000'000;
    }
    std::ostringstream out;
    profile.print(out, 4);
    CHECK(out.str() ==
          "ms a step                   forward   backward     update      total   share     calls\n"
          "large                                    1.500                 1.500   75.0%       0.2\n"
          "small                         0.500                            0.500   25.0%       0.2\n"
          "total                         0.500      1.500                 2.000  100.0%       0.5\n");
}

}  // namespace observe_profile_tests
