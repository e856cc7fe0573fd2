// SPDX-License-Identifier: MIT
/// \file
/// Free operations in regions, and operations of a user's own, on the CPU.
#include "autodiff/region_checks.hpp"
#include "support/gradient_check.hpp"

namespace {

namespace ht = halftone;
using region_checks::values;
using support::guarded;

TEST_CASE("regions: an operation's types and values, forward and backward, are those of the region it was called in") {
    ht::cpu device{{.threads = 1}};
    region_checks::types_and_values(device);
}

TEST_CASE("matmul, linear, cat and stack of variables") {
    ht::cpu device{{.threads = 2}};
    region_checks::products(device);
    region_checks::joined(device);
}

TEST_CASE("apply: operations of a user's own") {
    ht::cpu device{{.threads = 1}};
    region_checks::own_operations(device);
}

TEST_CASE("a weight is not cast where it is used: the store's copy is read, and nothing of its size is kept") {
    ht::cpu device{{.threads = 1}};
    region_checks::gated<ht::amp_bf16> model(device);
    ht::tape tape{device};
    const guarded<float> in(std::vector<float>{1, 0, 0});
    const auto x = tape.constant(in.view(ht::shape<2>{1, 3}));
    const auto live = [&] { return tape.memory().live(); };
    const auto use = [&] { return ht::linear(ht::autocast<ht::amp_bf16>(tape), x, model.fc.weight, model.fc.bias); };
    const std::size_t before = live();
    const auto first = use();
    const std::size_t result = live() - before;
    std::vector<decltype(use())> more;
    for (int i = 0; i < 5; ++i) more.push_back(use());
    CHECK(live() - before == 6 * result);  // of each use its result is left
    CHECK(result <= ht::block_alignment);
    // What is read are the copy's bits, not the master's.
    auto* const copy = const_cast<ht::bfloat16*>(model.fc.weight.values().data());
    for (int i = 0; i < 9; ++i) copy[i] = ht::bfloat16(static_cast<float>(i));
    CHECK(values(device, use().view()) == std::vector<double>{0, 3, 6});
    static_assert(
        std::is_same_v<decltype(ht::as_variable<ht::bfloat16>(tape, model.fc.weight)), ht::variable<ht::bfloat16, 2>>);
    CHECK(ht::as_variable<ht::bfloat16>(tape, model.fc.weight).view().data() == copy);
    CHECK(ht::as_variable(tape, model.fc.weight).view().data() == model.fc.weight.master().data());

    // Nothing that was read where no tape records is found again by one that does, in place of the weight.
    tape.clear();
    ht::inference eval{device};
    const auto seen = eval.constant(in.view(ht::shape<2>{1, 3}));
    ht::linear(ht::autocast<ht::amp_bf16>(eval), seen, model.fc.weight, model.fc.bias);
    support::gradient_sink sink(model.parameters());
    tape.backward(ht::sum<float>(tape, use()), sink);
    CHECK(sink.of(model.fc.weight) == std::vector<double>{1, 0, 0, 1, 0, 0, 1, 0, 0});
}

TEST_CASE("apply, linear and as_variable: gradients of parameters add up in the accumulator") {
    using region_checks::doubles;
    ht::cpu device{{.threads = 1}};
    const guarded<float> in(std::vector<float>{1, 2, -3, 4, -1, 5, 2, 2, -1});
    const doubles x = region_checks::as_doubles(in), w{1, -2, 3, 2, 0, -1, 4, 1, 1}, bias{1, -1, 2};
    region_checks::gated<ht::full_fp32> model(device);
    support::set(model.fc.weight, w);
    support::set(model.fc.bias, bias);
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = ht::sum(tape, model.output(tape, tape.constant(in.view(ht::shape<2>{3, 3}))));
    CHECK(static_cast<double>(loss.item()) == region_checks::sum_of_output(x, w, bias));
    tape.backward(loss, sink);
    // All numbers are small integers and halves, so that the gradients are exact.
    support::check_gradient([&](const doubles& at) { return region_checks::sum_of_output(x, at, bias); }, w,
                            sink.of(model.fc.weight));
    support::check_gradient([&](const doubles& at) { return region_checks::sum_of_output(x, w, at); }, bias,
                            sink.of(model.fc.bias));
}

}  // namespace
