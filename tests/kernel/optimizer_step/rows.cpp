// SPDX-License-Identifier: MIT
/// \file
/// Steps over the rows of sparse gradients on the CPU.
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/tensor/tensor.hpp>

#include "kernel/optimizer_step/rows_checks.hpp"
#include "support/each_set.hpp"

namespace kernel_optimizer_step_rows_tests {

using namespace rows_checks;

TEST_CASE("steps over rows: the bits of a dense step in these rows, and no other byte") {
    support::for_each_set([](ht::isa set) {
        for (const int threads : {1, 2}) {
            ht::cpu device{{.threads = threads, .instruction_set = set}};
            for (const extent width : {1, 3, 8, 67, 260}) equals_dense<float, float>(device, width);
            for (const extent width : {1, 3, 4, 6, 67, 68, 129}) equals_dense<bfloat16, bfloat16>(device, width);
        }
    });
}

TEST_CASE("steps over rows: a table whose copies are larger than the caches, with unaligned rows") {
    constexpr extent width = 67, rows = static_cast<extent>(ht::detail::non_temporal_threshold / sizeof(bfloat16)) / width + 1;
    std::vector<float> master(static_cast<std::size_t>(rows * width), 1.0f);
    ht::cpu device;
    const ht::tensor<bfloat16, 1> copy{device.memory(), {rows * width}};
    std::vector<std::int32_t> indices{1, 3, static_cast<std::int32_t>(rows - 1)};
    std::vector<float> values(3 * width, 0.25f);
    std::int32_t count = 3;
    const ht::gradient_rows<float> gradient{{indices.data(), {3}}, {values.data(), {3, width}}, &count};
    const kernel::step_record first{.steps = 1, .lr = 1};
    kernel::optimizer_step_arguments<sgd_rule, float, bfloat16, float, float> a;
    a.master = {master.data(), {rows * width}}, a.copy = copy.view(), a.factors = &plain, a.step = &first;
    kernel::optimizer_step<ht::cpu>::run_rows<ht::rounding::nearest_even>(device, a, gradient);
    for (const std::int32_t r : indices) {
        CAPTURE(r);
        for (const extent i : {r * width, r * width + 63, r * width + 66}) {
            CHECK(float(copy(i)) == 0.75f);
            CHECK(master[static_cast<std::size_t>(i)] == 0.75f);
        }
    }
    CHECK(master[0] == 1.0f);
    CHECK(master[2 * width] == 1.0f);
}

TEST_CASE("steps over rows: skipped steps, wrong arguments") {
    ht::cpu device;
    skips_and_refuses(device);
}

}  // namespace kernel_optimizer_step_rows_tests
