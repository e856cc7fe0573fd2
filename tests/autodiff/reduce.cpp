// SPDX-License-Identifier: MIT
/// \file
/// Sums, means and squared errors on a tape: values, gradients, types.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>
#include <halftone/kernel/sum/reference.hpp>

#include "support/bounds.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_reduce_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::float16;
using support::guarded;
using doubles = std::vector<double>;

template <class T>
doubles to_doubles(const guarded<T>& values) {
    doubles all(static_cast<std::size_t>(values.size()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(values[static_cast<std::int64_t>(i)]);
    return all;
}

constexpr auto squared_error = [](auto x, auto y) { return ht::square(x - y); };

/// The definition's value, and by hand its gradient in the prediction.
double mean_squared_error(const doubles& x, const doubles& t) {
    const auto n = static_cast<ht::extent>(x.size());
    double value = 0;
    ht::reference::sum(
        ht::trace<2>(squared_error),
        ht::make_pack(ht::const_view<double, 1>(x.data(), {n}), ht::const_view<double, 1>(t.data(), {n})),
        1.0 / static_cast<double>(n), ht::view<double, 0>(&value, {}));
    return value;
}
doubles mean_squared_error_gradient(const doubles& x, const doubles& t) {
    doubles gradient;
    for (std::size_t i = 0; i < x.size(); ++i) gradient.push_back(2 * (x[i] - t[i]) / static_cast<double>(x.size()));
    return gradient;
}

TEST_CASE("mean_squared_error: the definition's gradient is its central differences") {
    support::random data(1);
    const doubles x = data.normals<double>(7), t = data.normals<double>(7);
    support::check_gradient([&](const doubles& at) { return mean_squared_error(at, t); }, x,
                            mean_squared_error_gradient(x, t));
}

template <class X, class T>
void within_bounds(ht::isa set, const ht::shape<2>& shape) {
    ht::cpu device{{.threads = 2, .instruction_set = set}};
    support::random data(static_cast<std::uint64_t>(shape.size()));
    const guarded<X> x(data.normals<X>(shape.size()));
    const guarded<T> t(data.normals<T>(shape.size()));
    ht::tape tape{device};
    const auto leaf = tape.leaf(x.view(shape));
    const auto target = tape.leaf(t.view(shape));
    const auto loss = ht::mean_squared_error(tape, leaf, target);
    const doubles in = to_doubles(x), wanted_at = to_doubles(t);
    const double want = mean_squared_error(in, wanted_at);
    const double depth = static_cast<double>(ht::kernel::sum_depth(shape.size()) + 3);
    CHECK(std::fabs(static_cast<double>(loss.item()) - want) <=
          support::rounded<float>(want, support::gamma(depth) * want));

    tape.backward(loss * 64);
    const auto dx = tape.gradient(leaf);
    const auto dt = tape.gradient(target);
    const doubles gradient = mean_squared_error_gradient(in, wanted_at);
    support::comparison c, of_target;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        // The factor, its product with the loss's gradient, the difference, twice it, the product: five roundings.
        const double g = 64 * gradient[i], error = support::gamma(5) * std::fabs(g);
        c.expect(static_cast<double>(dx.data()[i]), g, support::rounded<X>(g, error));
        of_target.expect(static_cast<double>(dt.data()[i]), -g, support::rounded<T>(g, error));
    }
    CHECK_WITHIN(c);
    CHECK_WITHIN(of_target);
}

TEST_CASE("mean_squared_error: value and gradients within their bounds") {
    support::for_each_set([](ht::isa set) {
        within_bounds<float, float>(set, {1, 1});
        within_bounds<float, float>(set, {5, 67});
        within_bounds<bfloat16, float>(set, {16, 33});
        within_bounds<float16, float16>(set, {3, 129});
    });
}

TEST_CASE("sum and mean: exact on small integers, and so are their gradients") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        support::random data(3);
        const ht::shape<3> shape{4, 8, 16};
        const guarded<bfloat16> x(data.integers<bfloat16>(shape.size(), 3));
        double total = 0;
        for (const double v : to_doubles(x)) total += v;
        ht::tape tape{device};
        const auto leaf = tape.leaf(x.view(shape));
        const auto region = ht::autocast<ht::amp_bf16>(tape);
        const auto all = ht::sum(region, leaf);
        CHECK(static_cast<double>(all.item()) == total);
        const auto mean = ht::mean(region, leaf);
        CHECK(mean.item().bits() == bfloat16(total / 512).bits());

        tape.backward(all * 3);
        for (ht::extent i = 0; i < shape.size(); ++i) REQUIRE(tape.gradient(leaf).data()[i] == 3.0f);
    });
}

