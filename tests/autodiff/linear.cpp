// SPDX-License-Identifier: MIT
/// \file
/// Linear layers on a tape. Everything here is sums of products of small integers, which are exact, so that values and
/// gradients are compared for equality.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/linear.hpp>
#include <halftone/kernel/column_sum/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>

#include "autodiff/weigh.hpp"
#include "support/each_set.hpp"
#include "support/gradient_sink.hpp"
#include "support/guarded.hpp"
#include "support/layers.hpp"
#include "support/random.hpp"

namespace autodiff_linear_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using doubles = std::vector<double>;
using support::guarded;
using support::matrix;

template <class P>
struct fixture {
    static constexpr int rows = 6, in = 5, out = 7;
    using T = typename P::output;
    using roles = ht::roles<typename P::compute, T, typename P::grad>;
    using storage = ht::storage_signature<P, ht::op::linear>;

    ht::cpu device;
    ht::store parameters{device.memory()};
    ht::parameter<storage, 2> weight = parameters.add<P, ht::op::linear>("weight", ht::shape<2>{out, in}, {});
    ht::parameter<storage, 1> bias = parameters.add<P, ht::op::linear>("bias", ht::shape<1>{out}, {});
    support::random data{1};
    std::vector<float> w = data.integers<float>(out * in, 3), b = data.integers<float>(out, 3);
    guarded<T> x{data.integers<T>(rows * in, 3)}, r{data.integers<T>(rows * out, 3)},
        dy{data.integers<T>(rows * out, 3)};

    explicit fixture(ht::isa set = ht::default_isa()) : device({.threads = 2, .instruction_set = set}) {
        parameters.commit();
        support::set(weight, w);
        support::set(bias, b);
    }
    ht::view<T, 3> input() const { return x.view(ht::shape<3>{2, 3, in}); }
    ht::view<T, 3> residual() const { return r.view(ht::shape<3>{2, 3, out}); }

    matrix<double> X() const { return {rows, in, x.data()}; }
    matrix<double> W() const { return {out, in, w.data()}; }
    matrix<double> DY() const { return {rows, out, dy.data()}; }
};

template <class P>
void values_and_gradients(ht::isa set) {
    fixture<P> f(set);
    ht::tape tape{f.device};
    const auto x = tape.leaf(f.input()), r = tape.leaf(f.residual());
    support::gradient_sink sink(f.parameters);

    const auto y = ht::linear<typename fixture<P>::roles>(tape, x, f.weight, f.bias, r);
    const matrix<double> want = plus(plus_row(product(f.X(), transposed(f.W())), matrix<double>(1, f.out, f.b.data())),
                                     matrix<double>(f.rows, f.out, f.r.data()));
    CHECK(support::doubles(y.view()) == want.values);
    CHECK(y.shape() == ht::shape<3>{2, 3, f.out});

    tape.backward(autodiff_test::weigh(tape, y, f.dy.view()), sink);
    CHECK(support::doubles(tape.gradient(x)) == product(f.DY(), f.W()).values);
    CHECK(support::doubles(tape.gradient(r)) == f.DY().values);
    CHECK(sink.of(f.weight) == product(transposed(f.DY()), f.X()).values);
    CHECK(sink.of(f.bias) == column_sums(f.DY()).values);

    // A second micro-batch adds; a second window starts from zero.
    const auto again = [&] {
        tape.backward(
            autodiff_test::weigh(tape, ht::linear<typename fixture<P>::roles>(tape, x, f.weight, f.bias), f.dy.view()),
            sink);
    };
    again();
    CHECK(sink.of(f.bias) == each(column_sums(f.DY()), [](double d) { return 2 * d; }).values);
    CHECK(sink.of(f.weight) == each(product(transposed(f.DY()), f.X()), [](double d) { return 2 * d; }).values);
    CHECK(support::doubles(tape.gradient(x)) == each(product(f.DY(), f.W()), [](double d) { return 2 * d; }).values);
    sink.close();
    again();
    CHECK(sink.of(f.bias) == column_sums(f.DY()).values);
}

TEST_CASE("linear: values and gradients, exact on small integers") {
    support::for_each_set([](ht::isa set) {
        values_and_gradients<ht::full_fp32>(set);
        values_and_gradients<ht::amp_bf16>(set);
    });
}

TEST_CASE("linear: without bias, without residual, with both") {
    fixture<ht::full_fp32> f;
    using roles = fixture<ht::full_fp32>::roles;
    ht::tape tape{f.device};
    const auto x = tape.constant(f.input()), r = tape.constant(f.residual());
    const auto plain = support::doubles(ht::linear<roles>(tape, x, f.weight, ht::absent{}).view());
    const auto with_bias = support::doubles(ht::linear<roles>(tape, x, f.weight, f.bias).view());
    const auto with_residual = support::doubles(ht::linear<roles>(tape, x, f.weight, ht::absent{}, r).view());
    const auto with_both = support::doubles(ht::linear<roles>(tape, x, f.weight, f.bias, r).view());
    for (std::size_t i = 0; i < plain.size(); ++i) {
        const double b = static_cast<double>(f.b[i % f.out]), add = static_cast<double>(f.r[static_cast<extent>(i)]);
        CHECK(with_bias[i] == plain[i] + b);
        CHECK(with_residual[i] == plain[i] + add);
        CHECK(with_both[i] == plain[i] + b + add);
    }
}

