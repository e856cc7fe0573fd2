// SPDX-License-Identifier: MIT
/// \file
/// A whole model with number types that the library does not know on the emulated GPU.
#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/train/trainer.hpp>

#include "nn/gpt_gradients.hpp"
#include "support/own_numbers.hpp"
#include "train/overflow_checks.hpp"

namespace emulator_models_own_numbers_tests {

namespace ht = halftone;

template <class P, class T>
void within_what_rounding_does(float seed) {
    ht::emulator::device device{{.seed = 7}};
    nn_test::within_what_rounding_does_on<P, T>(device, seed);
}

TEST_CASE("gpt on the emulated machine: number types of a user's own") {
    SUBCASE("a float of 6 exponent bits") { within_what_rounding_does<support::amp_e6m9, support::float16_e6m9>(1024); }
    SUBCASE("operands in fixed point") { within_what_rounding_does<support::fixed_operands, support::fixed16>(64); }
}

/// Other tests look for races in these kernels.
ht::emulator::options quick(std::uint64_t seed) { return {.seed = seed, .check = ht::emulator::checking::values_only}; }

TEST_CASE("overflow on a GPU: the first operation is found among results of a number type of a user's own") {
    ht::emulator::device gpu{quick(1)};
    overflow_checks::finds_each<support::amp_e6m9>(gpu, 61);
}

TEST_CASE("overflow on a GPU: a captured step with a number type of a user's own finds what overflows when it is replayed") {
    ht::emulator::device gpu{quick(2)};
    overflow_checks::loop<support::amp_e6m9, ht::emulator::device> l(gpu);
    ht::overflow_finder finder{gpu, l.tape};
    ht::captured_step step{gpu, [&](const overflow_checks::batch& b) { finder.end_step(l.step(b)); }};
    for (int n = 1; n <= 4; ++n) {
        if (n == 4) l.scale_weight("h.1.attn.proj.weight", 0x1p33f), l.scale_weight("h.1.attn.qkv.weight", 0x1p6f);
        step(l.whole());
    }
    CHECK(step.replays() > 0);
    const auto all = finder.take();
    REQUIRE(all.size() == 1);
    CHECK(all[0].step == 4);
    CHECK(all[0].by.layer == "h.1.attn.proj");
    CHECK(all[0].format == ht::value_format::of<support::float16_e6m9>());
}

}  // namespace emulator_models_own_numbers_tests
