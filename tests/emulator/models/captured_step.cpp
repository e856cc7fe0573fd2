// SPDX-License-Identifier: MIT
/// \file
/// Captured steps on the emulated GPU: they have the bits of uncaptured steps; when steps are captured, and why; and calls that
/// cannot be captured.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/tensor/tensor.hpp>
#include <halftone/train/trainer.hpp>

#include "nn/pack.hpp"
#include "train/captured.hpp"
#include "train/overflow_checks.hpp"
#include "train/unequal.hpp"

namespace emulator_models_captured_step_tests {

namespace ht = halftone;
using ht::step_run;
using machine = ht::emulator::device;
static_assert(ht::capturing_device<machine>);
static_assert(!ht::capturing_device<ht::cpu>);

/// Other files look for races in these kernels.
ht::emulator::options quick(std::uint64_t seed) { return {.seed = seed, .check = ht::emulator::checking::values_only}; }

TEST_CASE("captured step: the same bits as uncaptured steps, whatever changes on the device meanwhile") {
    machine one{quick(1)}, two{quick(99)};
    captured::check_same_bits(one, two);
}

TEST_CASE("captured step: says why each step was captured again or ran uncaptured") {
    machine device{quick(3)};
    captured::check_reasons(device);
}

TEST_CASE("captured step: a host value stays that of the capture") {
    machine one{quick(1)}, two{quick(2)};
    captured::check_host_values(one, two);
}

TEST_CASE("captured step: nothing inside waits, uploads or allocates; the device's state is unchanged") {
    machine device{quick(5)};
    captured::check_refusals(device);
}

TEST_CASE("captured step: a frozen parameter is not trained on by a replay") {
    machine device{quick(4)};
    captured::parts<ht::amp_fp16, machine> p(device);
    ht::captured_step step{device, [&](const captured::batch& b) { return p.body(b); }};
    captured::ids ids;
    for (int t = 0; t < 3; ++t) step(ids.next(1, 4));
    CHECK(step.replays() == 1);
    CHECK(p.model.parameters().freeze("h.0.mlp.up") == 2);
    CHECK_THROWS_AS(step(ids.next(1, 4)), ht::state_error);  // the optimizer's own sentence
    CHECK(step.replays() == 1);
}

TEST_CASE("captured step: packed documents, different ones in every replay, with the bits of plain steps") {
    const std::vector<std::int32_t> lengths[] = {{5, 3, 6}, {1, 8, 5}, {0, 6, 8}, {7, 7, 0}, {5, 3, 6}};
    machine one{quick(6)}, two{quick(7)};
    captured::parts<ht::amp_fp16, machine> plain(one), other(two);
    const auto body = [](auto& p, const ht::packed_batch& b) {
        auto loss = p.model.loss(p.tape, b);
        p.tape.backward(p.scaler.scale(loss), p.acc);
        p.update();
        return loss;
    };
    ht::captured_step step{two, [&](const ht::packed_batch& b) { return body(other, b); }};
    for (const auto& all : lengths) {
        const nn_test::pack docs(all, 23);
        const float want = body(plain, docs.in_a_row()).item();
        step(docs.in_a_row());
        CHECK(step.loss() == want);
        CHECK(plain.bytes() == other.bytes());
    }
    CHECK((step.captures() == 1 && step.replays() >= 2));
    const nn_test::pack fewer({6, 8}, 23);
    CHECK(step(fewer.in_a_row()) == step_run::uncaptured);
    CHECK(captured::mentions(step.reason(), "a step of (1, 14), (1, 14), (3)"));
}

TEST_CASE("captured step: results that would outlive the step are refused") {
    machine device{quick(6)};
    ht::tape tape{device};
    ht::variable<float, 1> kept;
    ht::captured_step step{device, [&](const ht::const_view<float, 1>& x) {
                               kept = tape.make<float>(x.shape(), false);
                               return tape.make<float>(ht::shape<0>{}, false);
                           }};
    const std::vector<float> x(40);
    CHECK_THROWS_AS(step(ht::view{x.data(), ht::shape<1>{40}}), ht::state_error);
    CHECK_THROWS_AS(step(ht::const_view<float, 1>{x.data(), {4}, {2}}), ht::shape_error);
}

/// sum = the sum of x, times the one number of `factor`.
struct weighted_sum {
    const float* x;
    ht::extent count;
    const float* factor;
    float* sum;
    HALFTONE_HD void operator()() const {
        *sum = 0;
        for (ht::extent i = 0; i < count; ++i) *sum += *factor * x[i];
    }
};

TEST_CASE(
    "captured step: views of several types as inputs, of host memory and of the device's, and steps that return "
    "nothing") {
    machine device{quick(7)};
    const ht::tensor<float, 1> sum(device.memory(), {1}), on_device(device.memory(), {3});
    ht::captured_step step{device, [&](const ht::const_view<float, 1>& x, const ht::const_view<float, 0>& factor) {
                               device.run(weighted_sum{x.data(), x.size(), factor.data(), sum.data()});
                           }};
    const auto result = [&] {
        float value;
        device.memory().read(&value, sum.data(), sizeof value);
        return value;
    };
    for (int t = 1; t < 6; ++t) {
        const std::vector<float> x{static_cast<float>(t), 2, 3};
        const float factor = 2;
        step(ht::view{x.data(), ht::shape<1>{3}}, ht::view{&factor, ht::shape<0>{}});
        CHECK(result() == static_cast<float>(2 * t + 10));
    }
    CHECK(step.replays() == 3);
    const float factor = 1;
    device.fill(on_device.data(), 3, 7.0f);
    CHECK(step(on_device.const_view(), ht::view{&factor, ht::shape<0>{}}) == step_run::replayed);
    CHECK(result() == 21);
    CHECK_THROWS_AS(step.loss(), ht::state_error);
}

TEST_CASE("captured step: on the CPU each step runs uncaptured, with the same bits and interface") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 1}};
    captured::parts<ht::amp_fp16, ht::cpu> plain(one), other(two);
    ht::captured_step step{two, [&](const captured::batch& b) { return other.body(b); }};
    captured::ids ids;
    std::uint64_t allocations = 0;
    for (int t = 0; t < 6; ++t) {
        const captured::batch b = ids.next(2, 5);
        const float loss = plain.body(b).item();
        CHECK(step(b) == step_run::uncaptured);
        CHECK(step.loss() == loss);
        CHECK(other.bytes() == plain.bytes());
        if (t == 1) allocations = two.memory().usage().allocations();
    }
    CHECK(two.memory().usage().allocations() == allocations);
    CHECK(step.reason() == "uncaptured: this device does not capture steps");
    CHECK(step.captures() == 0);
    const std::string corpus(100, 'a');
    ht::language_data data{ht::token_view{corpus}, {.context = 8, .vocabulary = 128}};
    ht::captured_step counts{two, [](const ht::language_batch& b) { CHECK(b.size() == 16); }};
    counts(data.sample(0, 2));
}

