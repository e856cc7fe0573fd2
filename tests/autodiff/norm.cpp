// SPDX-License-Identifier: MIT
/// \file
/// Normalising layers on a tape: within bounds by running error analysis, frozen, shared, used twice.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/norm.hpp>
#include <halftone/kernel/norm/cpu.hpp>
#include <halftone/kernel/norm/reference.hpp>

#include "autodiff/compare.hpp"
#include "autodiff/weigh.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_norm_tests {

namespace ht = halftone;
using support::guarded;
using support::layer_norm_of;
using support::matrix;
using support::rms_norm_of;
using support::tracked;
using doubles = std::vector<double>;

template <class P>
struct fixture {
    static constexpr int rows = 7, width = 19;
    using T = typename P::output;
    using roles = ht::roles<float, T, typename P::grad>;
    using storage = ht::storage_signature<P, ht::op::layer_norm>;

    ht::cpu device;
    ht::store parameters{device.memory()};
    ht::parameter<storage, 1> gain = parameters.add<P, ht::op::layer_norm>("gain", ht::shape<1>{width}, {});
    ht::parameter<storage, 1> bias = parameters.add<P, ht::op::layer_norm>("bias", ht::shape<1>{width}, {});
    support::random data{1};
    std::vector<float> g = data.normals<float>(width, 0.5, 1), b = data.normals<float>(width);
    guarded<T> x{data.normals<T>(rows * width, 1, 0.5)}, dy{data.normals<T>(rows * width)};

    explicit fixture(ht::isa set = ht::default_isa()) : device({.threads = 2, .instruction_set = set}) {
        parameters.commit();
        support::set(gain, g), support::set(bias, b);
    }
    ht::view<T, 2> input() const { return x.view(ht::shape<2>{rows, width}); }
    matrix<tracked> X() const { return {rows, width, x.data()}; }
    matrix<tracked> G() const { return {1, width, g.data()}; }
    matrix<tracked> B() const { return {1, width, b.data()}; }
    matrix<tracked> DY() const { return {rows, width, dy.data()}; }
};

template <class P>
void within_bounds(ht::isa set) {
    fixture<P> f(set);
    using roles = typename fixture<P>::roles;
    using T = typename P::output;
    ht::tape tape{f.device};
    support::gradient_sink sink(f.parameters);
    matrix<tracked> dx, dgain, dbias;

    const auto x = tape.leaf(f.input());
    const auto y = ht::layer_norm<roles>(tape, x, f.gain, f.bias);
    static_assert(std::is_same_v<decltype(y), const ht::variable<T, 2>>);
    const layer_norm_of<tracked> layer(f.X(), f.G(), f.B());
    autodiff_test::check_within(y.view(), layer.y);
    tape.backward(autodiff_test::weigh(tape, y, f.dy.view()), sink);
    layer.backward(f.DY(), f.G(), dx, dgain, dbias);
    autodiff_test::check_within(tape.gradient(x), dx);
    autodiff_test::check_within<float>(sink.of(f.gain), dgain);
    autodiff_test::check_within<float>(sink.of(f.bias), dbias);
    sink.close();

    const auto z = tape.leaf(f.input());
    const auto r = ht::rms_norm<roles>(tape, z, f.gain);
    const rms_norm_of<tracked> rms(f.X(), f.G());
    autodiff_test::check_within(r.view(), rms.y);
    tape.backward(autodiff_test::weigh(tape, r, f.dy.view()), sink);
    rms.backward(f.DY(), f.G(), dx, dgain);
    autodiff_test::check_within(tape.gradient(z), dx);
    autodiff_test::check_within<float>(sink.of(f.gain), dgain);

    ht::inference eval{f.device};
    CHECK(support::doubles(ht::layer_norm<roles>(eval, eval.constant(f.input()), f.gain, f.bias).view()) ==
          support::doubles(y.view()));
    CHECK(support::doubles(ht::rms_norm<roles>(eval, eval.constant(f.input()), f.gain).view()) ==
          support::doubles(r.view()));
}

TEST_CASE("layer_norm and rms_norm: values and gradients within their bounds") {
    support::for_each_set([](ht::isa set) {
        within_bounds<ht::full_fp32>(set);
        within_bounds<ht::amp_bf16>(set);
        within_bounds<ht::amp_fp16>(set);
    });
}

TEST_CASE("layer_norm and rms_norm: the definitions are the references', their gradients central differences") {
    constexpr int rows = 2, width = 5;
    support::random data(3);
    const doubles x = data.normals<double>(rows * width), gain = data.normals<double>(width, 0.5, 1),
                  bias = data.normals<double>(width), dy = data.normals<double>(rows * width);
    using m = matrix<double>;
    // The definitions' epsilons are floats.
    constexpr double epsilon = static_cast<double>(1e-5f), rms_epsilon = static_cast<double>(1e-6f);
    const auto weighted = [&](const doubles& y) {
        double sum = 0;
        for (std::size_t i = 0; i < dy.size(); ++i) sum += y[i] * dy[i];
        return sum;
    };
    const auto layer = [&](const doubles& at_x, const doubles& at_gain) {
        doubles y(dy.size()), mean(rows), rstd(rows);
        ht::reference::layer_norm(
            ht::const_view<double, 2>(at_x.data(), {rows, width}), ht::const_view<double, 1>(at_gain.data(), {width}),
            ht::const_view<double, 1>(bias.data(), {width}), epsilon, ht::view<double, 2>(y.data(), {rows, width}),
            ht::view<double, 1>(mean.data(), {rows}), ht::view<double, 1>(rstd.data(), {rows}));
        return weighted(y);
    };
    const auto rms = [&](const doubles& at_x, const doubles& at_gain) {
        doubles y(dy.size()), rstd(rows);
        ht::reference::rms_norm(ht::const_view<double, 2>(at_x.data(), {rows, width}),
                                ht::const_view<double, 1>(at_gain.data(), {width}), rms_epsilon,
                                ht::view<double, 2>(y.data(), {rows, width}), ht::view<double, 1>(rstd.data(), {rows}));
        return weighted(y);
    };
    m dx, dgain, dbias;
    layer_norm_of<double>(m(rows, width, x.data()), m(1, width, gain.data()), m(1, width, bias.data()))
        .backward(m(rows, width, dy.data()), m(1, width, gain.data()), dx, dgain, dbias);
    support::check_gradient([&](const doubles& at) { return layer(at, gain); }, x, dx.values);
    support::check_gradient([&](const doubles& at) { return layer(x, at); }, gain, dgain.values);
    rms_norm_of<double>(m(rows, width, x.data()), m(1, width, gain.data()))
        .backward(m(rows, width, dy.data()), m(1, width, gain.data()), dx, dgain);
    support::check_gradient([&](const doubles& at) { return rms(at, gain); }, x, dx.values);
    support::check_gradient([&](const doubles& at) { return rms(x, at); }, gain, dgain.values);
}

