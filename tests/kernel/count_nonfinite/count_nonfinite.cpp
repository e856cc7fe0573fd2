// SPDX-License-Identifier: MIT
/// \file
/// Nonfinite counts on every instruction set.
#include <halftone/kernel/count_nonfinite/cpu.hpp>

#include "kernel/count_nonfinite/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_count_nonfinite_tests {

using namespace count_nonfinite_checks;

TEST_CASE_TEMPLATE("count_nonfinite: equals its definition", T, float, ht::bfloat16, ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        equals_definition<T>(device);
    });
}

TEST_CASE("count_nonfinite: counts by hand, wrong arguments") {
    ht::cpu device{{.threads = 1}};
    counts(device);
    refuses(device);
}

}  // namespace kernel_count_nonfinite_tests