/// Keeps what a run tells.
struct log_keeper : ht::trainer_callback {
    std::vector<ht::trainer_state> steps, logs;
    std::vector<double> evaluations;
    void on_step(const ht::trainer_state& s) override { steps.push_back(s); }
    void on_log(const ht::trainer_state& s) override { logs.push_back(s); }
    void on_evaluate(const ht::trainer_state&, const ht::evaluation_result& r) override {
        evaluations.push_back(r.loss);
    }
};

TEST_CASE("trainer on the emulated machine: captured steps have the bits and the logs of uncaptured ones") {
    std::string corpus;
    for (int i = 0; i < 300; ++i) corpus += static_cast<char>((i * i + i / 7) % 16);
    const auto train = [&](ht::step_capture capture) {
        machine device{quick(8)};
        ht::nn::gpt<ht::amp_fp16> model{device, captured::with_dropout(0.1f), 1};
        ht::language_data data{ht::token_view{corpus}, {.context = 8, .vocabulary = 23, .held_out = 0.05}};
        ht::trainer trainer{device, model,
                            {.per_device_train_batch_size = 1, .gradient_accumulation_steps = 2, .max_steps = 9, .learning_rate = 1e-2, .warmup_steps = 2, .logging_steps = 4, .eval_steps = 6,
                             .capture_steps = capture, .scaler = {.init_scale = 0x1p22f, .growth_interval = 2}}};
        log_keeper keeper;
        trainer.add_callback(keeper);
        const ht::training_result result = trainer.train(data);
        CHECK(trainer.captured().captures() == (capture == ht::step_capture::off ? 0 : 1));
        CHECK(trainer.captured().replays() == (capture == ht::step_capture::off ? 0 : 7));
        REQUIRE(keeper.logs.size() == 3);
        REQUIRE(keeper.steps.size() == 9);
        // Values in device memory are read at logs and at evaluations only.
        CHECK(keeper.steps[2].step == 3);
        CHECK(keeper.steps[0].loss > 2);
        CHECK(keeper.steps[2].loss == keeper.steps[0].loss);
        CHECK(keeper.steps[3].loss != keeper.steps[0].loss);
        CHECK(keeper.steps[3].loss == keeper.logs[0].loss);
        CHECK(keeper.steps[4].loss == keeper.logs[0].loss);
        CHECK(keeper.steps[5].loss != keeper.logs[0].loss);
        CHECK(result.step_ms > 0);
        CHECK(result.tokens_per_second > 0);
        std::vector<double> all{result.train_loss, result.loss_scale, static_cast<double>(result.skipped_steps)};
        for (const ht::trainer_state& s : keeper.logs)
            all.insert(all.end(), {s.loss, s.learning_rate, s.loss_scale, static_cast<double>(s.skipped)});
        all.insert(all.end(), keeper.evaluations.begin(), keeper.evaluations.end());
        all.push_back(trainer.evaluate(data).loss);
        CHECK(result.skipped_steps > 0);
        CHECK(result.skipped_steps < 9);
        return all;
    };
    CHECK(train(ht::step_capture::automatic) == train(ht::step_capture::off));
}

