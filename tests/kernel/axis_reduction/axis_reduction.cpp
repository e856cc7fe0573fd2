// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on the CPU against their definition.
#include <doctest/doctest.h>

#include <halftone/kernel/axis_reduction/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>

#include "kernel/axis_reduction/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_axis_reduction_tests {

using namespace axis_checks;
using kernel = ht::kernel::axis_reduction<ht::cpu>;

TEST_CASE_TEMPLATE("axis_reduction: within its bound of the definition", X, float, bfloat16, float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        every_layout<X, X>(device);
    });
}

TEST_CASE("axis_reduction: results of another type, and long rows and columns") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        all_operations<bfloat16, float>(device, ht::shape<2>{37, 130}, ht::axes<1>);
        all_operations<bfloat16, float>(device, ht::shape<2>{37, 130}, ht::axes<0>);
        all_operations<float, bfloat16>(device, ht::shape<2>{130, 37}, ht::axes<0>);
        // Several pieces: a long row, a long column, wide rows that are summed by columns, two reduced axes that are apart.
        all_operations<float, float>(device, ht::shape<1>{150001}, ht::axes<0>);
        all_operations<bfloat16, float>(device, ht::shape<2>{20011, 9}, ht::axes<0>);
        all_operations<float, float>(device, ht::shape<2>{130, 2500}, ht::axes<0>);
        all_operations<bfloat16, bfloat16>(device, ht::shape<3>{30, 2, 2500}, ht::axes<0, 2>);
        products<float, float>(device, ht::shape<1>{150001}, ht::axes<0>);
        products<bfloat16, float>(device, ht::shape<2>{20011, 9}, ht::axes<0>);
    });
}

TEST_CASE("axis_reduction: means and largest elements that change from block to block") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        uneven_blocks(device);
        special_blocks(device);
    });
}

TEST_CASE("axis_reduction: strides, axes that are kept, infinities, NaNs, empty tensors") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        free_functions(device);
        what_is_special(device);
        special_products<float>(device);
        special_products<bfloat16>(device);
    });
}

TEST_CASE("axis_reduction: standard deviations whose squares float does not hold, and their gradients") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        deviations_of_every_size<float>(device);
        deviations_of_every_size<bfloat16>(device);
    });
}

TEST_CASE("axis_reduction: variances whose sums or squares float does not hold, and those divided by 0") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        variances_beyond_float<float>(device);
        variances_beyond_float<bfloat16>(device);
    });
}

TEST_CASE("axis_reduction: equal elements, however many and however large, have a variance and a deviation of 0") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const float value : {0.1f, 12345.678f, -3e38f}) {
            CAPTURE(value);
            for (const extent n : {3, 700, 9000, 100000}) {
                CAPTURE(n);
                const std::vector<float> x(static_cast<std::size_t>(3 * n), value);
                float y[3];
                const auto all_zero = [&] { return y[0] == 0 && y[1] == 0 && y[2] == 0; };
                const ht::const_view<float, 2> rows(x.data(), {3, n}), columns(x.data(), {n, 3});
                const ht::view<float, 1> out(y, {3});
                ht::var(device, rows, ht::axes<1>, out);
                CHECK(all_zero());
                ht::var(device, columns, ht::axes<0>, out);
                CHECK(all_zero());
                ht::std(device, rows, ht::axes<1>, out);
                CHECK(all_zero());
                ht::std(device, columns, ht::axes<0>, out);
                CHECK(all_zero());
            }
        }
    });
}

TEST_CASE("axis_reduction: running sums along an axis") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        every_running_sum<float, float>(device);
        every_running_sum<bfloat16, float>(device);
        every_running_sum<float, float16>(device);
    });
}

template <class X, int Rank, int... Axes>
void same_bits(ht::isa set, const ht::shape<Rank>& s, ht::axis_list<Axes...> along) {
    support::random data(5);
    const guarded<X> x(data.normals<X>(s.size()));
    const axis_layout l = ht::kernel::axis_layout_of(x.const_view(s), along);
    const guarded<float> one(l.outputs), three(l.outputs);
    ht::cpu alone{{.threads = 1, .instruction_set = set}}, together{{.threads = 3, .instruction_set = set}};
    for (const axis_operation operation : every_operation) {
        kernel::run(alone, ht::kernel::reduction<X, float>{x.data(), l, one.data(), operation, 1.0});
        kernel::run(together, ht::kernel::reduction<X, float>{x.data(), l, three.data(), operation, 1.0});
        CHECK(one.same_bits(three));
    }
}
TEST_CASE(
    "axis_reduction: the same bits at one and at three threads, and an error that does not grow with the length") {
    support::for_each_set([](ht::isa set) {
        same_bits<float>(set, ht::shape<1>{200003}, ht::axes<0>);
        same_bits<bfloat16>(set, ht::shape<2>{40001, 5}, ht::axes<0>);
        same_bits<float>(set, ht::shape<3>{9, 33, 301}, ht::axes<0, 2>);
        // 2^34 and many ones: a sum in float would lose each of the ones, also if added up in blocks of 512. Here only the
        // ones in the block of 2^34 are lost, and the result is rounded to a multiple of 2048.
        constexpr extent ones = 100000;
        std::vector<float> x(ones + 1, 1.0f);
        x[0] = 0x1p34f;
        float y = 0;
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        ht::sum(device, ht::const_view<float, 1>(x.data(), {ones + 1}), ht::axes<0>, ht::view<float, 0>(&y, {}));
        CHECK(std::fabs(static_cast<double>(y) - (0x1p34 + ones)) <= 512 + 1024);
    });
}

TEST_CASE("axis_reduction: doubles are reduced in double") {
    ht::cpu device{{.threads = 2}};
    support::random data(5);
    const std::vector<double> x = data.normals<double>(3 * 50 * 4);
    const ht::const_view<double, 3> in(x.data(), {3, 50, 4});
    std::vector<double> got(12), want(12);
    const auto l = ht::kernel::axis_layout_of(in, ht::axes<1>);
    for (const axis_operation operation : every_operation) {
        kernel::run(device, ht::kernel::reduction<double, double>{x.data(), l, got.data(), operation, 0.5});
        ht::reference::reduce(in, ht::axes<1>, operation, 0.5, ht::view<double, 1>(want.data(), {12}));
        CHECK(got == want);
    }
}

}  // namespace kernel_axis_reduction_tests
