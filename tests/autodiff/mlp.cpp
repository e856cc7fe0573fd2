// SPDX-License-Identifier: MIT
/// \file
/// The two-layer perceptron on a tape: within bounds by running error analysis, in every set of types, frozen or not.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/linear.hpp>
#include <halftone/kernel/column_sum/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>

#include "autodiff/compare.hpp"
#include "autodiff/weigh.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_mlp_tests {

namespace ht = halftone;
using support::guarded;
using support::matrix;
using support::tracked;
using doubles = std::vector<double>;

/// Hidden activations and what is kept of them are of type T.
template <class T, class Number>
struct mlp_definition {
    matrix<Number> y, dx, dup, dup_bias, ddown, ddown_bias;

    template <class Store>
    mlp_definition(const matrix<Number>& x, const matrix<Number>& up, const matrix<Number>& up_bias,
                   const matrix<Number>& down, const matrix<Number>& down_bias, const matrix<Number>& residual,
                   const matrix<Number>& dy, const Store& store) {
        const matrix<Number> pre = plus_row(product(x, transposed(up)), up_bias);
        const matrix<Number> hidden = each(each(pre, [](const Number&v) { return support::gelu<T>(v); }), store),
                             kept = each(pre, store);
        y = plus(plus_row(product(hidden, transposed(down)), down_bias), residual);
        matrix<Number> dpre = product(dy, down);
        for (std::size_t i = 0; i < dpre.values.size(); ++i)
            dpre.values[i] = store(dpre.values[i] * support::gelu_derivative<T>(kept.values[i]));
        dx = product(dpre, up);
        dup = product(transposed(dpre), x);
        dup_bias = column_sums(dpre);
        ddown = product(transposed(dy), hidden);
        ddown_bias = column_sums(dy);
    }
};

template <class P>
struct fixture {
    static constexpr int rows = 9, width = 5, hidden = 11;
    using T = typename P::output;
    using roles = ht::roles<typename P::compute, T, typename P::grad>;
    using storage = ht::storage_signature<P, ht::op::linear>;
    using C = typename storage::compute;

    ht::cpu device;
    ht::store parameters{device.memory()};
    ht::parameter<storage, 2> up = parameters.add<P, ht::op::linear>("up.weight", ht::shape<2>{hidden, width}, {});
    ht::parameter<storage, 1> up_bias = parameters.add<P, ht::op::linear>("up.bias", ht::shape<1>{hidden}, {});
    ht::parameter<storage, 2> down = parameters.add<P, ht::op::linear>("down.weight", ht::shape<2>{width, hidden}, {});
    ht::parameter<storage, 1> down_bias = parameters.add<P, ht::op::linear>("down.bias", ht::shape<1>{width}, {});
    support::random data{1};
    // Values that the compute type holds, so that copies equal masters.
    std::vector<C> a = data.normals<C>(hidden * width, 0.5), b = data.normals<C>(hidden, 0.5),
                   c = data.normals<C>(width * hidden, 0.5), d = data.normals<C>(width);
    guarded<T> x{data.normals<T>(rows * width)}, residual{data.normals<T>(rows * width)},
        dy{data.normals<T>(rows * width)};

    explicit fixture(ht::isa set = ht::default_isa(), const char* frozen = nullptr)
        : device({.threads = 2, .instruction_set = set}) {
        parameters.commit();
        support::set(up, a), support::set(up_bias, b), support::set(down, c), support::set(down_bias, d);
        if (frozen != nullptr) parameters.freeze(frozen);
    }
    template <class Context, class X, class R>
    auto operator()(Context& ctx, const X& at, const R& add) const {
        return ht::mlp<roles>(ctx, at, up, up_bias, down, down_bias, add);
    }
    ht::view<T, 2> input() const { return x.view(ht::shape<2>{rows, width}); }
    ht::view<T, 2> added() const { return residual.view(ht::shape<2>{rows, width}); }
    mlp_definition<T, tracked> definition() const {
        using m = matrix<tracked>;
        return {m(rows, width, x.data()),   m(hidden, width, a.data()), m(1, hidden, b.data()),
                m(width, hidden, c.data()), m(1, width, d.data()),      m(rows, width, residual.data()),
                m(rows, width, dy.data()),  support::stored_as<T>{}};
    }
};

