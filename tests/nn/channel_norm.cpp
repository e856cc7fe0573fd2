// SPDX-License-Identifier: MIT
/// \file
/// batch_norm2d and group_norm as layers: their parameters, their running statistics, and the types of both.
#include <cmath>

#include <halftone/nn/channel_norm.hpp>
#include <halftone/optim/sgd.hpp>

#include "nn/layers.hpp"

namespace nn_channel_norm_tests {

namespace ht = halftone;
using strings = std::vector<std::string>;

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::batch_norm2d<ht::at<P, "bn">> bn;
    ht::nn::group_norm<ht::at<P, "gn">> gn;

    explicit network(ht::cpu& device) : model{device}, bn{parameters(), 4, {.momentum = 0.5}}, gn{parameters(), 2, 4} {
        commit(*this, 7);
    }
    auto operator()(auto&& ctx, const auto& x) const { return gn(ctx, bn(ctx, x)); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.bn, self.gn); }
};

// Running statistics are fp32 under every policy, and may be in one group with fp32 masters.
template <class P>
using state_of = ht::state_signature<P>;
static_assert(std::is_same_v<state_of<ht::pure_bf16>::param, float> &&
              std::is_same_v<state_of<ht::pure_bf16>::compute, float>);
static_assert(std::is_same_v<state_of<ht::full_fp64>::param, double>);
static_assert(ht::signatures_of<network<ht::amp_bf16>>::size == 1 &&
              ht::signatures_of<network<ht::pure_bf16>>::size == 2);

struct input {
    std::vector<float> values = support::random(3).normals<float>(3 * 4 * 2 * 5, 2, 1);
    ht::const_view<float, 4> view{values.data(), {3, 4, 2, 5}};
    /// The mean of a channel, and the unbiased variance.
    std::pair<double, double> statistics(std::size_t channel) const {
        double sum = 0, squares = 0;
        const auto each = [&](const auto& f) {
            for (std::size_t n = 0; n < 3; ++n)
                for (std::size_t i = 0; i < 10; ++i) f(static_cast<double>(values[(n * 4 + channel) * 10 + i]));
        };
        each([&](double v) { sum += v; });
        each([&](double v) { squares += (v - sum / 30) * (v - sum / 30); });
        return {sum / 30, squares / 29};
    }
};

TEST_CASE("batch_norm2d: running statistics are states of the store, not parameters") {
    ht::cpu device{{.threads = 1}};
    network<ht::pure_bf16> model{device};
    strings paths, states;
    for (const auto& e : model.parameters().entries()) {
        paths.push_back(e.path);
        if (e.is_state) states.push_back(e.path);
        CHECK(e.is_state == e.frozen);
    }
    CHECK(paths == strings{"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "gn.weight", "gn.bias"});
    CHECK(states == strings{"bn.running_mean", "bn.running_var"});
    CHECK(model.parameters().size() == 16);
    const std::vector<float> saved{1, 2, 3, 4};
    model.bn.running_mean.assign(saved);
    CHECK(support::doubles(ht::as_view(model.bn.running_mean.master())) == std::vector<double>{1, 2, 3, 4});
}

TEST_CASE("batch_norm2d: a pass on a tape updates them, one in an inference context reads them") {
    ht::cpu device{{.threads = 1}};
    network<ht::amp_bf16> model{device};
    const input in;
    const auto moved = [&] { return support::doubles(ht::as_view(model.bn.running_mean.master())); };
    ht::inference eval{device};
    const auto before = model.bn(eval, eval.constant(in.view));
    static_assert(std::is_same_v<decltype(before), const ht::variable<ht::bfloat16, 4>>);
    CHECK(moved() == std::vector<double>(4));
    CHECK(static_cast<float>(before.view()(1, 2, 1, 3)) ==
          static_cast<float>(ht::bfloat16(in.view(1, 2, 1, 3) / std::sqrt(1.00001f))));

    ht::tape tape{device};
    model.bn(tape, tape.constant(in.view));
    for (std::size_t c = 0; c < 4; ++c) {
        const auto [mean, var] = in.statistics(c);
        CHECK(moved()[c] == doctest::Approx(mean / 2));
        CHECK(model.bn.running_var.master()(static_cast<ht::extent>(c)) == doctest::Approx(0.5 + var / 2));
    }
    tape.clear();
    const auto once = moved();
    model.bn.training = false;
    model.bn(tape, tape.constant(in.view));
    CHECK(moved() == once);
}

TEST_CASE(
    "batch_norm2d: optimizers, decay and groups pass running statistics by; a skipped step leaves them brought up to "
    "date") {
    ht::cpu device{{.threads = 1}};
    network<ht::full_fp32> model{device};
    ht::sgd optimizer{device, model, {.lr = 0.5f, .weight_decay = 0.5f}, {{"*", ht::trained}}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const input in;
    const auto values = [](const auto& p) { return support::doubles(ht::as_view(p.master())); };
    const auto step = [&](float factor) {
        tape.clear();
        const auto y = model(tape, tape.constant(in.view));
        tape.backward(ht::mul(tape, ht::sum(tape, ht::mul(tape, y, y)), factor), acc);
        const auto means = values(model.bn.running_mean);
        const auto result = optimizer.step(acc.take());
        CHECK(values(model.bn.running_mean) == means);
        return !result.skipped();
    };
    const auto weights = values(model.gn.weight);
    CHECK(step(1));
    CHECK(values(model.gn.weight) != weights);
    const auto after = values(model.gn.weight), means = values(model.bn.running_mean);
    CHECK(!step(std::numeric_limits<float>::infinity()));
    CHECK(values(model.gn.weight) == after);
    CHECK(values(model.bn.running_mean) != means);
}

TEST_CASE("batch_norm2d, group_norm: wrong options and groups") {
    ht::cpu device{{.threads = 1}};
    ht::store s{device.memory()};
    using P = ht::at<ht::full_fp32, "norm">;
    CHECK_THROWS_WITH_AS((ht::nn::batch_norm2d<P>{s, 4, {.momentum = 2}}),
                         "batch_norm2d: momentum is 2; expected 0 to 1", ht::argument_error);
    CHECK_THROWS_WITH_AS((ht::nn::group_norm<P>{s, 3, 4}),
                         "group_norm: 4 channels in 3 groups; expected groups of equally many channels",
                         ht::shape_error);
}

}  // namespace nn_channel_norm_tests
