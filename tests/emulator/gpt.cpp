// SPDX-License-Identifier: MIT
/// \file
/// A whole model and whole training steps on the emulated machine, by the code that runs on the CPU: loss and gradients
/// within what rounding does, and steps that give the same bits whatever the schedule of threads.
#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>

#include "nn/gpt_gradients.hpp"
#include "train/loop.hpp"

#include <emulator/device.hpp>

namespace {

namespace ht = halftone;

template <class P, class T>
void within_what_rounding_does(float seed) {
    const nn_test::batch b = nn_test::batch_to_check();
    ht::emulator::device device{{.seed = 7}};
    nn_test::check_on<P>(device, nn_test::expected_of<P, T>(b, seed), b, seed);
    CHECK(device.count().bank_conflicts == 0);
}

TEST_CASE("gpt on the emulated machine: loss and every gradient within what rounding does") {
    SUBCASE("full_fp32") { within_what_rounding_does<ht::full_fp32, float>(1); }
    SUBCASE("tf32") { within_what_rounding_does<ht::tf32, ht::tfloat32>(1); }
    SUBCASE("amp_bf16") { within_what_rounding_does<ht::amp_bf16, ht::bfloat16>(1); }
    SUBCASE("amp_fp16") { within_what_rounding_does<ht::amp_fp16, ht::float16>(1024); }
}

using training::loop;

TEST_CASE_TEMPLATE(
    "steps on the emulated machine: the same bits under any schedule, and a loss that falls as on the CPU", P,
    ht::amp_bf16, ht::amp_fp16) {
    ht::emulator::device one{{.seed = 1}}, other{{.seed = 1000, .resident_blocks = 1}};
    ht::cpu cpu{{.threads = 1}};
    loop<P, ht::emulator::device> a(one), b(other);
    loop<P, ht::cpu> c(cpu);
    const float first = a.step();
    CHECK(first == b.step());
    // The same initial weights and batches: what differs is rounding, of results with 8 bits and more.
    CHECK(first == doctest::Approx(c.step()).epsilon(ht::unit_roundoff<ht::bfloat16>));
    CHECK(a.parameters() == b.parameters());
    CHECK(a.scaler.overflows() == 0);
    const std::uint64_t allocations = one.memory().usage().allocations();
    a.step();
    const float last = a.step();
    CHECK(last < first - 0.1f);
    c.step();
    CHECK(last == doctest::Approx(c.step()).epsilon(0.02));
    CHECK(one.memory().usage().allocations() == allocations);
}

}  // namespace
