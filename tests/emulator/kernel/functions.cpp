// SPDX-License-Identifier: MIT
/// \file
/// Free functions on the emulated GPU that the tests of kernels do not call: steps of optimizers, whose rate and step count the
/// call copies to the device.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/gradient_norm/device.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>
#include <halftone/kernel/optimizer_step/function.hpp>
#include <halftone/policy/presets.hpp>

#include "emulator/device.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace emulator_kernel_functions_tests {

namespace ht = halftone;
namespace kernel = ht::kernel;
using ht::bfloat16;
using ht::extent;
using support::guarded;

TEST_CASE("adamw_step on a GPU: the bits of the kernel that is given the same step and rates") {
    constexpr extent n = 1009;
    ht::emulator::device device;
    support::random data(1);
    const std::vector<float> w = data.normals<float>(n), m = data.normals<float>(n, 0.1);
    const guarded<float> a(w), b(w), g(data.normals<float>(n)), first_a(m), first_b(m);
    const std::vector<float> v(static_cast<std::size_t>(n), 0.01f);
    const guarded<float> second_a(v), second_b(v);
    const guarded<bfloat16> copy_a(n), copy_b(n);
    kernel::gradient_record norm;
    ht::gradient_norm(device, &norm, g.const_view());
    kernel::clip_by_norm(norm, 1.0f);  // at most half of the norm
    ht::adamw_step<ht::amp_bf16>(device, a.view(), copy_a.view(), g.const_view(), first_a.view(), second_a.view(),
                                 {.lr = 0.01, .weight_decay = 0.1, .step = 3, .factors = &norm.factors});
    const kernel::step_record third{.steps = 3, .lr = 0.01};
    kernel::optimizer_step<ht::emulator::device>::run<ht::rounding::nearest_even, kernel::adamw_rule, float, bfloat16, float, float>(
        device, {.master = b.view(),
                 .copy = copy_b.view(),
                 .gradient = g.const_view(),
                 .moments = {first_b.view(), second_b.view()},
                 .rates = {.weight_decay = 0.1},
                 .factors = &norm.factors,
                 .step = &third});
    CHECK(norm.factors.clip < 0.5f);
    CHECK_FALSE(a.same_bits(guarded<float>(w)));
    CHECK(a.same_bits(b));
    CHECK(copy_a.same_bits(copy_b));
    CHECK(first_a.same_bits(first_b));
    CHECK(second_a.same_bits(second_b));
}

TEST_CASE("sgd_step on a GPU: the bits of the kernel that is given the same step and rates") {
    constexpr extent n = 67;
    ht::emulator::device device;
    support::random data(2);
    const std::vector<float> w = data.normals<float>(n), m = data.normals<float>(n);
    const guarded<float> a(w), b(w), g(data.normals<float>(n)), momentum_a(m), momentum_b(m);
    ht::sgd_step<ht::full_fp32>(device, a.view(), ht::view<float, 1>{}, g.const_view(), momentum_a.view(),
                                {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1, .step = 2});
    const kernel::step_record second{.steps = 2, .lr = 0.01};
    const kernel::gradient_factors plain;
    kernel::optimizer_step<ht::emulator::device>::run<ht::rounding::nearest_even, kernel::sgd_rule, float, float, float, float>(
        device, {.master = b.view(),
                 .gradient = g.const_view(),
                 .moments = {momentum_b.view()},
                 .rule = {.momentum = 0.9},
                 .rates = {.weight_decay = 0.1},
                 .factors = &plain,
                 .step = &second});
    CHECK(a.same_bits(b));
    CHECK(momentum_a.same_bits(momentum_b));
    CHECK_FALSE(a.same_bits(guarded<float>(w)));
}

}  // namespace emulator_kernel_functions_tests
