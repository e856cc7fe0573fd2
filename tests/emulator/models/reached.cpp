// SPDX-License-Identifier: MIT
/// \file
/// On the emulated GPU: windows that reach only some parameters, captured steps of these, losses through a model that is left out
/// of the accumulator, and steps that ended with an exception.
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/train/captured_step.hpp>
#include <halftone/train/trainer.hpp>

#include "optim/reached_checks.hpp"
#include "train/captured.hpp"
#include "train/failing_gpt.hpp"

namespace emulator_models_reached_tests {

namespace ht = halftone;
using machine = ht::emulator::device;

/// Other files look for races in these kernels.
ht::emulator::options quick(std::uint64_t seed) { return {.seed = seed, .check = ht::emulator::checking::values_only}; }

TEST_CASE_TEMPLATE("steps on a GPU: a parameter fares as if the windows that missed it had not been", P, ht::amp_fp16,
                   ht::pure_bf16) {
    machine device{quick(1)};
    reached::check<P>(device);
}

template <class P>
struct layer : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    layer(machine& device, ht::extent in, ht::extent out)
        : ht::nn::model(device), fc(parameters(), in, out, {.deviation = 0.5f}) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

template <class P>
struct body_and_head : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    ht::nn::linear<ht::at<P, "head">> head;
    explicit body_and_head(machine& device)
        : ht::nn::model(device),
          fc(parameters(), 3, 4, {.deviation = 0.5f}),
          head(parameters(), 4, 2, {.deviation = 0.5f}) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc, self.head); }
};

/// What a step reaches follows from the rows of its input: one row all, two the body, through a critic, three the head.
struct loop {
    using P = ht::full_fp32;
    machine& device;
    body_and_head<P> model{device};
    layer<P> critic{device, 4, 1};
    ht::adamw<machine, body_and_head<P>> optimizer{device, model, {.lr = 0.1, .weight_decay = 0.5}};
    ht::grad_scaler<machine> scaler{
        device, {.init_scale = 64, .growth_interval = 2, .min_scale = 16, .max_scale = 128, .hysteresis = 2}};
    ht::accumulator<ht::through_scaler, ht::types<body_and_head<P>>> acc{model};
    ht::tape<machine> tape{device};

    explicit loop(machine& d) : device(d) { acc.leave_out(critic); }

    void step(const ht::const_view<float, 2>& x) {
        const ht::extent rows = x.extent_of(0);
        const auto y = model.fc(tape, tape.constant(x));
        if (rows == 2) {
            tape.backward(scaler.scale(ht::mean(tape, critic.fc(tape, y))), acc);
        } else {
            const auto z = model.head(tape, rows == 3 ? tape.detach(y) : y);
            tape.backward(scaler.scale(ht::mean(tape, ht::mul(tape, z, z))), acc);
        }
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
    }
    std::vector<std::byte> bytes() {
        std::vector<std::byte> all;
        ht::store& s = model.parameters();
        const auto add = [&](const std::byte* data, std::size_t n) {
            const auto more = small::bytes_at(s, data, n);
            all.insert(all.end(), more.begin(), more.end());
        };
        for (std::size_t g = 0; g < s.groups().size(); ++g) {
            add(s.groups()[g].master.data(), s.groups()[g].master.bytes());
            for (int which = 0; which < 2; ++which)
                add(optimizer.moment(which, g).data(), optimizer.moment(which, g).size());
        }
        return all;
    }
};

TEST_CASE("captured step: graphs that reach different parameters alternate, with the bits of plain steps") {
    machine one{quick(1)}, two{quick(2)};
    loop plain(one), other(two);
    ht::captured_step step{two, [&](const ht::const_view<float, 2>& x) { other.step(x); }};
    const auto run = [&](int t, ht::extent rows, bool overflows) {
        std::vector<float> x;
        for (ht::extent i = 0; i < 3 * rows; ++i)
            x.push_back(static_cast<float>((t * 7 + static_cast<int>(i) * 5) % 11 - 5) / 4);
        if (overflows) x[1] = std::numeric_limits<float>::infinity();
        const ht::const_view<float, 2> input(x.data(), {rows, 3});
        const ht::tensor<float, 2> on_device(one.memory(), {rows, 3});
        one.memory().write(on_device.data(), x.data(), x.size() * sizeof(float));
        plain.step(on_device.const_view());
        step(input);
        CHECK((other.bytes() == plain.bytes()));
        CHECK(other.scaler.get_scale() == plain.scaler.get_scale());
        CHECK(other.optimizer.state().step_counts == plain.optimizer.state().step_counts);
    };
    int t = 0;
    for (const int rows : {1, 1, 1, 2, 2, 2, 3, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3})
        run(t, rows, t % 5 == 4 || t % 5 == 3), ++t;
    CHECK(step.replays() >= 5);
    CHECK(captured::mentions(step.reason(), "steps have reached other parameters than before"));
    const auto captures = step.captures();
    for (const int rows : {3, 2, 1, 2, 3, 1}) run(t, rows, false), ++t;
    CHECK(step.captures() == captures);
    CHECK(other.scaler.get_scale() == 128);

    // A loaded state with other counts than those in the graphs.
    ht::optimizer_state state = plain.optimizer.state();
    state.step_counts = {state.steps, state.steps, 2, 1};
    for (loop* l : {&plain, &other}) l->optimizer.load(state);
    for (const int rows : {3, 2, 1, 2, 3, 1}) run(t, rows, false), ++t;
    // Discarded micro-batches have no effect.
    for (loop* l : {&plain, &other}) {
        const ht::tensor<float, 2> x(l->device.memory(), {1, 3});
        l->device.fill(x.data(), 3, 2.0f);
        const auto y = l->model.fc(l->tape, l->tape.constant(x.const_view()));
        l->tape.backward(l->scaler.scale(ht::mean(l->tape, y)), l->acc);
        l->acc.discard();
    }
    for (const int rows : {3, 2, 1}) run(t, rows, false), ++t;
}

