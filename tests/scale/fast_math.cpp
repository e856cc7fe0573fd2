// SPDX-License-Identifier: MIT
/// \file
/// Properties that also hold in a program compiled with -ffast-math: the build compiles this file with that flag. Infinities and
/// NaNs pass through volatile variables, because the compiler may assume that visible values are finite.
#include <bit>
#include <cstdint>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/small_model.hpp"
#include "support/each_set.hpp"

namespace scale_fast_math_tests {

namespace ht = halftone;

float hidden(std::uint32_t bits) {
    volatile std::uint32_t memory = bits;
    return std::bit_cast<float>(static_cast<std::uint32_t>(memory));
}

TEST_CASE("fast math: overflows are found and their steps skipped, on each instruction set") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        small::model<ht::amp_fp16> model{device};
        ht::adamw optimizer{device, model, {.lr = 0.1}};
        ht::grad_scaler scaler{device, {.growth_interval = 2}};
        ht::accumulator acc{model};
        small::tape tape;
        const std::uint32_t patterns[] = {0x3f800000u, 0x7f800000u, 0xff800000u, 0x7fc00000u,
                                          0x7f800001u, 0x7f7fffffu, 0x3f800000u};
        std::string trace;
        for (const std::uint32_t bits : patterns) {
            tape.gradients = [](std::size_t, std::size_t) { return 0x1p-10f; };
            tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
            const ht::gradient_slabs::place place = acc.find(model.parameters())->claim(2);
            const float value = hidden(bits);
            std::memcpy(place.data + 37 * sizeof(float), &value, sizeof value);
            const float before = model.fc1.weight.master()(0);
            auto grads = scaler.unscale(acc.take());
            const auto norm = ht::clip_grad_norm(grads, 1.0f);
            const bool found = !ht::is_finite(norm.value());
            const bool skipped = optimizer.step(grads).skipped();
            CHECK(found == skipped);
            CHECK((model.fc1.weight.master()(0) == before) == skipped);
            scaler.update();
            trace += skipped ? 's' : '.';
        }
        CHECK(trace == ".ssss..");
        CHECK(scaler.get_scale() == 8192);
        for (int i = 0; i < 70; ++i) CHECK(ht::is_finite(model.fc2.weight.master()(i)));
    });
}

TEST_CASE("fast math: a scale never becomes infinite, and is not set to an invalid value") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::amp_fp16> model{device};
    ht::accumulator acc{model};
    ht::grad_scaler scaler{device, {.init_scale = 1e38f, .growth_interval = 1}};
    for (int i = 0; i < 4; ++i) {
        acc.receive(scaler.scale(small::loss{}));
        scaler.unscale(acc.take());
        scaler.update();
    }
    CHECK(scaler.get_scale() == 2e38f);
    CHECK_THROWS_AS(scaler.update(hidden(0x7f800000u)), ht::argument_error);
    CHECK_THROWS_AS(scaler.update(hidden(0x7fc00000u)), ht::argument_error);
}

}  // namespace scale_fast_math_tests