TEST_CASE("layer_norm: one of gain and bias frozen, or the input a constant: the rest has the same bits") {
    using P = ht::full_fp32;
    using roles = fixture<P>::roles;
    fixture<P> all;
    ht::tape tape{all.device};
    support::gradient_sink sink(all.parameters);
    const auto x = tape.leaf(all.input());
    tape.backward(autodiff_test::weigh(tape, ht::layer_norm<roles>(tape, x, all.gain, all.bias), all.dy.view()), sink);

    support::gradient_sink of_constant(all.parameters);
    tape.backward(autodiff_test::weigh(
                      tape, ht::layer_norm<roles>(tape, tape.constant(all.input()), all.gain, all.bias), all.dy.view()),
                  of_constant);
    CHECK(of_constant.of(all.gain) == sink.of(all.gain));
    CHECK(of_constant.of(all.bias) == sink.of(all.bias));

    for (const char* frozen : {"gain", "bias", "*"}) {
        CAPTURE(frozen);
        fixture<P> f;
        f.parameters.freeze(frozen);
        support::gradient_sink some(f.parameters);
        ht::tape other{f.device};
        const auto z = other.leaf(f.input());
        other.backward(autodiff_test::weigh(other, ht::layer_norm<roles>(other, z, f.gain, f.bias), f.dy.view()), some);
        CHECK(support::doubles(other.gradient(z)) == support::doubles(tape.gradient(x)));
        if (!f.gain.is_frozen()) CHECK(some.of(f.gain) == sink.of(all.gain));
        if (!f.bias.is_frozen()) CHECK(some.of(f.bias) == sink.of(all.bias));
    }
}

TEST_CASE("layer_norm: a bias that two norms share while each has its own gain") {
    using P = ht::full_fp32;
    using roles = fixture<P>::roles;
    fixture<P> f;
    ht::store more{f.device.memory()};
    const auto a = more.add<P, ht::op::layer_norm>("a", ht::shape<1>{f.width}, {.mean = 1});
    const auto b = more.add<P, ht::op::layer_norm>("b", ht::shape<1>{f.width}, {.mean = 2});
    const auto shared = more.add<P, ht::op::layer_norm>("shared", ht::shape<1>{f.width}, {});
    more.commit();
    support::gradient_sink apart(more), together(more);
    ht::tape tape{f.device};
    const auto x = tape.constant(f.input());
    const auto loss = [&](const auto& gain) {
        return autodiff_test::weigh(tape, ht::layer_norm<roles>(tape, x, gain, shared), f.dy.view());
    };
    tape.backward(loss(a), apart);
    const doubles of_a = apart.of(a), bias_once = apart.of(shared);
    apart.close();
    tape.backward(loss(b), apart);
    const doubles of_b = apart.of(b);

    // Gradients of an earlier window must not reappear.
    tape.backward(loss(a), together), tape.backward(loss(b), together);
    together.close();
    tape.backward(loss(a), together), tape.backward(loss(b), together);
    CHECK(together.of(a) == of_a);
    CHECK(together.of(b) == of_b);
    for (std::size_t j = 0; j < bias_once.size(); ++j) CHECK(together.of(shared)[j] == 2 * bias_once[j]);
}

TEST_CASE("norms: an input that is used twice has the sum of both gradients") {
    using P = ht::full_fp32;
    using roles = fixture<P>::roles;
    fixture<P> f;
    ht::tape tape{f.device};
    support::gradient_sink sink(f.parameters);
    const auto x = tape.leaf(f.input());
    const auto first = autodiff_test::weigh(tape, ht::layer_norm<roles>(tape, x, f.gain, f.bias), f.dy.view());
    const auto second = autodiff_test::weigh(tape, ht::rms_norm<roles>(tape, x, f.gain), f.dy.view());
    tape.backward(ht::add(tape, first, second), sink);
    matrix<tracked> dx, dgain, dbias, more, more_gain;
    layer_norm_of<tracked>(f.X(), f.G(), f.B()).backward(f.DY(), f.G(), dx, dgain, dbias);
    rms_norm_of<tracked>(f.X(), f.G()).backward(f.DY(), f.G(), more, more_gain);
    autodiff_test::check_within(tape.gradient(x), plus(dx, more));
    autodiff_test::check_within<float>(sink.of(f.gain), plus(dgain, more_gain));
}

}  // namespace autodiff_norm_tests
