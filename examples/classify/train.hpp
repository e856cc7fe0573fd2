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
run_result train(const std::string& name, Device& device, Model& model, Optimizer& optimizer, Training& training,
                 Test& test, const Logits& logits, const run_options& o) {
    using clock = std::chrono::steady_clock;
    const auto since = [](clock::time_point t) { return std::chrono::duration<double>(clock::now() - t).count(); };
    const std::int64_t steps = o.epochs * training.batches();
    optimizer.set_schedule({.shape = ht::schedule::cosine, .total_steps = steps, .warmup_ratio = 0.05});
    ht::grad_scaler scaler{device, {.growth_interval = 200, .enabled = ht::model_needs_scaling<Model>}};
    ht::accumulator acc{model};
    ht::tape tape{device};
    ht::progress bar{std::cerr, name, steps, {.columns = ht::terminal_columns(stderr)}};

    run_result result{.name = name, .parameters = model.parameters().size()};
    std::vector<double> step_seconds;
    double samples = 0;
    const auto begin = clock::now();
    for (std::int64_t epoch = 0; epoch < o.epochs; ++epoch) {
        double loss_sum = 0, rows = 0;
        for (const auto& batch : training) {
            const auto step_begin = clock::now();
            const auto loss = model.loss(tape, batch);
            const double value = static_cast<double>(loss.item()), count = static_cast<double>(batch.labels.size());
            loss_sum += value * count, rows += count, samples += count;
            tape.backward(scaler.scale(loss), acc);
            auto grads = scaler.unscale(acc.take());
            ht::clip_grad_norm(grads, 1.0f);
            optimizer.step(grads);
            scaler.update();
            step_seconds.push_back(since(step_begin));
            bar.update({.step = ++result.steps,
                        .loss = value,
                        .learning_rate = optimizer.last_lr(),
                        .loss_scale = ht::model_needs_scaling<Model> ? static_cast<double>(scaler.get_scale()) : 0},
                       since(begin));
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
    return result;
}
