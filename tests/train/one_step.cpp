// SPDX-License-Identifier: MIT
/// \file
/// Whole training steps with every part in sight: the same bits at any number of threads, under every policy and on every
/// instruction set; no memory from the system once they are steady; a loss that falls. Small enough for an emulator.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/each_set.hpp"
#include "train/loop.hpp"

namespace {

namespace ht = halftone;

using training::loop;
using recipe = ht::recipe<ht::amp_bf16, ht::rule<"*.norm", ht::full_fp32>, ht::rule<"head", ht::with_output<ht::amp_bf16, float>>>;

TEST_CASE_TEMPLATE("one step: the same bits with one thread and with two, on every instruction set", P, ht::full_fp32, ht::amp_bf16, ht::amp_fp16, recipe) {
    for (const ht::isa set : ht::every_isa) {
        const std::string instruction_set = ht::name(set);
        CAPTURE(instruction_set);
        if (!support::is_tested(set)) {
            MESSAGE("not tested here: ", instruction_set);
            continue;
        }
        ht::cpu narrow{{.threads = 1, .instruction_set = set}}, wide{{.threads = 2, .instruction_set = set}};
        loop<P, ht::cpu> one(narrow), two(wide);
        const std::vector<std::byte> before = one.parameters();
        for (int i = 0; i < 2; ++i) CHECK(one.step() == two.step());
        CHECK(one.parameters() == two.parameters());
        CHECK(one.parameters() != before);
        CHECK(one.scaler.state().overflows == 0);
    }
}

TEST_CASE_TEMPLATE("steps: the loss falls, and a steady step takes nothing from the system", P, ht::full_fp32, ht::tf32, ht::amp_bf16, ht::amp_fp16) {
    ht::cpu device{{.threads = 2}};
    loop<P, ht::cpu> l(device);
    const float first = l.step();
    l.step(), l.step();
    const std::uint64_t allocations = l.device.memory().usage().allocations();
    const std::size_t held = l.device.memory().usage().held();
    float last = 0;
    for (int i = 0; i < 5; ++i) last = l.step();
    CHECK(l.device.memory().usage().allocations() == allocations);
    CHECK(l.device.memory().usage().held() == held);
    CHECK(l.tape.memory().live() == 0);
    // Eight steps on one batch of 48 tokens: from the logarithm of 23 classes to well below it.
    CHECK(first == doctest::Approx(std::log(23.0)).epsilon(0.05));
    CHECK(last < first - 0.3f);
}

TEST_CASE("steps: the same seed gives the same bits again") {
    ht::cpu one{{.threads = 2}}, other{{.threads = 2}};
    loop<ht::amp_bf16, ht::cpu> a(one), b(other);
    for (int i = 0; i < 3; ++i) CHECK(a.step() == b.step());
    CHECK(a.parameters() == b.parameters());
}

}  // namespace
