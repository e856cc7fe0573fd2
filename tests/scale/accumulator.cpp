// SPDX-License-Identifier: MIT
#include <memory>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/engine/tape.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/outlier_guard.hpp>

#include "optim/small_model.hpp"
#include "support/random.hpp"

namespace scale_accumulator_tests {

namespace ht = halftone;
using model_type = small::model<ht::amp_bf16>;

template <class Model>
float gradient(const Model& model, const ht::gradient_slabs& slabs, std::size_t entry, std::size_t i) {
    const ht::store::entry& e = model.parameters().entries()[entry];
    using linear = ht::storage_signature<typename Model::policy, ht::op::linear>;
    return slabs.group<linear>(e.group)(e.gradient + i);
}

TEST_CASE("accumulator: micro-batches add up, and the next window starts from zero") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::accumulator acc{model, ht::unscaled};
    small::tape tape;
    for (int window = 1; window <= 3; ++window) {
        CHECK(acc.received() == 0);
        for (int micro = 1; micro <= 4; ++micro) {
            tape.gradients = [=](std::size_t entry, std::size_t i) {
                return static_cast<float>(window * 100 + micro * 10) + static_cast<float>(entry + i);
            };
            tape.backward(small::loss{} / 4, acc, model.parameters());
            CHECK(acc.received() == micro);
        }
        const auto grads = acc.take();
        CHECK(grads.micro_batches() == 4);
        CHECK(gradient(model, grads.slabs(model.parameters()), 2, 7) == static_cast<float>(window * 100 + 25 + 9));
    }
}

TEST_CASE("accumulator: parameters that no backward pass reached have zero gradients") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::accumulator acc{model, ht::unscaled};
    for (int window = 0; window < 2; ++window) {
        acc.receive(small::loss{});
        const auto place = acc.find(model.parameters())->claim(window == 0 ? 0 : 2);
        CHECK(place.is_first);
        reinterpret_cast<float*>(place.data)[3] = 5;
        for (int i = 0; i < 3; ++i) reinterpret_cast<float*>(place.data)[i] = 0;
        const auto grads = acc.take();
        CHECK(gradient(model, grads.slabs(model.parameters()), 0, 3) == (window == 0 ? 5.0f : 0.0f));
        CHECK(gradient(model, grads.slabs(model.parameters()), 2, 3) == (window == 0 ? 0.0f : 5.0f));
    }
}

TEST_CASE("accumulator: take() needs a backward pass") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::accumulator acc{model, ht::unscaled};
    CHECK_THROWS_WITH_AS(acc.take(), "accumulator: take() without a backward pass since the last take()",
                         ht::state_error);
    acc.receive(small::loss{});
    acc.take();
    CHECK_THROWS_AS(acc.take(), ht::state_error);
}

TEST_CASE("accumulator: the scale is constant inside a window") {
    ht::cpu device{{.threads = 1}};
    model_type model{device}, other{device};
    ht::grad_scaler scaler{device}, another{device};
    ht::accumulator acc{model}, side{other};
    const auto update = [&] {
        side.receive(scaler.scale(small::loss{}));
        scaler.unscale(side.take());
        scaler.update();
    };
    acc.receive(scaler.scale(small::loss{}));
    acc.receive(scaler.scale(small::loss{}));

    SUBCASE("an update inside it") {
        update();
        CHECK_THROWS_WITH_AS(
            acc.receive(scaler.scale(small::loss{})),
            "accumulator: the loss scale changed inside a window, after 2 micro-batches; call update() once, after the "
            "step, or discard()",
            ht::state_error);
        CHECK_THROWS_AS(scaler.unscale(acc.take()), ht::state_error);
        // The next window is not affected.
        acc.receive(scaler.scale(small::loss{}));
        scaler.unscale(acc.take());
    }
    SUBCASE("a scale set by hand inside it") {
        scaler.update(2.0f);
        CHECK_THROWS_AS(acc.receive(scaler.scale(small::loss{})), ht::state_error);
    }
    SUBCASE("a loss that was scaled before an update") {
        const auto stale = scaler.scale(small::loss{});
        update();
        acc.discard();
        CHECK_THROWS_AS(acc.receive(stale), ht::state_error);
        CHECK(acc.received() == 0);
    }
    SUBCASE("a loss of another scaler") { CHECK_THROWS_AS(acc.receive(another.scale(small::loss{})), ht::state_error); }
}

