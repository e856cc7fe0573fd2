// SPDX-License-Identifier: MIT
/// \file
/// Counting targets on the emulated GPU.
#include <halftone/kernel/target_share/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/target_share/checks.hpp"

namespace emulator_kernel_target_share_tests {

using namespace target_share_checks;
namespace emulator = ht::emulator;

TEST_CASE("target_share on a GPU: counts and shares are the definition's, wrong arguments") {
    emulator::device device;
    equals_definition(device);
    weights_and_sums(device);
    refuses(device);
}

TEST_CASE("target_share on a GPU: any schedule gives the same counts, and every damage is found") {
    // Each warp has a different count.
    const auto by_warps = [](std::size_t n, std::size_t more) {
        std::vector<std::int32_t> all(n, 1);
        for (std::size_t i = 0; i < n; ++i) all[i] = i % 256 % (more + i % 256 / 32) == 0 ? -100 : 1;
        return all;
    };
    const std::vector<std::int32_t> part = by_warps(2000, 2), whole = by_warps(3001, 3);
    const guarded<std::int32_t> a(part, 0), b(whole, 0);
    const double counted = ht::reference::divisor_value(a.const_view()), of = ht::reference::divisor_value(b.const_view());
    emulator::check_kernels([&](emulator::device& device) {
        const kernel::target_counts c = run(device, a.const_view(), b.const_view());
        return c.counted == counted && c.of == of && c.share == counted / of;
    });
    // Sums of small integers are exact.
    const guarded<float> weight(std::vector<float>{2, 3, 5}), terms(std::vector<float>(700, 3), 1);
    emulator::check_kernels([&](emulator::device& device) {
        const kernel::target_counts c = run(device, {a.const_view(), -100, weight.const_view()}, terms.const_view());
        return c.counted == 3 * counted && c.of == 2100;
    });
}

}  // namespace emulator_kernel_target_share_tests