template <class P>
void within_bounds(ht::isa set) {
    using T = typename P::output;
    fixture<P> f(set);
    ht::tape tape{f.device};
    support::gradient_sink sink(f.parameters);
    const auto x = tape.leaf(f.input()), residual = tape.leaf(f.added());
    const auto y = f(tape, x, residual);
    const auto want = f.definition();
    autodiff_test::check_within(y.view(), want.y);
    tape.backward(autodiff_test::weigh(tape, y, f.dy.view()), sink);
    autodiff_test::check_within(tape.gradient(x), want.dx);
    CHECK(support::doubles(tape.gradient(residual)) == support::doubles(f.dy.view()));
    autodiff_test::check_within<float>(sink.of(f.up), want.dup);
    autodiff_test::check_within<float>(sink.of(f.up_bias), want.dup_bias);
    autodiff_test::check_within<float>(sink.of(f.down), want.ddown);
    autodiff_test::check_within<float>(sink.of(f.down_bias), want.ddown_bias);

    // Without a tape, the same values.
    ht::inference eval{f.device};
    CHECK(support::doubles(f(eval, eval.constant(f.input()), eval.constant(f.added())).view()) ==
          support::doubles(y.view()));
    static_assert(std::is_same_v<typename decltype(y.view())::value_type, T>);
}

TEST_CASE("mlp: values and gradients within their bounds") {
    support::for_each_set([](ht::isa set) {
        within_bounds<ht::full_fp32>(set);
        within_bounds<ht::amp_bf16>(set);
        within_bounds<ht::amp_fp16>(set);
    });
}

TEST_CASE("mlp: the definition's gradients are central differences") {
    constexpr int rows = 2, width = 3, hidden = 4;
    support::random data(3);
    const doubles x = data.normals<double>(rows * width), up = data.normals<double>(hidden * width),
                  b = data.normals<double>(hidden), down = data.normals<double>(width * hidden);
    const doubles c = data.normals<double>(width), r = data.normals<double>(rows * width),
                  dy = data.normals<double>(rows * width);
    using m = matrix<double>;
    const auto definition = [&](const doubles& at_x, const doubles& at_up, const doubles& at_b,
                                const doubles& at_down) {
        return mlp_definition<float, double>(m(rows, width, at_x.data()), m(hidden, width, at_up.data()),
                                             m(1, hidden, at_b.data()), m(width, hidden, at_down.data()),
                                             m(1, width, c.data()), m(rows, width, r.data()), m(rows, width, dy.data()),
                                             support::stored_exactly{});
    };
    const auto loss = [&](const mlp_definition<float, double>& d) {
        double sum = 0;
        for (std::size_t i = 0; i < dy.size(); ++i) sum += d.y.values[i] * dy[i];
        return sum;
    };
    const auto d = definition(x, up, b, down);
    support::check_gradient([&](const doubles& at) { return loss(definition(at, up, b, down)); }, x, d.dx.values);
    support::check_gradient([&](const doubles& at) { return loss(definition(x, at, b, down)); }, up, d.dup.values);
    support::check_gradient([&](const doubles& at) { return loss(definition(x, up, at, down)); }, b, d.dup_bias.values);
    support::check_gradient([&](const doubles& at) { return loss(definition(x, up, b, at)); }, down, d.ddown.values);
}

TEST_CASE("mlp: frozen parameters have no gradient and save nothing; other gradients have the same bits") {
    using P = ht::amp_bf16;
    const auto gradients = [](const char* frozen, std::size_t& bytes) {
        fixture<P> f(ht::default_isa(), frozen);
        ht::tape tape{f.device};
        support::gradient_sink sink(f.parameters);
        const auto before = tape.memory().live();
        auto x = ht::mul(tape, tape.leaf(f.input()), tape.constant(f.added()));
        const auto y = f(tape, x, tape.constant(f.added()));
        x = {};  // from here on the record alone keeps it
        bytes = tape.memory().live() - before;
        tape.backward(autodiff_test::weigh(tape, y, f.dy.view()), sink);
        std::vector<doubles> all;
        const auto put = [&](const auto& p) { all.push_back(p.is_frozen() ? doubles{} : sink.of(p)); };
        put(f.up), put(f.up_bias), put(f.down), put(f.down_bias);
        return all;
    };
    std::size_t all_bytes = 0, bytes = 0;
    const std::vector<doubles> all = gradients(nullptr, all_bytes);
    for (const char* frozen : {"up", "down", "up.weight", "down.weight", "*.weight", "*.bias", "*"}) {
        CAPTURE(frozen);
        const std::vector<doubles> some = gradients(frozen, bytes);
        for (std::size_t i = 0; i < some.size(); ++i) {
            if (!some[i].empty()) CHECK(some[i] == all[i]);
        }
    }
    // Without down's gradient the hidden activations are released, without up's the input, without any all but y.
    for (const char* frozen : {"down.weight", "up.weight", "*"}) {
        CAPTURE(frozen);
        gradients(frozen, bytes);
        CHECK(bytes < all_bytes);
    }
    // Without parameters to train before it, the activation's input is released as well.
    const auto of_constants = [](const char* frozen) {
        fixture<P> f(ht::default_isa(), frozen);
        ht::tape tape{f.device};
        const auto y = f(tape, tape.constant(f.input()), tape.constant(f.added()));
        return tape.memory().live();
    };
    CHECK(of_constants("up") < of_constants("up.weight"));
}

}  // namespace autodiff_mlp_tests
