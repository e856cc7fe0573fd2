// SPDX-License-Identifier: MIT
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/static_scaler.hpp>

#include "optim/small_model.hpp"
#include "support/bounds.hpp"

namespace optim_clip_tests {

namespace ht = halftone;
using model_type = small::model<ht::amp_bf16>;

constexpr std::size_t elements = 67 + 5 + 70 + 3;
constexpr std::size_t first_of[] = {0, 67, 72, 142};
constexpr float infinity = std::numeric_limits<float>::infinity();

float gradient(std::size_t i) { return static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 64; }

/// Takes the step w -= gradient with the clips that `clip` makes; returns the gradients as the step read them.
template <class Clip>
std::vector<double> read_through(const Clip& clip) {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    for (ht::store::group& g : model.parameters().groups()) std::memset(g.master.data(), 0, g.master.bytes());
    ht::sgd optimizer{device, model, {.lr = 1}};
    ht::static_scaler scaler{device, {.scale = 1024}};
    ht::accumulator acc{model};
    small::tape tape;
    tape.gradients = [](std::size_t entry, std::size_t i) { return gradient(first_of[entry] + i); };
    tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
    auto grads = scaler.unscale(acc.take());
    clip(grads);
    optimizer.step(grads);
    std::vector<double> read;
    const auto add = [&](const auto& p) {
        for (int i = 0; i < p.shape()[0]; ++i) read.push_back(-static_cast<double>(p.master()(i)));
    };
    add(model.fc1.weight), add(model.norm.weight), add(model.fc2.weight), add(model.head.weight);
    return read;
}

std::vector<double> exact() {
    std::vector<double> g;
    for (std::size_t i = 0; i < elements; ++i) g.push_back(static_cast<double>(gradient(i)));
    return g;
}
double norm_of(const std::vector<double>& g) {
    double squares = 0;
    for (const double x : g) squares += x * x;
    return std::sqrt(squares);
}
void clip_norm(std::vector<double>& g, double max_norm) {
    const double coefficient = max_norm / (norm_of(g) + 1e-6);
    if (coefficient < 1) {
        for (double& x : g) x *= coefficient;
    }
}
void clip_value(std::vector<double>& g, double limit) {
    for (double& x : g) x = std::clamp(x, -limit, limit);
}

/// Roundings of a clip: the sum of squares, its root, three for the coefficient, the product.
void check_equal(const std::vector<double>& got, const std::vector<double>& want, int clips) {
    REQUIRE(got.size() == want.size());
    support::comparison c;
    for (std::size_t i = 0; i < got.size(); ++i)
        c.expect(got[i], want[i], clips * support::gamma(30) * std::fabs(want[i]));
    CHECK_WITHIN(c);
}

TEST_CASE("clip: without clipping, gradients are read unchanged") {
    CHECK(read_through([](auto&) {}) == exact());
}

TEST_CASE("clip_grad_norm: PyTorch's formula; it returns the norm before clipping") {
    std::vector<double> want = exact();
    const double norm = norm_of(want);
    clip_norm(want, 0.5);
    check_equal(
        read_through([&](auto& grads) {
            const auto found = ht::clip_grad_norm(grads, 0.5f);
            CHECK(static_cast<double>(found.value()) == doctest::Approx(norm).epsilon(support::gamma(20)));
            CHECK(static_cast<double>(static_cast<float>(found)) == doctest::Approx(norm).epsilon(support::gamma(20)));
        }),
        want, 1);
}

TEST_CASE("clip_grad_norm: gradients with a smaller norm are unchanged, as with an infinite maximum") {
    CHECK(read_through([](auto& grads) { ht::clip_grad_norm(grads, 1000.0f); }) == exact());
    CHECK(read_through([](auto& grads) { CHECK(ht::clip_grad_norm(grads, infinity).value() > 1.0f); }) == exact());
}

TEST_CASE("clip_grad_value: the magnitude of every gradient is limited") {
    std::vector<double> want = exact();
    clip_value(want, 0.25);
    CHECK(read_through([](auto& grads) { ht::clip_grad_value(grads, 0.25f); }) == want);
    CHECK(read_through([](auto& grads) {
              ht::clip_grad_value(grads, 0.25f);
              ht::clip_grad_value(grads, 0.5f);
          }) == want);
}

TEST_CASE("clip: several clips apply in the order of their calls") {
    SUBCASE("norm, value") {
        std::vector<double> want = exact();
        clip_norm(want, 3), clip_value(want, 0.2);
        check_equal(read_through([](auto& grads) {
                        ht::clip_grad_norm(grads, 3.0f);
                        ht::clip_grad_value(grads, 0.2f);
                    }),
                    want, 1);
    }
    SUBCASE("value, norm: the norm is that of the clamped gradients") {
        std::vector<double> want = exact();
        clip_value(want, 0.2), clip_norm(want, 1);
        check_equal(read_through([](auto& grads) {
                        ht::clip_grad_value(grads, 0.2f);
                        ht::clip_grad_norm(grads, 1.0f);
                    }),
                    want, 1);
    }
    SUBCASE("norm, norm") {
        std::vector<double> want = exact();
        clip_norm(want, 3), clip_norm(want, 2);
        check_equal(read_through([](auto& grads) {
                        ht::clip_grad_norm(grads, 3.0f);
                        CHECK(ht::clip_grad_norm(grads, 2.0f).value() == doctest::Approx(3).epsilon(1e-5));
                    }),
                    want, 2);
    }
    SUBCASE("norm, value, norm, value") {
        std::vector<double> want = exact();
        clip_norm(want, 3), clip_value(want, 0.2), clip_norm(want, 1), clip_value(want, 0.1);
        check_equal(read_through([](auto& grads) {
                        ht::clip_grad_norm(grads, 3.0f);
                        ht::clip_grad_value(grads, 0.2f);
                        ht::clip_grad_norm(grads, 1.0f);
                        ht::clip_grad_value(grads, 0.1f);
                    }),
                    want, 2);
    }
}

TEST_CASE("clip_grad_norm: over all models of an accumulator") {
    ht::cpu device{{.threads = 1}};
    model_type a{device, 1}, b{device, 1};
    ht::accumulator acc{a, b, ht::unscaled};
    small::tape tape;
    tape.gradients = [](std::size_t entry, std::size_t i) { return entry == 0 && i == 0 ? 3.0f : 0.0f; };
    tape.backward(small::loss{}, acc, a.parameters());
    tape.gradients = [](std::size_t entry, std::size_t i) { return entry == 1 && i == 4 ? 4.0f : 0.0f; };
    tape.backward(small::loss{}, acc, b.parameters());
    auto grads = acc.take();
    CHECK(ht::clip_grad_norm(device, grads, 1.0f).value() == 5.0f);
}

TEST_CASE("clip_grad_norm: the norm of gradients with a NaN is NaN, with infinities only infinity; the step is skipped") {
    const auto check = [](float first, float last, ht::step_result want, auto&&... scaled) {
        ht::cpu device{{.threads = 1}};
        model_type model{device};
        ht::sgd optimizer{device, model, {.lr = 1}};
        ht::accumulator acc{model, scaled...};
        small::tape tape;
        tape.gradients = [=](std::size_t entry, std::size_t) { return entry == 0 ? first : entry == 3 ? last : 1.0f; };
        const auto go = [&](auto& grads) {
            for (int i = 0; i < 2; ++i) {  // clipped twice: the second reads what the first has left
                const float norm = ht::clip_grad_norm(device, grads, 1.0f).value();
                CHECK((want == ht::step_result::not_a_number ? ht::is_nan(norm) : norm == infinity));
            }
            ht::clip_grad_value(device, grads, 1.0f);
            const float clamped = ht::clip_grad_norm(device, grads, infinity).value();
            CHECK((want == ht::step_result::not_a_number ? ht::is_nan(clamped) : clamped == infinity));
            CHECK(optimizer.step(grads).result() == want);
        };
        if constexpr (sizeof...(scaled) != 0) {
            tape.backward(small::loss{}, acc, model.parameters());
            auto grads = acc.take();
            go(grads);
        } else {
            ht::grad_scaler scaler{device, {.init_scale = 1024}};
            tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
            auto grads = scaler.unscale(acc.take());
            go(grads);
            scaler.update();
            CHECK(scaler.get_scale() == 512);
        }
    };
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    const auto check_both = [&](float first, float last, ht::step_result want) {
        check(first, last, want, ht::unscaled);
        check(first, last, want);
    };
    check_both(1, nan, ht::step_result::not_a_number);
    check_both(nan, 1, ht::step_result::not_a_number);
    check_both(nan, infinity, ht::step_result::not_a_number);
    check_both(-infinity, nan, ht::step_result::not_a_number);
    check_both(1, infinity, ht::step_result::infinity);
    check_both(-infinity, infinity, ht::step_result::infinity);
}

TEST_CASE("clip: limits out of range, and a norm read too late") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::accumulator acc{model, ht::unscaled};
    acc.receive(small::loss{});
    auto grads = acc.take();
    CHECK_THROWS_AS(ht::clip_grad_norm(device, grads, -1.0f), ht::argument_error);
    CHECK_THROWS_AS(ht::clip_grad_norm(device, grads, std::numeric_limits<float>::quiet_NaN()), ht::argument_error);
    CHECK_THROWS_AS(ht::clip_grad_value(device, grads, -1.0f), ht::argument_error);
    const auto norm = ht::clip_grad_norm(device, grads, 1.0f);
    CHECK(norm.value() == 0);
    acc.receive(small::loss{});
    CHECK_THROWS_AS(static_cast<void>(norm.value()), ht::state_error);
    CHECK_THROWS_AS(ht::clip_grad_norm(device, grads, 1.0f), ht::state_error);
}

}  // namespace optim_clip_tests
