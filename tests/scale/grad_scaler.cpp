// SPDX-License-Identifier: MIT
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/static_scaler.hpp>

#include "optim/small_model.hpp"
#include "scale/traces.hpp"

namespace scale_grad_scaler_tests {

namespace ht = halftone;

using trained = traces::trained<ht::cpu>;
using model_type = trained::model_type;
using traces::infinity;
using traces::nan;

TEST_CASE("grad_scaler: the traces of torch.amp.GradScaler") {
    traces::replay([] { return std::make_unique<ht::cpu>(ht::cpu_options{.threads = 1}); });
}

TEST_CASE("grad_scaler: only the optimizer whose gradients overflow skips, and the shared scale backs off once") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler scaler{device, {.init_scale = 256}};
    trained a{device}, b{device};
    auto first = a.unscale(scaler, 'i'), second = b.unscale(scaler, '.');
    CHECK(a.optimizer.step(first).skipped());
    CHECK_FALSE(b.optimizer.step(second).skipped());
    scaler.update();
    CHECK(scaler.get_scale() == 128);
    auto third = a.unscale(scaler, 'n'), fourth = b.unscale(scaler, 'i');
    CHECK(a.optimizer.step(third).skipped());
    CHECK(b.optimizer.step(fourth).skipped());
    scaler.update();
    CHECK(scaler.get_scale() == 64);
    CHECK(scaler.overflows() == 2);
    CHECK(a.optimizer.skipped_steps() == 2);
    CHECK(b.optimizer.skipped_steps() == 1);
}

TEST_CASE("grad_scaler: one accumulator over two models; each optimizer checks its own part") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler scaler{device};
    model_type a{device}, b{device};
    ht::sgd for_a{device, a, {.lr = 1}};
    ht::sgd for_b{device, b, {.lr = 1}};
    ht::accumulator acc{a, b};
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return infinity; };
    tape.backward(scaler.scale(small::loss{}), acc, b.parameters());
    tape.gradients = [](std::size_t, std::size_t) { return 0.5f; };
    tape.backward(scaler.scale(small::loss{}), acc, a.parameters());
    const float before = a.fc1.weight.master()(0);
    auto grads = scaler.unscale(acc.take());
    CHECK(grads.micro_batches() == 2);
    CHECK_FALSE(for_a.step(grads).skipped());
    CHECK(for_b.step(grads).skipped());
    scaler.update();
    CHECK(a.fc1.weight.master()(0) == before - 0.5f);
    CHECK(scaler.get_scale() == 32768);
}

TEST_CASE("grad_scaler: the wrong order of calls throws") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler scaler{device};
    trained t{device};

    SUBCASE("update before anything was unscaled") {
        CHECK_THROWS_AS(scaler.update(), ht::state_error);
        t.unscale(scaler, '.');
        scaler.update();
        CHECK_THROWS_WITH_AS(scaler.update(),
                             "grad_scaler: update() before any gradients were unscaled; call "
                             "scaler.unscale(acc.take()) and optimizer.step first",
                             ht::state_error);
    }
    SUBCASE("unscale twice") {
        t.unscale(scaler, '.');
        CHECK_THROWS_AS(t.unscale(scaler, '.'), ht::state_error);
    }
    SUBCASE("unscale again after step") {
        auto grads = t.unscale(scaler, '.');
        t.optimizer.step(grads);
        CHECK_THROWS_AS(t.unscale(scaler, '.'), ht::state_error);
        scaler.update();
        t.unscale(scaler, '.');
    }
    SUBCASE("unscale gradients that were moved from") {
        t.backward(scaler, '.');
        auto s = t.acc.take();
        scaler.unscale(std::move(s));
        CHECK_THROWS_AS(scaler.unscale(std::move(s)), ht::state_error);  // NOLINT(bugprone-use-after-move)
    }
    SUBCASE("step twice") {
        auto grads = t.unscale(scaler, '.');
        t.optimizer.step(grads);
        CHECK_THROWS_WITH_AS(t.optimizer.step(grads),
                             "sgd: step() was called twice with the same gradients; one optimizer updates all of a "
                             "model, and groups give parts of it other rates",
                             ht::state_error);
    }
    SUBCASE("step after update") {
        auto grads = t.unscale(scaler, '.');
        scaler.update();
        CHECK_THROWS_AS(t.optimizer.step(grads), ht::state_error);
    }
    SUBCASE("update between the backward pass and unscale") {
        trained other{device};
        other.unscale(scaler, '.');
        t.backward(scaler, '.');
        scaler.update();
        CHECK_THROWS_AS(scaler.unscale(t.acc.take()), ht::state_error);
    }
    SUBCASE("another scaler unscales") {
        ht::grad_scaler other{device};
        t.backward(scaler, '.');
        CHECK_THROWS_AS(other.unscale(t.acc.take()), ht::state_error);
    }
}

