// SPDX-License-Identifier: MIT
/// \file
/// The read pass over gradients on the emulated GPU.
#include <halftone/kernel/gradient_norm/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/gradient_norm/checks.hpp"

namespace emulator_kernel_gradient_norm_tests {

using namespace gradient_norm_checks;
namespace emulator = ht::emulator;

TEST_CASE_TEMPLATE("gradient_norm on a GPU: equals its definition", G, float, ht::bfloat16, ht::float16) {
    emulator::device device;
    equals_definition<G>(device);
}

TEST_CASE("gradient_norm on a GPU: squares outside of float's range, several runs, wrong arguments") {
    emulator::device device;
    knows_all_magnitudes(device);
    finds_what_unscaling_overflows(device);
    adds_up(device);
    refuses(device);
}

TEST_CASE_TEMPLATE("gradient_norm on a GPU: one value that is not finite is found at any position", G, float,
                   ht::bfloat16) {
    emulator::device device;
    for (const ht::extent n : {ht::extent{41}, ht::extent{16384 + 41}}) {
        const support::guarded<G> g(std::vector<G>(static_cast<std::size_t>(n), G(0.5f)), n % 2);
        for (ht::extent i = n - 41; i < n; ++i) {
            g[i] = G(i % 3 == 0 ? infinity : i % 3 == 1 ? -infinity : std::numeric_limits<float>::quiet_NaN());
            // Clamped, it is finite; in memory it is not.
            const pass p = run(device, g, {1.0f, 1.0f, 2.0f});
            const std::int32_t want = i % 3 == 2 ? kernel::found_nan : kernel::found_infinity;
            CHECK(p.record.found_inf == want);
            CHECK(p.found == want);
            CHECK(has_norm_of(p.record, want));
            g[i] = G(0.5f);
        }
        CHECK(run(device, g).found == 0);
    }
}

TEST_CASE("gradient_norm on a GPU: sums of small integers are exact, over more chunks than one block has threads") {
    emulator::device device{{.check = emulator::checking::values_only}};
    const ht::extent n = 300 * 16384 + 5;
    const std::vector<ht::bfloat16> ones(static_cast<std::size_t>(n), ht::bfloat16(1.0f));
    kernel::gradient_record record;
    std::int32_t found = 0;
    kernel::gradient_norm<emulator::device>::add(device, ht::const_view<ht::bfloat16, 1>{ones.data(), {n}}, &record,
                                                 &found);
    CHECK(record.squares == static_cast<double>(n));
    CHECK(found == 0);
}

TEST_CASE("gradient_norm on a GPU: any schedule gives the same bits, and every damage is found") {
    // Gradients within float's range, outside of it (summed in double), and with one value that is not finite: a case for
    // each of the kernel's reductions.
    support::random data{5};
    for (const auto& [magnitude, odd] : {std::pair{1.0, 0.0f}, {1e-30, 0.0f}, {1.0, -infinity}}) {
        std::vector<float> values = data.normals<float>(16384 + 3001, magnitude);
        if (odd != 0) values[16384 + 2500] = odd;
        const support::guarded<float> g(values, 0);
        const auto found_by = [&g](emulator::device& device) {
            const pass p = run(device, g);
            return std::pair(p.record.squares, p.found);
        };
        emulator::device plain;
        const auto want = found_by(plain);
        CHECK(want.second == (odd != 0 ? 1 : 0));
        emulator::check_kernels([&](emulator::device& device) { return found_by(device) == want; });
    }
}

}  // namespace emulator_kernel_gradient_norm_tests
