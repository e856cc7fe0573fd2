// SPDX-License-Identifier: MIT
/// \file
/// Softmax on a tape: its gradient and its types (tests/kernel has the tests of its kernel).
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/softmax.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/softmax/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_softmax_tests {

namespace ht = halftone;
using ht::bfloat16;
using support::guarded;

TEST_CASE("softmax: rows sum to one, and the gradient of that sum is zero") {
    ht::cpu device{{.threads = 1}};
    support::random data(1);
    const ht::shape<3> shape{2, 3, 5};
    const guarded<float> x(data.normals<float>(shape.size()));
    ht::tape tape{device};
    const auto leaf = tape.leaf(x.view(shape));
    const auto y = ht::softmax(tape, leaf);
    const auto total = ht::sum(tape, y);
    // Six rows; each of their elements is off by fewer than 16 units in the last place, and is at most 1.
    CHECK(std::fabs(static_cast<double>(total.item()) - 6) <= 30 * 16 * ht::unit_roundoff<float>);
    tape.backward(total);
    for (ht::extent i = 0; i < shape.size(); ++i) {
        CHECK(std::fabs(static_cast<double>(tape.gradient(leaf).data()[i])) <= 16 * ht::unit_roundoff<float>);
    }
}

TEST_CASE("log_softmax: its gradient is the indicator less the probabilities, added to what is there") {
    ht::cpu device{{.threads = 1}};
    support::random data(2);
    const ht::shape<2> shape{1, 4};
    const guarded<float> x(data.normals<float>(4)), mask(std::vector<float>{0, 0, 1, 0});
    ht::tape tape{device};
    const auto leaf = tape.leaf(x.view(shape));
    const auto chosen =
        ht::sum(tape, ht::mul(tape, ht::log_softmax(tape, leaf, 2.0f), tape.constant(mask.view(shape))));
    const auto probabilities = ht::softmax(tape, tape.detach(leaf), 2.0f);
    tape.backward(ht::add(tape, chosen, ht::sum(tape, leaf)));
    for (ht::extent i = 0; i < 4; ++i) {
        const double want = 2.0 * (static_cast<double>(mask[i]) - static_cast<double>(probabilities.view()(0, i))) + 1;
        CHECK(std::fabs(static_cast<double>(tape.gradient(leaf)(0, i)) - want) <= 32 * ht::unit_roundoff<float>);
    }
}

TEST_CASE("softmax: types under autocast and on a bare tape") {
    using tape = ht::tape<ht::cpu>;
    using x = ht::variable<bfloat16, 2>;
    static_assert(
        std::is_same_v<decltype(ht::softmax(std::declval<tape&>(), std::declval<x>())), ht::variable<bfloat16, 2>>);
    static_assert(
        std::is_same_v<decltype(ht::softmax(std::declval<ht::region<ht::amp_bf16, tape>>(), std::declval<x>())),
                       ht::variable<float, 2>>);
    static_assert(
        std::is_same_v<decltype(ht::log_softmax(std::declval<ht::region<ht::full_fp32, tape>>(), std::declval<x>())),
                       ht::variable<float, 2>>);

    ht::cpu device{{.threads = 1}};
    const guarded<bfloat16> x_values(std::vector<bfloat16>(2, bfloat16(1)));
    ht::tape on{device};
    const auto leaf = on.leaf(x_values.view(ht::shape<2>{1, 2}));
    const auto y = ht::softmax(ht::autocast<ht::full_fp32>(on), leaf);
    CHECK(y.view()(0, 1) == 0.5f);
    on.backward(ht::sum(on, ht::mul(on, y, y)));
    CHECK(on.gradient(leaf)(0, 0) == 0);
}

}  // namespace autodiff_softmax_tests
