// SPDX-License-Identifier: MIT
/// \file
/// Tests of dropout on a tape, for every device.
///
///     dropout_test::same_mask_backward(device);
#pragma once

#include <limits>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "support/random.hpp"

namespace dropout_test {

namespace ht = halftone;

template <class T, int Rank>
std::vector<float> values(const ht::variable<T, Rank>& v) {
    std::vector<T> found(static_cast<std::size_t>(v.size()));
    v.graph().memory().read(found.data(), v.view().data(), found.size() * sizeof(T));
    return {found.begin(), found.end()};
}
template <class Device, class T, int Rank>
std::vector<float> gradients(const ht::tape<Device>& tape, const ht::variable<T, Rank>& leaf) {
    std::vector<T> found(static_cast<std::size_t>(leaf.size()));
    leaf.graph().memory().read(found.data(), tape.gradient(leaf).data(), found.size() * sizeof(T));
    return {found.begin(), found.end()};
}

/// Small integers, none of them zero, in the device's memory.
template <class T, class Device, int Rank>
ht::tensor<T, Rank> numbers(Device& device, const ht::shape<Rank>& shape, int first) {
    std::vector<T> all(static_cast<std::size_t>(shape.size()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = T(static_cast<float>(1 + (first + static_cast<int>(i)) % 7));
    return ht::to_device(device, ht::const_view<T, Rank>(all.data(), shape));
}

/// What is dropped has no gradient, what is kept the scale; the residual all of it. Each draw and each pass has a mask
/// of its own.
template <class X, class Y, class Device>
void same_mask_backward(Device& device) {
    const ht::shape<2> shape{9, 15};
    const auto x = numbers<X>(device, shape, 0), other = numbers<X>(device, shape, 2);
    const auto residual = numbers<Y>(device, shape, 1);
    ht::tape tape{device};
    tape.seed(11);
    std::vector<std::vector<float>> masks;
    for (std::uint32_t pass = 0; pass < 2; ++pass) {
        const auto a = tape.leaf(x.const_view()), b = tape.leaf(other.const_view());
        const auto r = tape.leaf(residual.const_view());
        const auto y = ht::dropout(tape, a, {.p = 0.5f});
        const auto z = ht::dropout(tape, b, {.p = 0.75f}, r);
        static_assert(std::is_same_v<decltype(y), const ht::variable<X, 2>> &&
                      std::is_same_v<decltype(z), const ht::variable<Y, 2>>);
        const auto y_values = values(y), z_values = values(z), r_values = values(r), a_values = values(a),
                   b_values = values(b);
        // a's gradient arrives twice: by y, and by itself.
        tape.backward(ht::add(tape, ht::add(tape, ht::sum(tape, y), ht::sum(tape, z)), ht::sum(tape, a)));
        const auto da = gradients(tape, a), db = gradients(tape, b), dr = gradients(tape, r);
        int wrong = 0, dropped = 0;
        std::vector<float> y_mask, z_mask;
        for (std::size_t i = 0; i < y_values.size(); ++i) {
            y_mask.push_back(y_values[i] != 0 ? 1.0f : 0.0f);
            z_mask.push_back(z_values[i] != r_values[i] ? 1.0f : 0.0f);
            wrong +=
                y_values[i] == 2 * a_values[i] * y_mask[i] && z_values[i] == r_values[i] + 4 * b_values[i] * z_mask[i]
                    ? 0
                    : 1;
            wrong += da[i] == 1 + 2 * y_mask[i] && db[i] == 4 * z_mask[i] && dr[i] == 1 ? 0 : 1;
            dropped += y_mask[i] == 0 ? 1 : 0;
        }
        CHECK(wrong == 0);
        CHECK(dropped > 0);
        CHECK(dropped < static_cast<int>(y_values.size()));
        masks.push_back(y_mask);
        masks.push_back(z_mask);
    }
    for (std::size_t i = 0; i < masks.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) CHECK(masks[i] != masks[j]);
    }
}

/// The numbers of a pass again: by its state, by its seed, within the pass; and others after a pass that came to
/// nothing.
template <class Device>
void replays(Device& device) {
    const auto x = numbers<float>(device, ht::shape<1>{200}, 0);
    ht::tape tape{device};
    const auto pass = [&] {
        const auto leaf = tape.leaf(x.const_view());
        const auto y = ht::dropout(tape, leaf, {.p = 0.3f}), z = ht::dropout(tape, leaf, {.p = 0.3f});
        auto all = values(y);
        for (const float v : values(z)) all.push_back(v);
        tape.backward(ht::sum(tape, ht::add(tape, y, z)));
        return all;
    };
    CHECK(tape.random_state() == ht::random_state{});
    const auto first = pass();
    const ht::random_state then = tape.random_state();
    CHECK(then == ht::random_state{0, 1});
    const auto second = pass(), third = pass();
    CHECK(first != second);
    tape.restore(then);
    CHECK(pass() == second);
    CHECK(pass() == third);
    tape.seed(0);
    CHECK(pass() == first);
    tape.seed(1);
    CHECK(tape.random_state() == ht::random_state{1, 0});
    CHECK(pass() != first);

    ht::tape other{device};
    other.restore({0, 2});
    const auto leaf = other.leaf(x.const_view());
    const auto y = values(ht::dropout(other, leaf, {.p = 0.3f}));
    CHECK(std::equal(y.begin(), y.end(), third.begin()));
    const auto drawn = other.graph().random.drawn(other.graph().pass());
    const auto z = values(ht::dropout(other, leaf, {.p = 0.3f}));
    CHECK(y != z);
    other.graph().random.go_back(drawn);
    CHECK(values(ht::dropout(other, leaf, {.p = 0.3f})) == z);
    other.clear();
    CHECK(values(ht::dropout(other, leaf, {.p = 0.3f})) != y);
}

/// Between a forward pass and its backward pass the numbers stay what they are.
template <class Device>
void keeps_its_numbers(Device& device) {
    const auto x = numbers<float>(device, ht::shape<1>{100}, 0);
    ht::tape tape{device};
    tape.seed(3);
    const ht::random_state start = tape.random_state();
    const auto leaf = tape.leaf(x.const_view());
    const auto y = ht::dropout(tape, ht::mul(tape, leaf, 1), {.p = 0.5f});
    const char* const refusal =
        "tape: seed() or restore() between a forward pass and its backward pass, which draws the same random numbers "
        "again; call it before the forward pass, or after backward() or clear()";
    CHECK_THROWS_WITH_AS(tape.seed(4), refusal, ht::state_error);
    CHECK_THROWS_WITH_AS(tape.restore(start), refusal, ht::state_error);
    const ht::random_state next = tape.random_state();
    tape.restore(next);
    const auto z = ht::dropout(tape, leaf, {.p = 0.5f});
    CHECK(tape.random_state() == next);
    const auto y_values = values(y), z_values = values(z);
    tape.backward(ht::add(tape, ht::sum(tape, y), ht::sum(tape, z)));
    const auto dx = gradients(tape, leaf), at = values(leaf);
    int wrong = 0;
    for (std::size_t i = 0; i < at.size(); ++i) wrong += dx[i] * at[i] == y_values[i] + z_values[i] ? 0 : 1;
    CHECK(wrong == 0);
    CHECK(y_values != z_values);
    // After the pass, and after one that was dropped.
    tape.restore(start);
    CHECK(values(ht::dropout(tape, ht::mul(tape, leaf, 1), {.p = 0.5f})) == y_values);
    tape.clear();
    tape.seed(3);
    CHECK(tape.random_state() == start);
}

/// In inference and with p = 0 the input itself; p = 1; no probability.
template <class Device>
void ends_of_the_range(Device& device) {
    const auto x = numbers<float>(device, ht::shape<1>{50}, 0), residual = numbers<float>(device, ht::shape<1>{50}, 3);
    ht::inference inference{device};
    ht::tape tape{device};
    {
        const auto v = inference.constant(x.const_view());
        CHECK(ht::dropout(inference, v, {.p = 0.9f}).view().data() == v.view().data());
        const auto sum = values(ht::dropout(inference, v, {.p = 0.9f}, inference.constant(residual.const_view())));
        const auto expected = values(ht::add(inference, v, inference.constant(residual.const_view())));
        CHECK(sum == expected);
    }
    const auto leaf = tape.leaf(x.const_view());
    CHECK(ht::dropout(tape, leaf, {.p = 0}).view().data() == leaf.view().data());
    const auto nothing = ht::dropout(tape, leaf, {.p = 1});
    CHECK(values(nothing) == std::vector<float>(50, 0.0f));
    tape.backward(ht::sum(tape, nothing));
    CHECK(gradients(tape, leaf) == std::vector<float>(50, 0.0f));
    for (const float p : {-0.1f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
        CHECK_THROWS_AS(ht::dropout(tape, leaf, {.p = p}), ht::argument_error);
        CHECK_THROWS_AS(ht::dropout(inference, leaf, {.p = p}, leaf), ht::argument_error);
    }
    CHECK_THROWS_WITH_AS(ht::dropout(tape, leaf, {.p = 1.5f}), "dropout: p is 1.5; expected 0 to 1",
                         ht::argument_error);
    const auto longer = numbers<float>(device, ht::shape<1>{51}, 0);
    CHECK_THROWS_WITH_AS(ht::dropout(tape, leaf, {.p = 0.5f}, tape.leaf(longer.const_view())),
                         "dropout: the residual is (51); expected (50)", ht::shape_error);
    tape.clear();
}

}  // namespace dropout_test
