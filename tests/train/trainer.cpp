// SPDX-License-Identifier: MIT
/// \file
/// The trainer has the bits of the same loop written by hand, and reports it correctly.
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>
#include <halftone/data/token_file.hpp>

#include "train/failing_gpt.hpp"
#include "train/small_gpt.hpp"

namespace train_trainer_tests {

namespace ht = halftone;

const std::string corpus = small::text();

const ht::training_arguments arguments{.per_device_train_batch_size = 4,
                                       .per_device_eval_batch_size = 16,
                                       .gradient_accumulation_steps = 2,
                                       .max_steps = 12,
                                       .learning_rate = 3e-3,
                                       .weight_decay = 0.1,
                                       .lr_scheduler_type = ht::cosine,
                                       .warmup_steps = 2,
                                       .logging_steps = 5};

template <class Policy>
struct run {
    ht::cpu device;
    ht::nn::gpt<Policy> model;
    ht::language_data data;
    ht::trainer<ht::cpu, ht::nn::gpt<Policy>> trainer;

    explicit run(const ht::training_arguments& a, int threads = 1, const ht::nn::gpt_config& config = small::config)
        : device({.threads = threads}),
          model(device, config, 1),
          data(ht::token_view{corpus}, small::options),
          trainer(device, model, a) {}
    std::vector<std::byte> masters() const { return small::masters(model.parameters()); }
};

struct log_keeper : ht::trainer_callback {
    std::vector<ht::trainer_state> steps, logs;
    std::vector<std::int64_t> evaluated_at;
    std::vector<double> evaluations;
    void on_step(const ht::trainer_state& s) override { steps.push_back(s); }
    void on_log(const ht::trainer_state& s) override { logs.push_back(s); }
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& r) override {
        evaluated_at.push_back(s.step);
        evaluations.push_back(r.loss);
    }
};

TEST_CASE_TEMPLATE("the same bits as an explicit loop", Policy, ht::full_fp32, ht::amp_bf16, ht::amp_fp16) {
    run<Policy> one(arguments);
    const ht::training_result result = one.trainer.train(one.data);

    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<Policy> model{device, small::config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::adamw optimizer{device,
                        model,
                        {.lr = 3e-3, .weight_decay = 0.1},
                        {{"*.bias", {.weight_decay = 0}}, {"*.gain", {.weight_decay = 0}}}};
    optimizer.set_schedule({.shape = ht::cosine, .total_steps = 12, .warmup_steps = 2});
    ht::grad_scaler scaler{device, {.enabled = ht::needs_scaling<Policy>}};
    ht::accumulator acc{model};
    ht::tape tape{device};
    double last_five = 0;
    for (std::uint32_t step = 0; step < 12; ++step) {
        for (const auto& micro : data.sample(step, 8).split(2)) {
            auto loss = model.loss(tape, micro);
            tape.backward(scaler.scale(loss / 2), acc);
            if (step >= 7) last_five += static_cast<double>(loss.item()) / 2;
        }
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
    }
    CHECK(one.masters() == small::masters(model.parameters()));
    CHECK(result.steps == 12);
    CHECK(result.skipped_steps == optimizer.skipped_steps());
    CHECK(result.train_loss == doctest::Approx(last_five / 5).epsilon(1e-12));
    CHECK(result.loss_scale == static_cast<double>(scaler.get_scale()));
    CHECK(result.loss_scale == (ht::needs_scaling<Policy> ? 65536.0 : 1.0));
    CHECK(result.end == ht::training_end::finished);
}

TEST_CASE("the loss falls, and evaluation is the mean over the held-out windows") {
    ht::training_arguments a = arguments;
    a.max_steps = 80;
    run<ht::amp_bf16> one(a);
    const double before = one.trainer.evaluate(one.data).loss;
    CHECK(before == doctest::Approx(std::log(32)).epsilon(0.05));
    one.trainer.train(one.data);
    const ht::evaluation_result after = one.trainer.evaluate(one.data);
    CHECK(after.loss < 0.8 * before);
    CHECK(after.tokens == one.data.windows() * small::config.context);

    ht::inference eval{one.device};
    double sum = 0;
    for (ht::extent first = 0; first < one.data.windows(); ++first)
        sum += static_cast<double>(one.model.loss(eval, one.data.window(first, 1)).item());
    // One window at a time sums in another order: 8 and 128 terms of at most 16 each.
    CHECK(after.loss == doctest::Approx(sum / static_cast<double>(one.data.windows())).epsilon(1e-5));
    ht::language_data nothing{ht::token_view{corpus}, {.context = 8, .vocabulary = 32, .held_out = 0}};
    CHECK_THROWS_AS(one.trainer.evaluate(nothing), ht::argument_error);
}

/// The held-out windows of the data as a source of a loader.
struct held_out_windows {
    ht::token_view tokens;
    ht::extent size() const { return (tokens.size() - 1) / small::config.context; }
    std::vector<std::int32_t> operator[](ht::extent i) const {
        std::vector<std::int32_t> ids;
        for (ht::extent k = 0; k <= small::config.context; ++k) ids.push_back(tokens[i * small::config.context + k]);
        return ids;
    }
};

/// A model that does not say what its loss is a mean over.
struct says_no_divisor {};

/// A batch of so many rows that takes any number of tokens.
struct wide_batch {
    ht::extent of_rows, of_tokens;
    ht::extent rows() const { return of_rows; }
    ht::extent size() const { return of_tokens; }
};

TEST_CASE("evaluation over a data loader is that over the same windows, also during training") {
    ht::training_arguments a = arguments;
    a.eval_steps = 6;
    run<ht::amp_bf16> r(a);
    const held_out_windows source{r.data.validation()};
    ht::data_loader loader{source, {.batch_size = 16, .order = ht::row_order::in_order, .num_workers = 1}, ht::collate_windows};
    CHECK(source.size() == r.data.windows());
    const ht::evaluation_result first = r.trainer.evaluate(loader);
    CHECK(first.loss == r.trainer.evaluate(r.data).loss);
    CHECK(first.tokens == r.trainer.evaluate(r.data).tokens);
    CHECK(loader.position().epoch == 1);
    log_keeper told;
    r.trainer.add_callback(told);
    r.trainer.train(r.data, loader);
    CHECK(told.evaluated_at == std::vector<std::int64_t>{6, 12});
    CHECK(told.evaluations[0] < first.loss);
    CHECK(told.evaluations[1] == r.trainer.evaluate(r.data).loss);
}

TEST_CASE("the mean loss of batches without targets is weighted by their rows") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    ht::detail::window_mean mean;
    const float one = 1, four = 4;
    mean.add(eval, eval.to_device(ht::view<const float, 0>{&one, {}}), says_no_divisor{}, wide_batch{1, 700});
    mean.add(eval, eval.to_device(ht::view<const float, 0>{&four, {}}), says_no_divisor{}, wide_batch{2, 6});
    CHECK(mean.value() == 3);
}

