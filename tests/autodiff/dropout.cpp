// SPDX-License-Identifier: MIT
/// \file
/// Dropout on a tape: its gradient, the numbers that it draws, and its types (tests/kernel has the tests of its kernel).
#include <halftone/kernel.hpp>
#include <halftone/kernel/dropout/cpu.hpp>

#include "autodiff/dropout_checks.hpp"

namespace autodiff_dropout_tests {

namespace ht = halftone;

TEST_CASE("dropout: the backward pass uses the forward pass's mask") {
    ht::cpu device{{.threads = 1}};
    dropout_test::same_mask_backward<float, float>(device);
    dropout_test::same_mask_backward<ht::bfloat16, float>(device);
}

TEST_CASE("dropout: the saved state repeats a step") {
    ht::cpu device{{.threads = 1}};
    dropout_test::replays(device);
}

TEST_CASE("dropout: seed and state cannot be set between a forward pass and its backward pass") {
    ht::cpu device{{.threads = 1}};
    dropout_test::keeps_its_numbers(device);
}

TEST_CASE("dropout: in inference, and with probabilities of 0 and 1") {
    ht::cpu device{{.threads = 1}};
    dropout_test::ends_of_the_range(device);
}

TEST_CASE("dropout: keeps its input's type in any region") {
    using tape = ht::tape<ht::cpu>;
    using x = ht::variable<ht::bfloat16, 2>;
    static_assert(
        std::is_same_v<decltype(ht::dropout(std::declval<ht::region<ht::full_fp32, tape>>(), std::declval<x>(), {})),
                       x>);
    static_assert(std::is_same_v<decltype(ht::dropout(std::declval<ht::region<ht::amp_fp16, tape>>(), std::declval<x>(),
                                                      {}, std::declval<ht::variable<float, 2>>())),
                                 ht::variable<float, 2>>);
}

TEST_CASE("dropout: differentiated twice") {
    // s = sum of m x², whose gradient g = 2 m x; and the gradient of g's squares is 8 m² x.
    ht::cpu device{{.threads = 1}};
    const auto x = dropout_test::numbers<float>(device, ht::shape<1>{64}, 0);
    ht::tape tape{device, ht::double_backward};
    const auto leaf = tape.leaf(x.const_view());
    const auto y = ht::dropout(tape, ht::mul(tape, leaf, leaf), {.p = 0.5f});
    const auto kept = dropout_test::values(y);
    const auto g = tape.gradients(ht::sum(tape, y), leaf).of(leaf);
    const auto first = dropout_test::values(g), at = dropout_test::values(leaf);
    tape.backward(ht::sum(tape, ht::mul(tape, g, g)));
    const auto second = dropout_test::gradients(tape, leaf);
    int wrong = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
        const float m = kept[i] != 0 ? 2.0f : 0.0f;
        wrong += first[i] == 2 * m * at[i] && second[i] == 8 * m * m * at[i] ? 0 : 1;
    }
    CHECK(wrong == 0);
}

}  // namespace autodiff_dropout_tests
