// SPDX-License-Identifier: MIT
/// \file
/// Nonfinite counts on the emulated GPU.
#include <halftone/kernel/count_nonfinite/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/count_nonfinite/checks.hpp"

namespace emulator_kernel_count_nonfinite_tests {

using namespace count_nonfinite_checks;
namespace emulator = ht::emulator;

TEST_CASE_TEMPLATE("count_nonfinite on a GPU: equals its definition", T, float, ht::float16) {
    emulator::device device;
    equals_definition<T>(device);
}

TEST_CASE("count_nonfinite on a GPU: counts by hand, wrong arguments") {
    emulator::device device;
    counts(device);
    refuses(device);
}

TEST_CASE("count_nonfinite on a GPU: any schedule gives the same counts, and every damage is found") {
    // Each warp has different counts, so that a wrong shuffle or a missing barrier changes one of them.
    support::random data{5};
    std::vector<float> values = data.normals<float>(16384 + 3001, 1);
    for (std::size_t i = 0; i < values.size(); i += 1 + i % 37)
        values[i] = i % 3 == 0 ? infinity : i % 3 == 1 ? -infinity : not_a_number;
    const support::guarded<float> g(values, 0);
    const kernel::nonfinite_counts want = ht::reference::count_nonfinite(g.const_view());
    emulator::check_kernels([&](emulator::device& device) { return same(run(device, g), want); });
}

}  // namespace emulator_kernel_count_nonfinite_tests
