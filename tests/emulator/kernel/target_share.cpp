// SPDX-License-Identifier: MIT
/// \file
/// Counting targets as a GPU does it.
#include <halftone/kernel/target_share/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/target_share/checks.hpp"

namespace {

using namespace target_share_checks;
namespace emulator = ht::emulator;

TEST_CASE("target_share on a GPU: counts and shares are the definition's, refusals") {
    emulator::device device;
    equals_definition(device);
    refuses(device);
}

TEST_CASE("target_share on a GPU: any schedule gives the same counts, and every damage shows") {
    // Each warp has a count of its own.
    std::vector<std::int32_t> part = targets(2000, 10, 4), whole = targets(3001, 10, 5);
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = static_cast<int>(i % 256) % (2 + static_cast<int>(i % 256) / 32) == 0 ? -100 : 1;
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<int>(i % 256) % (3 + static_cast<int>(i % 256) / 32) == 0 ? -100 : 1;
    const guarded<std::int32_t> a(part, 0), b(whole, 0);
    const double counted = ht::reference::counted(a.const_view()), of = ht::reference::counted(b.const_view());
    emulator::check_kernels([&](emulator::device& device) {
        const kernel::target_counts c = run(device, a.const_view(), b.const_view());
        return c.counted == counted && c.of == of && c.share == counted / of;
    });
}

}  // namespace