TEST_CASE("callbacks receive every step, every log and every evaluation") {
    ht::training_arguments a = arguments;
    a.eval_steps = 4;
    run<ht::full_fp32> one(a);
    log_keeper keeper;
    one.trainer.add_callback(keeper);
    one.trainer.train(one.data);
    REQUIRE(keeper.steps.size() == 12);
    REQUIRE(keeper.logs.size() == 3);
    CHECK(keeper.logs[0].step == 5);
    CHECK(keeper.logs[1].step == 10);
    CHECK(keeper.logs[2].step == 12);
    CHECK(keeper.evaluated_at == std::vector<std::int64_t>{4, 8, 12});
    CHECK(keeper.evaluations.back() == one.trainer.evaluate(one.data).loss);

    // A log has the mean over the steps since the last log; a step has the mean over those up to itself.
    ht::training_arguments b = arguments;
    b.logging_steps = 1;
    run<ht::full_fp32> each(b);
    log_keeper single;
    each.trainer.add_callback(single);
    each.trainer.train(each.data);
    REQUIRE(single.logs.size() == 12);
    double sum = 0;
    for (std::size_t i = 5; i < 10; ++i) {
        sum += single.logs[i].loss;
        CHECK(keeper.steps[i].loss == doctest::Approx(sum / static_cast<double>(i - 4)).epsilon(1e-12));
    }
    CHECK(keeper.logs[1].loss == keeper.steps[9].loss);
    CHECK(keeper.logs[0].learning_rate == doctest::Approx(3e-3 * 0.5 * (1 + std::cos(3.14159265358979 * 2 / 10))));
    CHECK(keeper.steps[0].learning_rate == 0);
    for (const ht::trainer_state& s : keeper.logs) {
        CHECK(s.max_steps == 12);
        CHECK(s.tokens_per_second > 0);
        CHECK(s.step_ms > 0);
        CHECK(s.loss_scale == 1);
        CHECK(s.peak_bytes == one.device.memory().usage().peak());
    }
    CHECK(keeper.steps[11].seconds >= keeper.steps[10].seconds);
}