TEST_CASE("trainer on the emulated machine: unequal numbers of targets, different in each replay, give the same bits") {
    const auto train = [](ht::step_capture capture) {
        machine device{quick(8)};
        ht::training_arguments a = unequal::few_steps(6);
        a.capture_steps = capture;
        a.scaler.outlier_factor = 6;
        a.scaler.outlier_window = 4;
        return unequal::train<ht::amp_fp16>(device, {8, 0, 3, 1, 0}, 4, a);
    };
    const unequal::ended captured = train(ht::step_capture::automatic), plain = train(ht::step_capture::off);
    CHECK(captured.masters == plain.masters);
    CHECK(captured.result.train_loss == plain.result.train_loss);
    CHECK(captured.evaluated == plain.evaluated);
    CHECK(captured.result.train_loss > 0);
    CHECK(captured.result.skipped_steps == plain.result.skipped_steps);
}

TEST_CASE("trainer on the emulated machine: unequal numbers of targets have the loss and the update of their batch") {
    machine device{quick(9)};
    const unequal::ended whole = unequal::train<ht::full_fp32>(device, {8, 0, 1, 1}, 1, unequal::few_steps(1)),
                         parts = unequal::train<ht::full_fp32>(device, {8, 0, 1, 1}, 4, unequal::few_steps(1));
    CHECK(parts.result.train_loss ==
          doctest::Approx(whole.result.train_loss).epsilon(unequal::rounding_bound(2)));
    CHECK(parts.evaluated == doctest::Approx(whole.evaluated).epsilon(1e-5));
    CHECK(unequal::apart(parts, whole) < unequal::largest_difference);
}

/// A user's model that uploads a value in each step.
struct brings_over : ht::nn::gpt<ht::amp_fp16> {
    using gpt::gpt;

    template <class Context, class Batch>
    ht::variable<float, 0> loss(Context&& ctx, const Batch& batch) const {
        const float something = 1;
        ctx.root().to_device(ht::const_view<float, 1>{&something, {1}});
        return gpt::loss(ctx, batch);
    }
};

