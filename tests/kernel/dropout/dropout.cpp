// SPDX-License-Identifier: MIT
/// \file
/// Dropout on the CPU against its definition.
#include <halftone/kernel/dropout/cpu.hpp>

#include "kernel/dropout/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_dropout_tests {

using namespace dropout_checks;

template <class A, class B>
struct types {
    using X = A;
    using Y = B;
};
using floats = types<float, float>;
using residual = types<bfloat16, float>;

TEST_CASE_TEMPLATE("dropout: as its definition, at any alignment", M, floats, residual) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const extent count : support::widths) {
            CAPTURE(count);
            CHECK(is_right<typename M::X, typename M::Y>(device, count, 0.1f, 1, 3));
        }
        CHECK(is_right<typename M::X, typename M::Y>(device, 40'003, 0.75f, 0, 0));  // several pieces
    });
}

TEST_CASE("dropout: of no element, of every element, of an empty tensor; wrong arguments") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        ends_of_the_range(device);
    });
}

TEST_CASE("dropout: masks are random") {
    ht::cpu device{{.threads = 1}};
    masks_are_random(device, 100'000);
}

}  // namespace kernel_dropout_tests
