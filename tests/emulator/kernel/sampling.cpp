// SPDX-License-Identifier: MIT
/// \file
/// topk and multinomial on the emulated GPU.
#include <halftone/kernel/device.hpp>

#include <emulator/damage.hpp>

#include "autodiff/sampling_checks.hpp"

namespace emulator_kernel_sampling_tests {

using namespace sampling_checks;
namespace emulator = ht::emulator;

TEST_CASE("topk on a GPU: the order of a stable sort") {
    emulator::device device;
    all(device);
}

TEST_CASE("topk on a GPU: every damage is found") {
    const guarded<float> x(support::random(3).normals<float>(2 * 520));
    emulator::check_kernels([&](emulator::device& device) {
        const guarded<std::int32_t> indices(6);
        ht::topk(device, x.const_view(ht::shape<2>{2, 520}), indices.view(ht::shape<2>{2, 3}));
        for (extent i = 0; i < 2; ++i) {
            const auto want = sorted(x.data() + 520 * i, 520);
            if (!std::equal(want.begin(), want.begin() + 3, indices.data() + 3 * i)) return false;
        }
        return true;
    });
}

TEST_CASE("multinomial on a GPU: the CPU's draws; -1 for rows without weights") {
    emulator::device device;
    draws(device, 400);
    const guarded<float> none(std::vector<float>{0, 0, 1, 0});
    const guarded<std::int32_t> drawn(2);
    ht::multinomial(device, none.const_view(ht::shape<2>{2, 2}), drawn.view(ht::shape<2>{2, 1}), {});
    CHECK((drawn[0] == -1 && drawn[1] == 0));
}

}  // namespace emulator_kernel_sampling_tests
