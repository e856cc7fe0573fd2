// SPDX-License-Identifier: MIT
/// \file
/// Column sums on the CPU against their definition.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/column_sum/cpu.hpp>

#include "kernel/column_sum/checks.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace kernel_column_sum_tests {

using namespace column_sum_checks;
using column_sum = ht::kernel::column_sum<ht::cpu>;

TEST_CASE_TEMPLATE("column_sum: within its bound of the definition", M, all_float, mixed, narrow) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) {
            for (const extent rows : {1, 7, 8, 9, 37}) within_bounds<M>(device, rows, width, 0, write_mode::overwrite);
        }
        within_bounds<M>(device, 37, 67, 5, write_mode::add);
        within_bounds<M>(device, 2000, 129, 0, write_mode::add);       // several pieces of rows
        within_bounds<M>(device, 40, 9001, 3, write_mode::overwrite);  // several pieces of columns
    });
}

TEST_CASE("column_sum: integers exactly, and the same bits at one and at two threads") {
    support::for_each_set([](ht::isa set) {
        constexpr extent rows = 3001, width = 517;
        support::random data(7);
        const guarded<bfloat16> integers(data.integers<bfloat16>(rows * width, 100)),
            x(data.normals<bfloat16>(rows * width));
        const ht::shape<2> shape{rows, width};
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        const guarded<float> sums(width), other(width);
        column_sum::run(two, integers.const_view(shape), sums.view());
        doubles want(width);
        ht::reference::column_sum(integers.const_view(shape), ht::view<double, 1>(want.data(), {width}));
        for (extent j = 0; j < width; ++j) CHECK(static_cast<double>(sums[j]) == want[static_cast<std::size_t>(j)]);
        column_sum::run(one, x.const_view(shape), sums.view());
        column_sum::run(two, x.const_view(shape), other.view());
        CHECK(sums.same_bits(other));
    });
}

TEST_CASE("column_sum: the gradient of each row is the sums' gradient") {
    constexpr extent rows = 3, width = 2;
    support::random data(11);
    const doubles x = data.normals<double>(rows * width), dy = data.normals<double>(width);
    doubles sums(width), dx(rows * width);
    for (std::size_t k = 0; k < dx.size(); ++k) dx[k] = dy[k % width];
    support::check_gradient(
        [&](const doubles& at) {
            ht::reference::column_sum(ht::const_view<double, 2>(at.data(), {rows, width}),
                                      ht::view<double, 1>(sums.data(), {width}));
            return sums[0] * dy[0] + sums[1] * dy[1];
        },
        x, dx);
}

TEST_CASE("column_sum: no rows, wrong arguments") {
    ht::cpu device{{.threads = 1}};
    no_rows(device);
    const guarded<float> x(12), out(4);
    CHECK_THROWS_WITH_AS((column_sum::run(device, x.const_view(ht::shape<2>{4, 3}), out.view())),
                         "column_sum: out is (4); expected (3)", ht::shape_error);
    CHECK_THROWS_WITH_AS((column_sum::run(device, ht::view<float, 2>(x.data(), {3, 4}, {1, 3}), out.view())),
                         "column_sum: x (3, 4) has gaps within its rows; its strides are (1, 3)", ht::shape_error);
}

}  // namespace kernel_column_sum_tests
