// SPDX-License-Identifier: MIT
/// \file
/// Array conversions on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/convert/device.hpp>

#include "kernel/convert/checks.hpp"

namespace emulator_kernel_convert_tests {

using namespace convert_checks;
namespace emulator = ht::emulator;

TEST_CASE_TEMPLATE("convert on a GPU: every element as a single number", M, down_bf16, down_f16, up_bf16, up_f16,
                   across, back, copy, down_e4m3, up_e5m2) {
    using X = typename M::X;
    using Y = typename M::Y;
    emulator::device device;
    for (const extent count : {1, 3, 7, 8, 9, 63, 64, 1023}) {
        converts_each<X, Y>(device, count);
        converts_each<X, Y>(device, count, 0, 0);
        converts_each<X, Y>(device, count, 8, 1);
    }
    converts_each<X, Y>(device, 65536 + 257, 0, 0);  // all 16-bit patterns
}

TEST_CASE("convert on a GPU: numbers that are too large saturate") {
    emulator::device device;
    for (const extent count : {1, 7, 64, 1023}) saturates<bfloat16, ht::float8_e4m3>(device, count);
}

TEST_CASE("convert on a GPU: in place with a factor, wrong arguments, empty tensors") {
    emulator::device device;
    scales_in_place(device);
    refuses(device);
}

TEST_CASE("convert on a GPU: any schedule gives the same bits, and every damage is found") {
    support::random data(7);
    const guarded<float> from(data.normals<float>(1003), 0);
    emulator::check_kernels([&](emulator::device& device) {
        const guarded<float16> to(from.size(), 0);
        ht::kernel::convert<emulator::device>::run(device, from.const_view(), to.view());
        extent wrong = 0;
        for (extent i = 0; i < from.size(); ++i) wrong += to[i] == float16(from[i]) ? 0 : 1;
        return wrong == 0 && to.intact();
    });
}

}  // namespace emulator_kernel_convert_tests