TEST_CASE("grad_scaler: gradients that become infinite after unscale are not checked again") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler scaler{device};
    trained t{device};
    auto grads = t.unscale(scaler, '.');
    const std::size_t group = t.model.parameters().entries()[0].group;
    grads.slabs(t.model.parameters()).group<ht::storage_signature<ht::amp_fp16, ht::op::linear>>(group)(1) = infinity;
    CHECK_FALSE(t.optimizer.step(grads).skipped());
}

TEST_CASE("grad_scaler: fp16 products overflow where the scale is too large, and train where it is not") {
    // An fp16 gradient beyond 65504 is an infinity before the accumulator sees it.
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler scaler{device, {.init_scale = 0x1p20f}};
    trained t{device};
    std::string trace;
    for (int step = 0; step < 8; ++step) {
        const float seed = loss_seed(scaler.scale(small::loss{})).value();
        t.tape.gradients = [seed](std::size_t, std::size_t) {
            return static_cast<float>(ht::float16(0.25f * seed)) / seed;
        };
        t.tape.backward(scaler.scale(small::loss{}), t.acc, t.model.parameters());
        auto grads = scaler.unscale(t.acc.take());
        trace += t.optimizer.step(grads).skipped() ? 's' : '.';
        scaler.update();
    }
    CHECK(trace == "sss.....");
    CHECK(scaler.get_scale() == 0x1p17f);
}

TEST_CASE("grad_scaler: a scale set by hand") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler scaler{device};
    trained t{device};
    scaler.update(8.0f);
    CHECK(scaler.get_scale() == 8);
    t.unscale(scaler, 'i');
    scaler.update(4.0f);
    CHECK(scaler.get_scale() == 4);
    t.unscale(scaler, '.');
    scaler.update();
    CHECK(scaler.get_scale() == 4);
    CHECK_THROWS_AS(scaler.update(0.0f), ht::argument_error);
    CHECK_THROWS_AS(scaler.update(-1.0f), ht::argument_error);
    CHECK_THROWS_AS(scaler.update(infinity), ht::argument_error);
    CHECK_THROWS_AS(scaler.update(nan), ht::argument_error);
}

TEST_CASE("grad_scaler: bounds and hysteresis") {
    ht::cpu device{{.threads = 1}};
    trained t{device};
    const auto run = [&](const ht::grad_scaler_options& options, const char* letters) {
        ht::grad_scaler scaler{device, options};
        std::vector<float> scales;
        for (; *letters != 0; ++letters) {
            t.unscale(scaler, *letters);
            scaler.update();
            scales.push_back(scaler.get_scale());
        }
        return scales;
    };
    CHECK(run({.init_scale = 4, .min_scale = 1.5f}, "iii") == std::vector<float>{2, 1.5f, 1.5f});
    CHECK(run({.init_scale = 4, .growth_interval = 1, .max_scale = 10}, "...i..") ==
          std::vector<float>{8, 8, 8, 4, 8, 8});
    // The second overflow in a row backs off, and every one after it, until a good step.
    CHECK(run({.init_scale = 64, .hysteresis = 2}, "i.iii.ii") == std::vector<float>{64, 64, 64, 32, 16, 16, 16, 8});
}

