// SPDX-License-Identifier: MIT
/// \file
/// The training loop of classify_images and classify_text, for any model, optimizer and loader.
#pragma once

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/data_loader.hpp>
#include <halftone/observe/metrics/progress.hpp>
#include <halftone/observe/metrics/terminal.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/policy/table.hpp>

#include "run.hpp"

namespace ht = halftone;

/// The share of the loader's samples whose largest logit is that of the label. `logits(eval, batch)` are (batch, classes).
template <class Device, class Loader, class Logits>
double accuracy(Device& device, Loader& loader, const Logits& logits) {
    ht::inference eval{device};
    double right = 0, all = 0;
    for (const auto& batch : loader) {
        const auto best = ht::to_host(device, ht::argmax(eval, logits(eval, batch), ht::axes<1>));
        const auto labels = ht::to_host(device, batch.labels);
        for (ht::extent i = 0; i < labels.size(); ++i) right += best(i) == labels(i) ? 1 : 0, all += 1;
    }
    return all == 0 ? 0 : right / all;
}

/// Trains for some epochs, then tests once.
template <class Device, class Model, class Optimizer, class Training, class Test, class Logits>
classifier_result train(const std::string& name, Device& device, Model& model, Optimizer& optimizer, Training& training,
                        Test& test, const Logits& logits, const run_options& o) {
    using clock = std::chrono::steady_clock;
    const auto since = [](clock::time_point t) { return std::chrono::duration<double>(clock::now() - t).count(); };
    const std::int64_t steps = o.epochs * training.batches();
    optimizer.set_schedule({.shape = ht::schedule::cosine, .total_steps = steps, .warmup_ratio = 0.05});
    ht::grad_scaler scaler{device, {.growth_interval = 200, .enabled = ht::model_needs_scaling<Model>}};
    ht::accumulator acc{model};
    ht::tape tape{device};
    ht::progress bar{std::cerr, name, steps, {.columns = ht::terminal_columns(stderr), .unit = "samples"}};
    ht::range_listener* const listener = o.seen->view.listener();
    tape.listen(listener);

    classifier_result result{
        .name = name, .parameters = model.parameters().size(), .policies = ht::policies_of<Model>()};
    std::vector<double> step_seconds;
    double samples = 0;
    const std::int64_t logging_steps = std::max<std::int64_t>(1, steps / 20);
    ht::step_metrics told;
    double told_losses = 0;
    const auto begin = clock::now();
    for (std::int64_t epoch = 0; epoch < o.epochs; ++epoch) {
        double loss_sum = 0, rows = 0;
        for (auto at = training.begin(); at != training.end();) {
            const auto& batch = *at;
            const auto step_begin = clock::now();
            if (listener != nullptr) listener->begin_step(result.steps + 1);
            const auto loss = [&] {
                const ht::scoped_range part(listener, "forward", ht::track::forward);
                return model.loss(tape, batch);
            }();
            const double value = static_cast<double>(loss.item()), count = static_cast<double>(batch.labels.size());
            loss_sum += value * count, rows += count, samples += count;
            {
                const ht::scoped_range part(listener, "backward", ht::track::backward);
                tape.backward(scaler.scale(loss), acc);
            }
            {
                const ht::scoped_range part(listener, "optimizer", ht::track::update);
                auto grads = scaler.unscale(acc.take());
                told.grad_norm = static_cast<double>(ht::clip_grad_norm(grads, 1.0f).value());
                optimizer.step(grads);
                scaler.update();
            }
            step_seconds.push_back(since(step_begin));
            told.step = ++result.steps, told.step_loss = value, told_losses += value;
            told.learning_rate = optimizer.last_lr(), told.loss_scale = static_cast<double>(scaler.get_scale());
            told.tokens_per_second = samples / since(begin), told.step_ms = 1e3 * step_seconds.back();
            told.skipped = optimizer.skipped_steps(), told.peak_bytes = device.memory().usage().peak();
            bar.update({.step = told.step,
                        .loss = value,
                        .learning_rate = told.learning_rate,
                        .loss_scale = ht::model_needs_scaling<Model> ? told.loss_scale : 0,
                        .tokens_per_second = told.tokens_per_second,
                        .bytes = static_cast<double>(told.peak_bytes)},
                       since(begin));
            o.seen->on_step(told);
            if (told.step % logging_steps == 0 || told.step == steps) {
                told.loss = told_losses / static_cast<double>((told.step - 1) % logging_steps + 1), told_losses = 0;
                o.seen->on_log(told);
            }
            {
                const ht::scoped_range part(listener, "data loading", ht::track::data);  // of the next step
                ++at;
            }
            if (listener != nullptr) listener->end_step();
        }
        result.train_loss = loss_sum / rows;
    }
    bar.finish();
    result.seconds = since(begin);
    result.samples_per_second = samples / result.seconds;
    std::nth_element(step_seconds.begin(), step_seconds.begin() + static_cast<std::ptrdiff_t>(step_seconds.size() / 2),
                     step_seconds.end());
    result.step_ms = 1e3 * step_seconds[step_seconds.size() / 2];
    result.waited = training.waited();
    result.peak_bytes = device.memory().usage().peak();
    result.skipped_steps = optimizer.skipped_steps();
    result.loss_scale = static_cast<double>(scaler.get_scale());
    result.accuracy = accuracy(device, test, logits);
    o.seen->on_test("test/accuracy", result.accuracy, result.steps);
    return result;
}