TEST_CASE("an overflow skips the step and is reported, only where the policy needs a loss scale") {
    ht::training_arguments a = arguments;
    a.scaler.init_scale = 1e30f;
    run<ht::amp_fp16> one(a);
    log_keeper keeper;
    one.trainer.add_callback(keeper);
    const std::vector<std::byte> before = one.masters();
    a.max_steps = 12;
    const ht::training_result result = one.trainer.train(one.data);
    CHECK(result.skipped_steps == 12);
    CHECK(result.loss_scale == doctest::Approx(1e30 / 4096));
    CHECK(one.masters() == before);
    CHECK(result.skips.infinity + result.skips.not_a_number == 12);
    CHECK(keeper.logs[0].skipped == 5);
    CHECK(keeper.logs[0].skips.total() == 5);
    CHECK_MESSAGE(keeper.logs[2].learning_rate == 0, "skipped steps do not move the schedule");

    run<ht::amp_bf16> other(a);
    CHECK(other.trainer.train(other.data).skipped_steps == 0);

    // From the third overflow in a row on the scale is reduced, down to the minimum.
    a.scaler.hysteresis = 3;
    a.scaler.min_scale = 1e30f / 512;
    run<ht::amp_fp16> guarded(a);
    CHECK(guarded.trainer.train(guarded.data).loss_scale == doctest::Approx(1e30 / 512));
    a.scaler.min_scale = 0;
    run<ht::amp_fp16> slow(a);
    CHECK(slow.trainer.train(slow.data).loss_scale == doctest::Approx(1e30 / 1024));
}

TEST_CASE("outliers are skipped if scaler.outlier_factor is set, and the loss scale is not affected") {
    ht::training_arguments a = arguments;
    a.max_steps = 30;
    run<ht::amp_fp16> plain(a);
    CHECK(plain.trainer.train(plain.data).skips == ht::skip_counts{});
    a.scaler.outlier_factor = 1e6;
    a.scaler.outlier_window = 4;
    run<ht::amp_fp16> mild(a);
    CHECK(mild.trainer.train(mild.data).skips == ht::skip_counts{});
    CHECK_MESSAGE(mild.masters() == plain.masters(), "a guard that finds nothing changes nothing");
    a.scaler.outlier_factor = 1e-6;  // one hundredth of that above the mean
    run<ht::amp_fp16> strict(a);
    const ht::training_result result = strict.trainer.train(strict.data);
    CHECK(result.skips.outlier > 2);
    CHECK(result.skips.outlier < 28);
    CHECK(result.skipped_steps == result.skips.outlier);
    CHECK(result.loss_scale == 65536);
    CHECK(strict.masters() != plain.masters());
}

TEST_CASE("a stop ends the run at a step, and resuming gives the same bits") {
    struct stop_after : ht::trainer_callback {
        run<ht::amp_bf16>* target = nullptr;
        std::int64_t step = 0;
        void on_step(const ht::trainer_state& s) override {
            if (s.step == step) target->trainer.stop();
        }
    } stopper;
    run<ht::amp_bf16> whole(arguments), parts(arguments);
    stopper.target = &parts;
    stopper.step = 7;
    log_keeper keeper;
    parts.trainer.add_callback(stopper);
    parts.trainer.add_callback(keeper);
    const ht::training_result result = parts.trainer.train(parts.data);
    CHECK(result.end == ht::training_end::stopped);
    CHECK(result.steps == 7);
    CHECK_MESSAGE(keeper.logs.back().step == 7, "what was not reported yet is");
    CHECK(parts.trainer.train(parts.data).end == ht::training_end::finished);
    CHECK(parts.trainer.state().step == 12);
    whole.trainer.train(whole.data);
    CHECK(parts.masters() == whole.masters());
    CHECK(parts.trainer.train(parts.data).steps == 12);
    CHECK_MESSAGE(parts.masters() == whole.masters(), "a finished run stays as it is");
}

TEST_CASE("an exception ends a step; resuming repeats it from its beginning, with the same bits") {
    ht::training_arguments a = arguments;
    a.scaler.outlier_factor = 100;
    a.scaler.outlier_window = 4;
    a.max_steps = 8;
    // Thrown in the first and second micro-batch of the sixth step, and after the gradients were unscaled.
    struct throws_once : ht::range_listener {
        int left = 6;
        void begin(const char* what, ht::pass) override {
            if (what == std::string("adamw") && --left == 0) throw std::runtime_error("a bad listener");
        }
        void end() override {}
    } listener;
    std::vector<std::byte> expected;
    double loss = 0;
    for (const int fails : {0, 11, 12, -1}) {
        CAPTURE(fails);
        ht::cpu device{{.threads = 1}};
        train_test::failing_gpt model{device, small::config, 1};
        model.left = fails;
        ht::language_data data{ht::token_view{corpus}, small::options};
        ht::trainer trainer{device, model, a};
        if (fails == -1) trainer.listen(&listener);
        if (fails != 0) {
            CHECK_THROWS_AS(trainer.train(data), std::runtime_error);
            CHECK(trainer.state().step == 5);
        }
        const ht::training_result result = trainer.train(data);
        CHECK(result.steps == 8);
        CHECK(result.skips == ht::skip_counts{});
        if (fails == 0) expected = small::masters(model.parameters()), loss = result.train_loss;
        CHECK(small::masters(model.parameters()) == expected);
        CHECK(result.train_loss == loss);
        CHECK(trainer.scaler().state().growth_tracker == 8);
    }
}