TEST_CASE("accumulator: discard() drops the gradients gathered so far") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::accumulator acc{model, ht::unscaled};
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
    tape.backward(small::loss{}, acc, model.parameters());
    acc.discard();
    CHECK_THROWS_AS(acc.take(), ht::state_error);
    tape.backward(small::loss{}, acc, model.parameters());
    const auto grads = acc.take();
    CHECK(grads.micro_batches() == 1);
    CHECK(gradient(model, grads.slabs(model.parameters()), 0, 0) == 1);
}

TEST_CASE("accumulator: gradients are valid until the next window begins") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::sgd optimizer{device, model};
    ht::accumulator acc{model, ht::unscaled};
    acc.receive(small::loss{});
    auto grads = acc.take();
    acc.receive(small::loss{});
    CHECK_THROWS_AS(optimizer.step(grads), ht::state_error);
    CHECK_THROWS_AS(static_cast<void>(grads.slabs(model.parameters())), ht::state_error);
    auto current = acc.take();
    CHECK_THROWS_AS(optimizer.step(grads), ht::state_error);
    auto moved = std::move(current);
    CHECK_THROWS_AS(optimizer.step(current), ht::state_error);  // NOLINT(bugprone-use-after-move)
    optimizer.step(moved);
}

TEST_CASE("accumulator: gradients and norms whose accumulator is gone are found out") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::sgd optimizer{device, model};
    ht::grad_scaler scaler{device};
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
    std::optional<ht::measured_norm<ht::cpu>> norm;
    const auto leave = [&](auto&& f) {
        ht::accumulator acc{model};
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        return f(acc.take());
    };
    auto raw = leave([](auto taken) { return taken; });
    CHECK_THROWS_WITH_AS(scaler.unscale(std::move(raw)),
                         "unscale: the accumulator of these gradients has been destroyed, and their memory with it",
                         ht::state_error);
    auto grads = leave([&](auto taken) {
        auto unscaled = scaler.unscale(std::move(taken));
        norm.emplace(ht::clip_grad_norm(unscaled, 1));
        return unscaled;
    });
    CHECK_THROWS_WITH_AS(optimizer.step(grads),
                         "sgd: the accumulator of these gradients has been destroyed, and their memory with it", ht::state_error);
    CHECK_THROWS_AS(ht::clip_grad_value(grads, 1), ht::state_error);
    CHECK_THROWS_AS(static_cast<void>(norm->value()), ht::state_error);
    scaler.update();

    // One accumulator in each iteration, mostly at the same address.
    ht::outlier_guard guard{device};
    for (int i = 0; i < 3; ++i) {
        leave([&](auto taken) {
            auto unscaled = scaler.unscale(std::move(taken));
            guard.watch(unscaled);
            CHECK_FALSE(optimizer.step(unscaled).skipped());
        });
        scaler.update();
    }
}

TEST_CASE("accumulator: several models, each with its own store") {
    ht::cpu device{{.threads = 1}};
    model_type a{device};
    small::model<ht::full_fp32> b{device}, stranger{device};
    ht::accumulator acc{a, b, ht::unscaled};
    CHECK(acc.find(a.parameters()) != acc.find(b.parameters()));
    CHECK(acc.find(stranger.parameters()) == nullptr);
    acc.receive(small::loss{});
    const auto grads = acc.take();
    CHECK(&grads.slabs(b.parameters()).owner() == &b.parameters());
    CHECK_THROWS_AS(static_cast<void>(grads.slabs(stranger.parameters())), ht::argument_error);
    CHECK_THROWS_AS((ht::accumulator{a, a}), ht::argument_error);
}

TEST_CASE("accumulator: parameters are frozen before it is made") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::accumulator acc{model, ht::unscaled};
    acc.receive(small::loss{});
    model.parameters().freeze("fc1");
    CHECK_THROWS_AS(acc.find(model.parameters())->claim(0), ht::state_error);
    CHECK_THROWS_AS(acc.take(), ht::state_error);
    ht::accumulator later{model, ht::unscaled};
    later.receive(small::loss{});
    CHECK(later.find(model.parameters())->claim(0).data == nullptr);
    later.take();
}

