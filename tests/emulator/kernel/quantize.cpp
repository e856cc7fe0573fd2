// SPDX-License-Identifier: MIT
/// \file
/// Conversion of tensors to eight bits on the emulated GPU.
#include <halftone/kernel/quantize/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/quantize/checks.hpp"

namespace emulator_kernel_quantize_tests {

using namespace quantize_checks;
namespace emulator = ht::emulator;

TEST_CASE("quantize on a GPU: scales, numbers and amaxes are the definition's") {
    emulator::device device;
    equals_definition<ht::bfloat16, ht::float8_e4m3>(device);
    gathers<float, ht::float8_e5m2>(device);
    keeps_what_is_not_finite<ht::float8_e4m3>(device);
    keeps_what_is_not_finite<ht::float8_e5m2>(device);
    refuses(device);
}

TEST_CASE("quantize on a GPU: delayed scales follow Transformer Engine's formula, and skipped windows do not change them") {
    emulator::device device{{.check = emulator::checking::values_only}};
    follows_the_formula(device);
}

TEST_CASE("quantize on a GPU: any schedule gives the same bits, and every damage is found") {
    namespace on_device = kernel::on_device;
    constexpr auto vectors = on_device::run_access::vectors;
    support::random data{6};
    // The largest number is at an index from which it has to reach the other half of its warp, other warps, and another block.
    std::vector<ht::bfloat16> values = data.normals<ht::bfloat16>(16384 + 3001);
    values[16384 + 2500] = ht::bfloat16(-77.0f);
    const guarded<ht::bfloat16> x(values, 0);
    const guarded<ht::float8_e4m3> y(x.size(), 0), want(x.size());
    ht::reference::quantize(x.const_view(), 2.0, want.view());
    const auto largest = static_cast<std::uint32_t>(ht::bit_cast<std::uint32_t>(77.0f));
    emulator::check_kernels([&](emulator::device& device) {
        std::uint32_t amaxes[2] = {};
        device.launch(on_device::amax_kernel<ht::bfloat16, vectors>{{x.data(), x.size()}, {amaxes, 2}});
        return amaxes[0] < largest && amaxes[1] == largest;
    });
    emulator::check_kernels([&](emulator::device& device) {
        std::uint32_t amaxes[2] = {};
        const ht::tensor_scale by{2, 0.5f};
        ht::tensor_scale used{};
        device.launch(on_device::quantize_kernel<ht::bfloat16, ht::float8_e4m3, vectors>{
            {x.data(), x.size()}, {y.data(), y.size()}, {&by, 1}, {&used, 1}, {amaxes, 2}});
        return y.same_bits(want) && used.scale == 2 && amaxes[0] < largest && amaxes[1] == largest;
    });
    std::vector<std::uint32_t> of_chunks(300, ht::bit_cast<std::uint32_t>(3.0f));
    of_chunks[32 * 5 + 20] = largest;
    emulator::check_kernels([&](emulator::device& device) {
        ht::tensor_scale scale{};
        ht::amax_record record{.now = {2, 0.5f}};
        device.launch(on_device::largest_amax_kernel{{of_chunks.data(), 300}, 448, {}, {&scale, 1}, {&record, 1}});
        return scale.scale == 448.0f / 77 && record.now.scale == 2 && record.amax == largest;
    });
}

}  // namespace emulator_kernel_quantize_tests
