// SPDX-License-Identifier: MIT
/// \file
/// Operations on shapes and broadcasting on the CPU, every instruction set.
#include <doctest/doctest.h>

#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "autodiff/shapes_checks.hpp"
#include "support/each_set.hpp"

namespace autodiff_shapes_tests {

namespace ht = halftone;

TEST_CASE_TEMPLATE("shapes: element orders and slices are PyTorch's", T, float, ht::bfloat16, ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        shapes_checks::orders_and_parts<T>(device);
    });
}
TEST_CASE_TEMPLATE("shapes: broadcasting is PyTorch's", T, float, ht::bfloat16, ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        shapes_checks::broadcasts<T>(device);
    });
}
TEST_CASE_TEMPLATE("shapes: products of transposed operands are PyTorch's", T, float, ht::bfloat16) {
    ht::cpu device{{.threads = 2}};
    shapes_checks::transposed_products<T>(device);
}
TEST_CASE("shapes: gradients in double, invalid arguments") {
    ht::cpu device{{.threads = 1}};
    shapes_checks::gradients_in_double(device);
    shapes_checks::refusals(device);
}

}  // namespace autodiff_shapes_tests