TEST_CASE("grad_scaler: a shorter growth interval takes effect, below the tracker too") {
    ht::cpu device{{.threads = 1}};
    trained t{device};
    ht::grad_scaler scaler{device, {.init_scale = 2, .growth_interval = 100}};
    for (int i = 0; i < 5; ++i) {
        t.unscale(scaler, '.');
        scaler.update();
    }
    ht::scaler_state state = scaler.state();
    CHECK(state.growth_tracker == 5);
    state.growth_interval = 3;
    scaler.load(state);
    t.unscale(scaler, '.');
    scaler.update();
    CHECK(scaler.get_scale() == 4);
}

/// A device that counts how often the host looks into its memory, which on a GPU is to wait.
struct watched_device {
    class watched_memory final : public ht::memory_resource {
      public:
        void write(void* to, const void* from, std::size_t bytes) override { host_.write(to, from, bytes); }
        void read(void* to, const void* from, std::size_t bytes) override {
            ++reads;
            host_.read(to, from, bytes);
        }
        void clear(void* to, std::size_t bytes) override { host_.clear(to, bytes); }
        int reads = 0;

      private:
        std::byte* obtain(std::size_t bytes) override { return host_.reserve(bytes, ht::memory_kind::other); }
        void release(std::byte* block, std::size_t bytes) noexcept override { host_.unreserve(block, bytes, ht::memory_kind::other); }
        ht::host_memory host_;
    };
    watched_memory& memory() { return memory_; }

  private:
    watched_memory memory_;
};

TEST_CASE("scalers: scaling a loss does not wait for the device") {
    watched_device device;
    const ht::static_scaler fixed{device};
    const ht::grad_scaler dynamic{device};
    for (int i = 0; i < 3; ++i) fixed.scale(small::loss{}), dynamic.scale(small::loss{});
    CHECK(device.memory().reads == 0);
    CHECK(dynamic.get_scale() == 65536);
    CHECK(device.memory().reads == 1);
}

TEST_CASE("grad_scaler: its state, saved and loaded") {
    ht::cpu device{{.threads = 1}};
    trained t{device};
    ht::grad_scaler a{device, {.init_scale = 512, .growth_factor = 3, .backoff_factor = 0.25, .growth_interval = 7}};
    for (const char letter : {'.', 'i', '.', '.'}) {
        t.unscale(a, letter);
        a.update();
    }
    ht::grad_scaler b{device};
    b.load(a.state());
    const ht::scaler_state s = b.state();
    CHECK(s.scale == 128);
    CHECK(s.growth_factor == 3);
    CHECK(s.backoff_factor == 0.25);
    CHECK(s.growth_interval == 7);
    CHECK(s.growth_tracker == 2);
    CHECK(s.overflows == 1);

    ht::grad_scaler disabled{device, {.enabled = false}};
    CHECK_FALSE(disabled.state().enabled);
    CHECK_THROWS_AS(b.load(disabled.state()), ht::state_error);
    CHECK(b.get_scale() == 128);
    disabled.load(b.state());
    CHECK(disabled.get_scale() == 1);
    ht::scaler_state wrong = b.state();
    wrong.scale = 0;
    CHECK_THROWS_AS(b.load(wrong), ht::argument_error);
    CHECK(b.get_scale() == 128);
}