TEST_CASE(
    "trainer on the emulated machine: steps that cannot be captured run uncaptured, and so do steps with a range "
    "listener") {
    const std::string corpus(100, 'a' - 96);
    struct : ht::range_listener {
        int begun = 0;
        void begin(const char*, ht::pass) override { ++begun; }
        void end() override {}
    } listener;
    std::vector<double> losses;
    for (ht::range_listener* l :
         {static_cast<ht::range_listener*>(nullptr), static_cast<ht::range_listener*>(&listener)}) {
        machine device{quick(9)};
        brings_over model{device, captured::config, 1};
        ht::language_data data{ht::token_view{corpus}, {.context = 8, .vocabulary = 23, .held_out = 0}};
        ht::trainer trainer{device, model, {.per_device_train_batch_size = 1, .max_steps = 3, .learning_rate = 1e-2}};
        trainer.listen(l);
        losses.push_back(trainer.train(data).train_loss);
        CHECK(trainer.captured().captures() == 0);
        CHECK(captured::mentions(trainer.capture_refused(), "the host writes device memory") == (l == nullptr));
        CHECK(trainer.optimizer().steps() == 3);
    }
    CHECK(losses[0] == losses[1]);
    CHECK(listener.begun > 0);
}

TEST_CASE(
    "overflow on a GPU: captured steps tell the step and the layer, without a wait, and have the bits of plain ones") {
    using namespace overflow_checks;
    machine gpu{quick(1)}, other{quick(2)};
    loop<ht::amp_fp16, machine> l(gpu);
    loop<ht::amp_fp16, machine, ht::plain_tape> plain(other);
    ht::overflow_finder finder{gpu, l.tape};
    ht::captured_step step{gpu, [&](const overflow_checks::batch& b) { finder.end_step(l.step(b)); }};
    std::vector<step_run> runs;
    for (int n = 1; n <= 4; ++n) {
        if (n == 3) l.scale_weight("h.0.mlp.up.weight", 0x1p21f), plain.scale_weight("h.0.mlp.up.weight", 0x1p21f);
        if (n == 4) l.scaler.update(0x1p40f);
        runs.push_back(step(l.whole()));
        if (n < 4) plain.step(plain.whole());
        if (n == 3) l.scale_weight("h.0.mlp.up.weight", 0x1p-21f), plain.scale_weight("h.0.mlp.up.weight", 0x1p-21f);
    }
    CHECK(runs ==
          std::vector<step_run>{step_run::uncaptured, step_run::captured, step_run::replayed, step_run::replayed});
    CHECK(l.parameters() == plain.parameters());
    const auto all = finder.take();
    REQUIRE(all.size() == 2);
    CHECK(all[0].step == 3);
    CHECK(all[0].is_skipped());
    CHECK(all[0].by.layer == "h.0.mlp");
    CHECK(all[0].pass == ht::pass::forward);
    CHECK(all[1].step == 4);
    CHECK(all[1].is_skipped());
    CHECK(all[1].by.layer == "head");
    CHECK(all[1].pass == ht::pass::backward);
    CHECK(all[1].micro_batch == 1);
}

TEST_CASE("overflow on a GPU: the report names an input of the operation that was already not finite") {
    machine gpu{quick(1)};
    overflow_checks::tells_a_bad_input(gpu);
}

TEST_CASE("overflow on a GPU: the first operation is found in each pass") {
    machine gpu{quick(1)};
    overflow_checks::finds_each<ht::amp_fp16>(gpu, 61);
}

TEST_CASE("numerics on a GPU: counts of a known tensor are exact") {
    machine gpu{quick(1)};
    overflow_checks::loop<ht::amp_fp16, machine> l(gpu);
    ht::numerics_collector numerics{gpu, l.tape};
    const std::vector<float> values{1.0f, -3.0f, 0.0f, 1e-30f, 70000.0f};
    const auto x = l.tape.to_device(ht::const_view<float, 1>(values.data(), {5}));
    ht::mul(l.tape, x, x);
    ht::mul(l.tape, x, x);  // before it the first one is looked at
    const auto rows = numerics.take(l.model).rows;
    CHECK(rows.size() == 1 + l.model.parameters().entries().size());
    CHECK(rows[0].by.operation == "mul");
    CHECK(rows[0].counts.elements() == 5);
    CHECK(rows[0].counts.zeros == 2);
    CHECK(rows[0].counts.largest == 4.9e9f);
    CHECK(rows[0].counts.count(0, 0) + rows[0].counts.count(3, 3) + rows[0].counts.count(32, 32) == 3);
    CHECK(rows[1].is_weight());
    CHECK(rows[1].underflowed == 0);
}

}  // namespace emulator_models_captured_step_tests
