// SPDX-License-Identifier: MIT
/// \file
/// A whole model and whole training steps on the emulated GPU, by the code that runs on the CPU: loss and gradients
/// within rounding errors, and steps with the same bits in every schedule of threads.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/tensor/tensor.hpp>

#include "nn/packed_checks.hpp"
#include "train/loop.hpp"

namespace emulator_models_gpt_tests {

namespace ht = halftone;

template <class P, class T>
void within_what_rounding_does(float seed) {
    ht::emulator::device device{{.seed = 7}};
    nn_test::within_what_rounding_does_on<P, T>(device, seed);
    CHECK(device.count().bank_conflicts == 0);
}

TEST_CASE("gpt on the emulated machine: loss and every gradient within rounding") {
    SUBCASE("full_fp32") { within_what_rounding_does<ht::full_fp32, float>(1); }
    SUBCASE("tf32") { within_what_rounding_does<ht::tf32, ht::tfloat32>(1); }
    SUBCASE("amp_bf16") { within_what_rounding_does<ht::amp_bf16, ht::bfloat16>(1); }
    SUBCASE("amp_fp16") { within_what_rounding_does<ht::amp_fp16, ht::float16>(1024); }
}

/// Other files look for races in these kernels.
ht::emulator::options quickly(std::uint64_t seed) {
    return {.seed = seed, .check = ht::emulator::checking::values_only};
}

TEST_CASE("packed documents on the emulated machine: bits alone, bits of a batch, invalid arguments") {
    ht::emulator::device device{quickly(3)};
    nn_test::check_packed_logits<ht::tf32>(device);
    nn_test::check_packed_as_batch<ht::tf32>(device);
    nn_test::check_packed_refusals<ht::tf32>(device);
}

TEST_CASE("packed documents on the emulated machine: loss and every gradient within rounding") {
    ht::emulator::device device{quickly(4)};
    nn_test::check_packed_gradients<ht::tf32, ht::tfloat32>(device, 1);
}

TEST_CASE("packed documents whose offsets only the device reads: tokens outside documents and positions are NaN") {
    ht::emulator::device device{quickly(5)};
    ht::nn::gpt<ht::tf32> model{device, nn_test::packed_config, 3};
    ht::inference eval{device};
    const auto finite = [&](const std::vector<std::int32_t>& offsets, ht::extent tokens) {
        const nn_test::pack docs({static_cast<std::int32_t>(tokens)}, 19);
        const auto count = static_cast<ht::extent>(offsets.size());
        ht::tensor<std::int32_t, 1> there(device.memory(), ht::shape<1>{count});
        device.memory().write(there.view().data(), offsets.data(), offsets.size() * sizeof offsets[0]);
        const auto logits = model.logits(eval, docs.tokens(), ht::packed{there.const_view()});
        std::vector<bool> is_finite;
        const auto values = nn_test::values_of(model.parameters(), logits.view());
        for (ht::extent t = 0; t < tokens; ++t)
            is_finite.push_back(std::isfinite(values[static_cast<std::size_t>(t * 19)]));
        return is_finite;
    };
    const auto marks = [](int yes, int no) {
        std::vector<bool> all(static_cast<std::size_t>(yes), true);
        all.resize(static_cast<std::size_t>(yes + no), false);
        return all;
    };
    CHECK(finite({0, 5, 8}, 8) == marks(8, 0));
    CHECK(finite({0, 3, 5}, 8) == marks(5, 3));     // tokens behind the last document
    CHECK(finite({0, 3, 13}, 13) == marks(11, 2));  // a document beyond the context of eight
}

using training::loop;
using eight_bits = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<2>>;

/// Scales and histories, one after the other.
template <class Loop>
std::vector<float> scales_of(const Loop& l) {
    std::vector<float> all;
    for (const ht::amax_state& s : l.model.parameters().amaxes().read()) {
        all.push_back(s.scale);
        all.insert(all.end(), s.history.begin(), s.history.end());
    }
    return all;
}

TEST_CASE_TEMPLATE(
    "steps on the emulated machine: the same bits under any schedule, and a loss that falls as on the CPU", P,
    ht::amp_bf16, ht::amp_fp16, eight_bits) {
    ht::emulator::device one{{.seed = 1}}, other{{.seed = 1000, .resident_blocks = 1}};
    ht::cpu cpu{{.threads = 1}};
    loop<P, ht::emulator::device> a(one), b(other);
    loop<P, ht::cpu> c(cpu);
    const float first = a.step();
    CHECK(first == b.step());
    // The same initial weights and batches: only rounding differs, of results with 8 bits and more.
    CHECK(first == doctest::Approx(c.step()).epsilon(ht::unit_roundoff<ht::bfloat16>));
    CHECK(a.parameters() == b.parameters());
    const std::vector<float> scales = scales_of(a);
    CHECK(scales == scales_of(b));
    CHECK(scales.empty() == !std::is_same_v<P, eight_bits>);
    CHECK(std::count(scales.begin(), scales.end(), 1.0f) == 0);  // all have met something
    CHECK(a.scaler.overflows() == 0);
    const std::uint64_t allocations = one.memory().usage().allocations();
    a.step();
    const float last = a.step();
    CHECK(last < first - 0.1f);
    CHECK((scales_of(a) != scales) == !scales.empty());
    c.step();
    CHECK(last == doctest::Approx(c.step()).epsilon(0.02));
    CHECK(one.memory().usage().allocations() == allocations);
}

}  // namespace emulator_models_gpt_tests