TEST_CASE("grad_scaler: a state includes the guards: a scaler that loads it continues as the first would have") {
    ht::cpu device{{.threads = 1}};
    trained t{device};
    const auto rounds = [&](ht::grad_scaler<ht::cpu>& s, const char* letters) {
        std::vector<float> scales;
        for (; *letters != 0; ++letters) {
            t.unscale(s, *letters);
            s.update();
            scales.push_back(s.get_scale());
        }
        return scales;
    };
    ht::grad_scaler a{device,
                      {.init_scale = 8, .growth_interval = 3, .min_scale = 3, .max_scale = 20, .hysteresis = 3}};
    rounds(a, "..ii");
    const ht::scaler_state middle = a.state();
    CHECK(middle.overflows_until_backoff == 1);
    ht::grad_scaler b{device}, fresh{device};
    b.load(middle);
    const char* const rest = "iii.iii......";
    const std::vector<float> goes_on = rounds(a, rest);
    CHECK(goes_on == std::vector<float>{4, 3, 3, 3, 3, 3, 3, 3, 3, 6, 6, 6, 12});
    CHECK(rounds(b, rest) == goes_on);
    CHECK(b.options().min_scale == 3);
    CHECK(b.options().hysteresis == 3);

    // A minimum of 0 allows a scale that could not be an initial scale.
    ht::grad_scaler low{device, {.init_scale = 0x1p-125f, .backoff_factor = 0.25, .min_scale = 0}};
    rounds(low, "ii");
    fresh.load(low.state());
    CHECK(fresh.get_scale() == 0x1p-129f);

    ht::scaler_state wrong = middle;
    const auto refused = [&] {
        CHECK_THROWS_AS(fresh.load(wrong), ht::argument_error);
        CHECK(fresh.get_scale() == 0x1p-129f);
        wrong = middle;
    };
    wrong.scale = 2, refused();
    wrong.scale = 21, refused();
    wrong.scale = nan, refused();
    wrong.max_scale = infinity, refused();
    wrong.growth_tracker = -1, refused();
    wrong.overflows_until_backoff = 4, refused();
    wrong.overflows_until_backoff = -1, refused();
    wrong.hysteresis = 0, refused();
    // Counters at their ends.
    wrong.growth_tracker = std::numeric_limits<int>::max();
    fresh.load(wrong);
    CHECK(rounds(fresh, ".iii") == std::vector<float>{16, 16, 16, 8});
    CHECK_THROWS_AS(fresh.update(2.0f), ht::argument_error);
    CHECK_THROWS_AS(fresh.update(21.0f), ht::argument_error);
}

TEST_CASE("grad_scaler: disabled, it changes nothing; the step checks that gradients are finite") {
    ht::cpu device{{.threads = 1}};
    trained t{device};
    ht::grad_scaler scaler{device, {.enabled = false}};
    CHECK(scaler.get_scale() == 1);
    CHECK_FALSE(scaler.is_enabled());
    scaler.update();
    const float before = t.model.fc1.weight.master()(0);
    auto grads = t.unscale(scaler, '.');
    ht::clip_grad_value(grads, 0.25f);
    CHECK_FALSE(t.optimizer.step(grads).skipped());
    CHECK(t.model.fc1.weight.master()(0) == before - 0.25f);
    auto more = t.unscale(scaler, 'i');
    CHECK(t.optimizer.step(more).skipped());
    CHECK(t.model.fc1.weight.master()(0) == before - 0.25f);
    scaler.update();
    scaler.update(5.0f);
    CHECK(scaler.overflows() == 0);
    CHECK(scaler.get_scale() == 1);
}

TEST_CASE("grad_scaler: options out of range are refused") {
    ht::cpu device{{.threads = 1}};
    const auto make = [&](const ht::grad_scaler_options& o) { ht::grad_scaler{device, o}; };
    CHECK_THROWS_AS(make({.init_scale = 0}), ht::argument_error);
    CHECK_THROWS_AS(make({.init_scale = infinity}), ht::argument_error);
    CHECK_THROWS_AS(make({.growth_factor = 1}), ht::argument_error);
    CHECK_THROWS_AS(make({.backoff_factor = 1}), ht::argument_error);
    CHECK_THROWS_AS(make({.backoff_factor = 0}), ht::argument_error);
    CHECK_THROWS_AS(make({.growth_interval = 0}), ht::argument_error);
    CHECK_THROWS_AS(make({.hysteresis = 0}), ht::argument_error);
    CHECK_THROWS_AS(make({.init_scale = 1, .min_scale = 2}), ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.growth_factor = 0.5}), "grad_scaler: growth_factor is 0.5; expected more than 1",
                         ht::argument_error);
}

}  // namespace scale_grad_scaler_tests