TEST_CASE("sum and mean: an input that is used twice has the sum of both gradients") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(std::vector<float>{1, 2, 3, 4});
    ht::tape tape{device};
    const auto leaf = tape.leaf(x.view());
    tape.backward(ht::add(tape, ht::sum(tape, leaf), ht::mean(tape, leaf)));
    for (int i = 0; i < 4; ++i) CHECK(tape.gradient(leaf)(i) == 1.25f);

    const auto both = tape.leaf(x.view());
    tape.backward(ht::mean_squared_error(tape, both, both));
    for (int i = 0; i < 4; ++i) CHECK(tape.gradient(both)(i) == 0);
}

TEST_CASE("sum, mean, mean_squared_error: types under autocast and on a bare tape") {
    using tape = ht::tape<ht::cpu>;
    using fp16_region = ht::region<ht::amp_fp16, tape>;
    using x = ht::variable<float16, 2>;
    using y = ht::variable<float, 2>;
    static_assert(
        std::is_same_v<decltype(ht::sum(std::declval<tape&>(), std::declval<x>())), ht::variable<float16, 0>>);
    static_assert(
        std::is_same_v<decltype(ht::sum(std::declval<fp16_region>(), std::declval<x>())), ht::variable<float, 0>>);
    static_assert(
        std::is_same_v<decltype(ht::mean(std::declval<fp16_region>(), std::declval<x>())), ht::variable<float16, 0>>);
    static_assert(
        std::is_same_v<decltype(ht::mean_squared_error(std::declval<tape&>(), std::declval<x>(), std::declval<x>())),
                       ht::variable<float, 0>>);
    static_assert(
        std::is_same_v<decltype(ht::mean_squared_error(std::declval<tape&>(), std::declval<x>(), std::declval<y>())),
                       ht::variable<float, 0>>);
}

TEST_CASE("sum: keeps nothing that its gradient does not read; an inference context keeps nothing at all") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(std::vector<float>(4096, 1.0f));
    ht::tape tape{device};
    const auto leaf = tape.leaf(x.view());
    const auto activation_bytes = [&](auto reduce) {
        const auto before = tape.memory().live();
        const auto y = reduce(ht::mul(tape, leaf, leaf));
        return tape.memory().live() - before;
    };
    CHECK(activation_bytes([&](const auto& v) { return ht::sum(tape, v); }) < 4096 * sizeof(float));
    CHECK(activation_bytes([&](const auto& v) { return ht::mean_squared_error(tape, v, leaf); }) >=
          4096 * sizeof(float));

    ht::inference eval{device};
    const auto mean = ht::mean(eval, eval.constant(x.view()));
    CHECK(mean.item() == 1);
    CHECK(eval.graph().records() == 0);
}

TEST_CASE("mean_squared_error: wrong shapes") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(6);
    ht::tape tape{device};
    CHECK_THROWS_WITH_AS(
        ht::mean_squared_error(tape, tape.leaf(x.view(ht::shape<2>{2, 3})), x.view(ht::shape<2>{3, 2})),
        "mean_squared_error: the prediction is (2, 3), the target (3, 2)", ht::shape_error);
}

}  // namespace autodiff_reduce_tests