TEST_CASE("linear: one variable as input and as residual gets both gradients") {
    ht::cpu device{{.threads = 1}};
    ht::store parameters{device.memory()};
    const auto weight = parameters.add<ht::full_fp32, ht::op::linear>("weight", ht::shape<2>{3, 3}, {});
    parameters.commit();
    support::set(weight, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9});
    support::gradient_sink sink(parameters);
    const guarded<float> x(std::vector<float>{1, -1, 2}), dy(std::vector<float>{1, 0, -2});
    using roles = ht::roles<float, float, float>;
    ht::tape tape{device};
    const auto leaf = tape.leaf(x.view(ht::shape<2>{1, 3}));
    tape.backward(autodiff_test::weigh(tape, ht::linear<roles>(tape, leaf, weight, ht::absent{}, leaf), dy.view()),
                  sink);
    // dy + dy W
    CHECK(support::doubles(tape.gradient(leaf)) == doubles{1 + 1 - 14, 0 + 2 - 16, -2 + 3 - 18});
}

TEST_CASE("linear: frozen parameters have no gradient and save nothing; other gradients are unchanged") {
    using roles = fixture<ht::amp_bf16>::roles;
    for (const char* frozen : {"weight", "bias", "*"}) {
        CAPTURE(frozen);
        fixture<ht::amp_bf16> f;
        const doubles dw = product(transposed(f.DY()), f.X()).values, db = column_sums(f.DY()).values;
        f.parameters.freeze(frozen);
        support::gradient_sink sink(f.parameters);
        ht::tape tape{f.device};
        const auto x = tape.leaf(f.input());
        tape.backward(autodiff_test::weigh(tape, ht::linear<roles>(tape, x, f.weight, f.bias), f.dy.view()), sink);
        CHECK(support::doubles(tape.gradient(x)) == product(f.DY(), f.W()).values);
        if (!f.weight.is_frozen()) CHECK(sink.of(f.weight) == dw);
        if (!f.bias.is_frozen()) CHECK(sink.of(f.bias) == db);
    }

    // An input that only a frozen weight's gradient would read is not saved.
    fixture<ht::full_fp32> f;
    f.parameters.freeze("weight");
    ht::tape tape{f.device};
    const auto kept = [&](const auto& weight) {
        const auto before = tape.memory().live();
        auto doubled = ht::mul(tape, tape.leaf(f.input()), tape.constant(f.input()));
        const auto y = ht::linear<fixture<ht::full_fp32>::roles>(tape, doubled, weight, f.bias);
        doubled = {};
        const auto bytes = tape.memory().live() - before;
        tape.clear();
        return bytes;
    };
    fixture<ht::full_fp32> trained;
    CHECK(kept(trained.weight) > kept(f.weight));
}

TEST_CASE("linear: gradients of frozen layers need no accumulator") {
    fixture<ht::full_fp32> f;
    f.parameters.freeze("*");
    ht::tape tape{f.device};
    const auto x = tape.leaf(f.input());
    tape.backward(
        autodiff_test::weigh(tape, ht::linear<fixture<ht::full_fp32>::roles>(tape, x, f.weight, f.bias), f.dy.view()));
    CHECK(support::doubles(tape.gradient(x)) == product(f.DY(), f.W()).values);
}

TEST_CASE("linear: frozen 16-bit copies serve a backward pass in fp32 too") {
    // The backward products run in float, and read the weight as the forward product did: rounded to bfloat16.
    struct policy : ht::amp_bf16 {
        using grad = float;
        using output = float;
    };
    fixture<policy> f;
    f.w[0] = 1.00390625f;  // rounds to 1
    support::set(f.weight, f.w);
    f.parameters.freeze("weight");
    ht::tape tape{f.device};
    support::gradient_sink sink(f.parameters);
    const auto x = tape.leaf(f.input());
    tape.backward(
        autodiff_test::weigh(tape, ht::linear<fixture<policy>::roles>(tape, x, f.weight, f.bias), f.dy.view()), sink);
    f.w[0] = 1;
    CHECK(support::doubles(tape.gradient(x)) == product(f.DY(), f.W()).values);
}

TEST_CASE("linear: a batch without rows gives zero gradients") {
    fixture<ht::full_fp32> f;
    ht::tape tape{f.device};
    support::gradient_sink sink(f.parameters);
    const auto x = tape.leaf(ht::view<float, 2>(f.x.data(), {0, f.in}));
    tape.backward(ht::sum(tape, ht::linear<fixture<ht::full_fp32>::roles>(tape, x, f.weight, f.bias)), sink);
    CHECK(sink.of(f.weight) == doubles(static_cast<std::size_t>(f.out * f.in)));
    CHECK(sink.of(f.bias) == doubles(static_cast<std::size_t>(f.out)));
}

TEST_CASE("linear: shapes that do not match") {
    fixture<ht::full_fp32> f;
    using roles = fixture<ht::full_fp32>::roles;
    ht::tape tape{f.device};
    const auto x = tape.constant(ht::view<float, 2>(f.x.data(), {5, 6}));
    CHECK_THROWS_WITH_AS(ht::linear<roles>(tape, x, f.weight, f.bias),
                         "matmul: the inner extents differ: a is (5, 6), b is (5, 7); b needs 6 rows", ht::shape_error);
    const auto y = tape.constant(ht::view<float, 2>(f.x.data(), {6, 5})),
               r = tape.constant(ht::view<float, 2>(f.x.data(), {3, 7}));
    CHECK_THROWS_WITH_AS(ht::linear<roles>(tape, y, f.weight, f.bias, r),
                         "matmul: an epilogue's operand is (3, 7), the product (6, 7)", ht::shape_error);
}

}  // namespace autodiff_linear_tests
