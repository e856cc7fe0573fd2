// SPDX-License-Identifier: MIT
#include <array>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/nn/sparse_embedding.hpp>

namespace scale_left_out_tests {

namespace ht = halftone;

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class P>
struct one_layer : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    one_layer(ht::cpu& device, ht::extent in, ht::extent out)
        : ht::nn::model(device), fc(parameters(), in, out, {.deviation = 0.5f}) {
        commit(*this, 1);
    }
    template <class Context, class X>
    auto operator()(Context&& ctx, const X& x) const {
        return fc(ctx, x);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

std::vector<float> weights_of(const one_layer<ht::full_fp32>& m) {
    const auto w = m.fc.weight.master();
    return {w.data(), w.data() + w.size()};
}

/// A generator and a critic with an optimizer each and one scale. The generator's loss goes through the critic.
struct adversaries {
    ht::cpu device{{.threads = 1}};
    one_layer<ht::full_fp32> generator{device, 3, 4}, critic{device, 4, 1};
    ht::sgd<ht::cpu, one_layer<ht::full_fp32>> for_generator{device, generator, {.lr = 0.5}},
        for_critic{device, critic, {.lr = 0.5}};
    ht::grad_scaler<ht::cpu> scaler{device, {.init_scale = 64, .growth_interval = 2}};
    ht::tape<ht::cpu> tape{device};
    std::array<float, 6> noise{0.5f, -1, 2, 1, 0.25f, -0.5f};
    std::array<float, 8> real{1, 2, 3, 4, -1, -2, 0.5f, 1};

    auto generated() { return generator(tape, tape.constant(ht::const_view<float, 2>(noise.data(), {2, 3}))); }
    auto generator_loss() { return ht::mean(tape, critic(tape, generated())) * -1.0f; }
    auto critic_loss() {
        const auto judged = critic(tape, tape.constant(ht::const_view<float, 2>(real.data(), {2, 4})));
        return ht::mean(tape, ht::mul(tape, judged, judged));
    }
};

TEST_CASE("accumulator: a loss goes through a model that is left out, whose parameters are constants to it") {
    adversaries a;
    ht::accumulator of_generator{a.generator}, of_critic{a.critic};
    const auto pass_without = [&] { a.tape.backward(a.scaler.scale(a.generator_loss()), of_generator); };
    CHECK_THROWS_WITH_AS(pass_without(),
                         "tape: the loss depends on parameters that the accumulator was not made for; name their model "
                         "in ht::accumulator acc{...}, or take them for constants: acc.leave_out(model)",
                         ht::state_error);
    of_generator.discard();
    of_generator.leave_out(a.critic);
    CHECK_THROWS_AS(of_generator.leave_out(a.generator), ht::argument_error);
    CHECK(of_generator.leaves_out(a.critic.parameters()));

    for (int round = 0; round < 3; ++round) {
        // The critic's infinite loss skips the critic's step alone; both share one scale.
        const bool overflows = round == 1;
        const std::vector<float> g = weights_of(a.generator), c = weights_of(a.critic);
        a.tape.backward(a.scaler.scale(a.critic_loss() * (overflows ? infinity : 1.0f)), of_critic);
        a.tape.backward(a.scaler.scale(a.generator_loss()), of_generator);
        auto critic_grads = a.scaler.unscale(of_critic.take());
        auto generator_grads = a.scaler.unscale(of_generator.take());
        CHECK(a.for_critic.step(critic_grads).skipped() == overflows);
        CHECK_FALSE(a.for_generator.step(generator_grads).skipped());
        a.scaler.update();
        // d(-mean critic(generator(z)))/dW = -(1/2) sum over samples of c z; no gradient of the critic.
        for (std::size_t i = 0; i < 4; ++i) {
            for (std::size_t j = 0; j < 3; ++j) {
                const float slope = -0.5f * c[i] * (a.noise[j] + a.noise[3 + j]);
                CHECK(weights_of(a.generator)[3 * i + j] == doctest::Approx(g[3 * i + j] - 0.5f * slope).epsilon(1e-5));
            }
        }
        CHECK((weights_of(a.critic) == c) == overflows);
    }
    CHECK(a.scaler.get_scale() == 32);
    CHECK(a.scaler.overflows() == 1);
    CHECK(a.scaler.state().growth_tracker == 1);
}

struct table : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::sparse_embedding<ht::full_fp32> rows;
    explicit table(ht::cpu& device) : ht::nn::model(device), rows(parameters(), 5, 4) { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.rows); }
};

TEST_CASE("accumulator: a table with a sparse gradient can be left out, too") {
    ht::cpu device{{.threads = 1}};
    table words{device};
    one_layer<ht::full_fp32> head{device, 4, 2};
    ht::accumulator acc{head, ht::unscaled};
    acc.leave_out(words);
    ht::tape tape{device};
    const std::array<std::int32_t, 3> ids{1, 4, 1};
    const auto x = words.rows(tape, ht::const_view<std::int32_t, 2>(ids.data(), {1, 3}));
    tape.backward(ht::mean(tape, head(tape, x)), acc);
    const auto grads = acc.take();
    double expected = 0;
    for (const std::int32_t id : ids) expected += static_cast<double>(words.rows.table.master()(id, 0)) / 6;
    CHECK(static_cast<double>(grads.of(head.fc.weight)(0, 0)) == doctest::Approx(expected).epsilon(1e-6));
}

}  // namespace scale_left_out_tests