TEST_CASE("captured step: single micro-batches, whole windows without their update, and updates alone") {
    using P = ht::full_fp32;
    const std::vector<std::vector<ht::extent>> windows = {{2, 2, 1}, {2, 2, 1}, {2, 2, 2, 2}, {1, 1, 1}, {2, 2, 2, 2}};
    for (const int part : {0, 1, 2, 3}) {  // nothing is captured, one of these is
        CAPTURE(part);
        machine device{quick(3)};
        layer<P> model{device, 3, 2};
        ht::sgd optimizer{device, model, {.lr = 0.1}};
        ht::grad_scaler scaler{device};
        ht::accumulator acc{model};
        ht::tape tape{device};
        const auto micro = [&](const ht::const_view<float, 2>& x) {
            tape.backward(scaler.scale(ht::mean(tape, model.fc(tape, tape.constant(x)))), acc);
        };
        const auto window = [&](const ht::const_view<float, 2>& x) { micro(x), micro(x); };
        const auto update = [&] {
            auto grads = scaler.unscale(acc.take());
            optimizer.step(grads);
            scaler.update();
        };
        ht::captured_step micro_step{device, micro};
        ht::captured_step window_step{device, window};
        ht::captured_step update_step{device, update};
        double expected = 0;
        for (std::size_t w = 0; w < windows.size(); ++w) {
            for (const ht::extent rows : windows[w]) {
                const std::vector<float> x(static_cast<std::size_t>(3 * rows), static_cast<float>(w + 1));
                ht::tensor<float, 2> there(device.memory(), {rows, 3});
                device.fill(there.data(), 3 * rows, x[0]);
                if (part == 1) micro_step(ht::const_view<float, 2>(x.data(), {rows, 3})), micro(there.const_view());
                if (part == 2) window_step(ht::const_view<float, 2>(x.data(), {rows, 3}));
                if (part == 0 || part == 3) window(there.const_view());
                expected += static_cast<double>(x[0]);  // half of it from each of two micro-batches
            }
            part == 3 ? static_cast<void>(update_step()) : update();
        }
        const auto weight = small::master_of(model.fc.weight);
        const auto start = small::master_of(layer<P>(device, 3, 2).fc.weight);
        CHECK(static_cast<double>(weight[0]) ==
              doctest::Approx(static_cast<double>(start[0]) - 0.1 * expected).epsilon(1e-4));
        CHECK(optimizer.steps() == 5);
        if (part == 1) CHECK(micro_step.replays() > 0);
        if (part == 1) CHECK(captured::mentions(micro_step.reason(), "a window of gradients is open"));
    }
}

TEST_CASE("trainer on the emulated machine: an exception ends a step, also one that is captured") {
    std::string corpus;
    for (int i = 0; i < 200; ++i) corpus += static_cast<char>((i * i + i / 7) % 16);
    std::vector<double> expected;
    // Thrown in the second micro-batch of the first step, which is not captured, and of the second, which is.
    for (const int fails : {0, 2, 4}) {
        CAPTURE(fails);
        machine device{quick(8)};
        train_test::failing_gpt model{device, captured::config, 1};
        model.left = fails;
        ht::language_data data{ht::token_view{corpus}, {.context = 8, .vocabulary = 23, .held_out = 0}};
        ht::trainer trainer{device,
                            model,
                            {.per_device_train_batch_size = 1,
                             .gradient_accumulation_steps = 2,
                             .max_steps = 4,
                             .learning_rate = 1e-2}};
        if (fails != 0) CHECK_THROWS_AS(trainer.train(data), std::runtime_error);
        const ht::training_result r = trainer.train(data);
        CHECK(trainer.captured().captures() == 1);
        std::vector<double> all{r.train_loss, r.loss_scale, static_cast<double>(r.skipped_steps)};
        if (fails == 0) expected = all;
        CHECK(all == expected);
    }
}

}  // namespace emulator_models_reached_tests