template <class P>
struct forgetful {
    using policy = P;
    ht::store store;
    small::layer<ht::at<P, "fc">, ht::op::linear> fc;
    small::layer<ht::at<P, "norm">, ht::op::layer_norm> norm;
    explicit forgetful(ht::cpu& device) : store(device.memory()), fc(store, 4), norm(store, 4) { store.commit(); }
    ht::store& parameters() { return store; }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

TEST_CASE("accumulator: a layer that visit does not show is found out") {
    ht::cpu device{{.threads = 1}};
    forgetful<ht::amp_bf16> model{device};
    CHECK_THROWS_WITH_AS((ht::accumulator{model}),
                         "accumulator: norm.weight is stored in types that no layer of the model's visit has; let "
                         "visit show every layer",
                         ht::argument_error);
}

TEST_CASE("accumulator: its memory is that of the gradients, and a window allocates none") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::memory_usage& usage = device.memory().usage();
    ht::accumulator acc{model, ht::unscaled};
    // 67, 70 and 3 elements of one group and 5 of another, each in whole granules, and the record.
    CHECK(usage.live(ht::memory_kind::gradient) == (128 + 128 + 64 + 64) * sizeof(float) + 64);
    const auto allocations = usage.allocations();
    for (int i = 0; i < 3; ++i) {
        acc.receive(small::loss{});
        acc.take();
    }
    CHECK(usage.allocations() == allocations);
}

/// Least squares: mean (x weight' + bias - target)^2 over 8 outputs.
template <class P>
struct regression : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit regression(ht::cpu& device) : model(device), fc(parameters(), 8, 8) {
        commit(*this);
        support::random data{1};
        for (int i = 0; i < 64; ++i) fc.weight.master().data()[i] = static_cast<float>(data.below(5) - 2);
        for (int i = 0; i < 8; ++i) fc.bias.master()(i) = static_cast<float>(data.below(5) - 2);
        parameters().refresh();
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

TEST_CASE_TEMPLATE("accumulator: N micro-batches of B are one batch of N B", P, ht::full_fp32, ht::amp_bf16,
                   ht::amp_fp16) {
    // With small integers every sum is exact and every mean is divided by a power of two, so equal means equal bits.
    constexpr int rows = 32, width = 8;
    support::random data{2};
    const auto x = data.integers<float>(rows * width, 2), target = data.integers<float>(rows * width, 2);
    const auto train = [&](int micro_batches) {
        ht::cpu device{{.threads = 2}};
        regression<P> model{device};
        ht::sgd optimizer{device, model, {.lr = 0.25}};
        ht::grad_scaler scaler{device, {.init_scale = 64}};
        ht::accumulator acc{model};
        ht::tape tape{device};
        const int each = rows / micro_batches;
        for (int i = 0; i < micro_batches; ++i) {
            const ht::shape<2> shape{each, width};
            const auto in = tape.constant(ht::const_view<float, 2>(x.data() + i * each * width, shape));
            const auto want = tape.constant(ht::const_view<float, 2>(target.data() + i * each * width, shape));
            const auto loss = ht::mean_squared_error(tape, model.fc(tape, in), want);
            tape.backward(scaler.scale(loss / static_cast<float>(micro_batches)), acc);
        }
        auto grads = scaler.unscale(acc.take());
        CHECK_FALSE(optimizer.step(grads).skipped());
        std::vector<float> after(model.fc.weight.master().data(), model.fc.weight.master().data() + 64);
        for (int i = 0; i < 8; ++i) after.push_back(model.fc.bias.master()(i));
        return after;
    };
    const std::vector<float> whole = train(1);
    CHECK(whole[3] != regression<P>(*std::make_unique<ht::cpu>()).fc.weight.master().data()[3]);
    CHECK(train(2) == whole);
    CHECK(train(4) == whole);
    CHECK(train(32) == whole);
}

}  // namespace scale_accumulator_tests