TEST_CASE("a stop requested before the first step takes effect") {
    run<ht::full_fp32> one(arguments);
    one.trainer.stop();
    const ht::training_result result = one.trainer.train(one.data);
    CHECK(result.end == ht::training_end::stopped);
    CHECK(result.steps == 0);
    CHECK(result.train_loss == 0);
}

TEST_CASE_TEMPLATE("the same bits with one thread and with two", Policy, ht::full_fp32, ht::amp_bf16, ht::amp_fp16) {
    run<Policy> one(arguments, 1), two(arguments, 2);
    one.trainer.train(one.data);
    two.trainer.train(two.data);
    CHECK(one.masters() == two.masters());
    CHECK(one.trainer.evaluate(one.data).loss == two.trainer.evaluate(two.data).loss);
}

TEST_CASE("weight decay applies to all except biases and gains; the user's groups have precedence") {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> model{device, small::config, 1};
    const auto groups = ht::detail::with_undecayed(model.parameters(), {{"h.0.attn.norm.gain", {.weight_decay = 0.5}}});
    int free = 0;
    for (const ht::store::entry& e : model.parameters().entries()) {
        const auto decay = ht::detail::options_of(e.path, groups).weight_decay;
        const bool is_added = e.path.ends_with(".bias") || e.path.ends_with(".gain");
        CAPTURE(e.path);
        if (e.path == "h.0.attn.norm.gain") {
            CHECK(decay == 0.5);
        } else {
            CHECK(decay.has_value() == is_added);
            free += is_added ? 1 : 0;
        }
    }
    CHECK(free > 0);
}

TEST_CASE("peak bytes by kind are those of the device") {
    run<ht::amp_bf16> one(arguments);
    const ht::training_result r = one.trainer.train(one.data);
    const ht::memory_usage& usage = one.device.memory().usage();
    CHECK(r.peak_bytes == usage.peak());
    for (const auto kind : {ht::memory_kind::master, ht::memory_kind::copy, ht::memory_kind::gradient,
                            ht::memory_kind::moment, ht::memory_kind::activation}) {
        CHECK(r.peak_bytes_of[static_cast<int>(kind)] == usage.peak(kind));
        CHECK(r.peak_bytes_of[static_cast<int>(kind)] > 0);
    }
}

TEST_CASE("ranges cover the operations and the update") {
    struct names : ht::range_listener {
        std::vector<std::string> forward, backward, update;
        int depth = 0;
        void begin(const char* operation, ht::pass p) override {
            (p == ht::pass::forward ? forward : p == ht::pass::backward ? backward : update).emplace_back(operation);
            ++depth;
        }
        void end() override { --depth; }
    } heard;
    ht::training_arguments a = arguments;
    a.max_steps = 1;
    run<ht::full_fp32> one(a);
    one.trainer.listen(&heard);
    one.trainer.train(one.data);
    CHECK(heard.depth == 0);
    CHECK(heard.forward.front() == "batch");
    CHECK(heard.forward.size() == heard.backward.size() + 1);
    CHECK(heard.update == std::vector<std::string>{"unscale", "clip_grad_norm", "adamw"});
}

TEST_CASE("arguments are checked before memory is allocated") {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> model{device, small::config, 1};
    const std::size_t before = device.memory().usage().live();
    using trainer = ht::trainer<ht::cpu, ht::nn::gpt<ht::full_fp32>>;
    CHECK_THROWS_AS(trainer(device, model, {.max_steps = 0}), ht::argument_error);
    CHECK(device.memory().usage().live() == before);
}

TEST_CASE("dropout depends on the seed alone, at any number of threads, and is inactive in evaluation") {
    ht::nn::gpt_config config = small::config;
    config.dropout = 0.2f;
    ht::training_arguments a = arguments;
    a.max_steps = 3;
    run<ht::amp_bf16> plain(a), one(a, 1, config), two(a, 2, config);
    CHECK(one.trainer.evaluate(one.data).loss == plain.trainer.evaluate(plain.data).loss);
    const double loss = one.trainer.train(one.data).train_loss;
    CHECK(two.trainer.train(two.data).train_loss == loss);
    CHECK(one.masters() == two.masters());
    plain.trainer.train(plain.data);
    CHECK(plain.masters() != one.masters());
    a.seed += 1;
    run<ht::amp_bf16> other(a, 1, config);
    CHECK(other.trainer.train(other.data).train_loss != loss);
}

}  // namespace train_trainer_tests
