// SPDX-License-Identifier: MIT
/// \file
/// Targets of -100 on a double-backward tape: the logits of their rows, even NaNs and infinities, change no bit of other rows'
/// first and second derivatives; their own derivatives are 0.
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/autodiff/op/loss.hpp>
#include <halftone/kernel/column_sum/cpu.hpp>
#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/softmax/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

namespace autodiff_twice_ignored_tests {

namespace ht = halftone;
using ht::extent;

constexpr extent rows = 3, classes = 4, ignored = 1;
const std::vector<std::int32_t> targets = {2, -100, 0};

/// Of the loss, and of the squares of that gradient.
struct derivatives {
    std::vector<float> first, second;
};

derivatives derivatives_of(ht::cpu& device, std::vector<float> logits) {
    derivatives d;
    ht::tape tape{device, ht::double_backward};
    const auto x = tape.leaf(ht::view<float, 2>(logits.data(), {rows, classes}));
    const auto loss = ht::cross_entropy(tape, x, ht::const_view<std::int32_t, 1>(targets.data(), {rows}));
    const auto gradients = tape.gradients(loss, x);
    const auto slope = gradients[0];
    d.first.assign(slope.view().data(), slope.view().data() + rows * classes);
    tape.backward(ht::sum_of_squares(tape, gradients));
    const auto second = tape.gradient(x);
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < classes; ++j) d.second.push_back(second(i, j));
    }
    return d;
}

TEST_CASE("double backward: logits of ignored rows have no effect and no gradient") {
    ht::cpu device{{.threads = 1}};
    const std::vector<float> clean = {0.5f, -1.0f, 2.0f, 0.25f, 0.0f, 0.0f, 0.0f, 0.0f, -0.75f, 1.5f, 0.125f, 1.0f};
    const derivatives wanted = derivatives_of(device, clean);
    for (extent j = 0; j < classes; ++j) {
        CHECK(wanted.first[ignored * classes + j] == 0);
        CHECK(wanted.second[ignored * classes + j] == 0);
        CHECK(wanted.second[j] != 0);
    }
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const float poison : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
        CAPTURE(poison);
        for (const bool all : {false, true}) {
            std::vector<float> logits = clean;
            for (extent j = 0; j < (all ? classes : 1); ++j) logits[ignored * classes + j] = poison;
            const derivatives got = derivatives_of(device, logits);
            CHECK(got.first == wanted.first);
            CHECK(got.second == wanted.second);
        }
    }
}

}  // namespace autodiff_twice_ignored_tests
