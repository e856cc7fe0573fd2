// SPDX-License-Identifier: MIT
/// \file
/// Sums over all elements on the CPU against their definition.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/sum/cpu.hpp>

#include "kernel/sum/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_sum_tests {

using namespace sum_checks;
using sum = ht::kernel::sum<ht::cpu>;

TEST_CASE("sum: within its bound of the definition") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const extent count : support::widths) within_bounds<float, float, float>(device, count);
        for (const extent count : {1, 5, 100, 16384, 16385, 70001}) {
            within_bounds<float, float, float>(device, count);
            within_bounds<bfloat16, float, float>(device, count);
            within_bounds<float16, float16, float>(device, count);
            within_bounds<bfloat16, bfloat16, bfloat16>(device, count);
        }
    });
}

TEST_CASE("sum: lanes beyond the end do not count") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent count : support::widths) ends_where_it_should(device, count);
    });
}

TEST_CASE("sum: integers exactly, and the same bits at one and at two threads") {
    support::for_each_set([](ht::isa set) {
        constexpr extent count = 100003;
        support::random data(5);
        const guarded<bfloat16> integers(data.integers<bfloat16>(count, 100)), x(data.normals<bfloat16>(count));
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        const auto e = ht::trace<1>([](auto v) { return v; });
        const guarded<float> out(1), other(1);
        double want = 0;
        ht::reference::sum(e, ht::make_pack(integers.const_view()), 1.0, ht::view<double, 0>(&want, {}));
        sum::run(two, e, ht::make_pack(integers.const_view()), 1.0, scalar(out));
        CHECK(static_cast<double>(out[0]) == want);
        sum::run(one, e, ht::make_pack(x.const_view()), 1.0, scalar(out));
        sum::run(two, e, ht::make_pack(x.const_view()), 1.0, scalar(other));
        CHECK(out.same_bits(other));
    });
}

TEST_CASE("sum: empty tensors, NaNs, wrong arguments") {
    ht::cpu device{{.threads = 1}};
    nothing_nan_and_wrong_arguments(device);
}

}  // namespace kernel_sum_tests
