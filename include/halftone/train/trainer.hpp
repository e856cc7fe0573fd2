// SPDX-License-Identifier: MIT
/// \file
/// The training loop, written once: micro-batches, loss scale where the policy needs one, clipping, AdamW with its schedule,
/// evaluation, and the figures of all that.
///
///     ht::language_data data{ht::token_view{corpus}, {.context = 128}};
///     ht::nn::gpt<ht::amp_bf16> model{device, config, seed};
///     ht::trainer trainer{device, model, {.per_device_train_batch_size = 16, .max_steps = 1000, .learning_rate = 1e-3}};
///     const ht::training_result result = trainer.train(data);
///     std::cout << trainer.evaluate(data).loss << " nats a token\n";
///
/// The loop is the one that stands in amp.hpp, and does nothing that a user's own could not do. A steady step allocates
/// nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include <halftone/autodiff/tape.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/train/callback.hpp>
#include <halftone/train/training_arguments.hpp>

namespace halftone::inline HALFTONE_ABI {

/// Gives the batch of a step: `rows` rows, which split into micro-batches for the model's loss. size() counts its tokens.
template <class Data>
concept training_data = requires(Data& data, std::uint32_t step, extent rows) {
    data.sample(step, rows).split(rows);
    data.sample(step, rows).size();
};

/// Gives numbered windows to measure with, a batch at a time.
template <class Data>
concept evaluation_data = requires(Data& data, extent first, extent rows) {
    data.windows();
    data.window(first, rows).size();
};

namespace detail {

/// The latest numbers of a series, as many as it has room for.
class recent {
  public:
    explicit recent(std::size_t capacity) : values_(capacity), sorted_(capacity) {}

    void add(double value) { values_[count_++ % values_.size()] = value; }
    std::size_t size() const { return std::min(count_, values_.size()); }
    double mean() const {
        double sum = 0;
        for (std::size_t i = 0; i < size(); ++i) sum += values_[i];
        return size() == 0 ? 0 : sum / static_cast<double>(size());
    }
    double median() {
        if (size() == 0) return 0;
        const auto end = std::copy_n(values_.begin(), size(), sorted_.begin());
        const auto middle = sorted_.begin() + static_cast<std::ptrdiff_t>(size() / 2);
        std::nth_element(sorted_.begin(), middle, end);
        return *middle;
    }

  private:
    std::vector<double> values_, sorted_;
    std::size_t count_ = 0;
};

/// Weight decay pulls towards zero what multiplies; what is added, and gains around one, are left alone.
inline std::vector<parameter_group> with_undecayed(const store& parameters, std::vector<parameter_group> groups) {
    std::vector<parameter_group> all;
    for (const char* pattern : {"*.bias", "*.gain"}) {
        const auto named = [&](const store::entry& e) { return path_matches(pattern, e.path.c_str()); };
        if (std::any_of(parameters.entries().begin(), parameters.entries().end(), named)) all.push_back({pattern, {.weight_decay = 0}});
    }
    all.insert(all.end(), groups.begin(), groups.end());
    return all;
}

}  // namespace detail

template <class Device, class Model>
class trainer {
  public:
    /// Takes memory for gradients and moments. `groups` come after those that keep weight decay from biases and gains.
    /// Model and device must outlive it. Throws argument_error for arguments out of range, out_of_memory.
    trainer(Device& device, Model& model, const training_arguments& arguments, std::vector<parameter_group> groups = {})
        : arguments_((check(arguments), arguments)),
          device_(&device),
          model_(&model),
          optimizer_(device, model,
                     adamw_options{.lr = arguments.learning_rate,
                                   .beta1 = arguments.adam_beta1,
                                   .beta2 = arguments.adam_beta2,
                                   .epsilon = arguments.adam_epsilon,
                                   .weight_decay = arguments.weight_decay,
                                   .seed = arguments.seed},
                     detail::with_undecayed(model.parameters(), std::move(groups))),
          accumulator_(model),
          scaler_(device, {.init_scale = arguments.initial_loss_scale,
                           .growth_interval = arguments.loss_scale_growth_interval,
                           .enabled = model_needs_scaling<Model>}),
          tape_(device),
          inference_(device),
          losses_(static_cast<std::size_t>(std::min<std::int64_t>(arguments.logging_steps, 4096))),
          step_seconds_(1024) {
        optimizer_.set_schedule({.shape = arguments.lr_scheduler_type,
                                 .total_steps = arguments.max_steps,
                                 .warmup_steps = arguments.warmup_steps,
                                 .warmup_ratio = arguments.warmup_ratio,
                                 .final_ratio = arguments.final_lr_ratio});
        state_.max_steps = arguments.max_steps;
    }
    trainer(const trainer&) = delete;
    trainer& operator=(const trainer&) = delete;

    /// The callback must outlive the trainer's last call.
    void add_callback(trainer_callback& callback) { callbacks_.push_back(&callback); }
    /// Where operations, forward and backward, and the parts of an update are reported; nullptr: nowhere.
    void listen(range_listener* listener) {
        listener_ = listener;
        tape_.listen(listener);
    }

    /// Trains until max_steps, or until stop(); called again after a stop it goes on. Where the data also gives windows,
    /// it evaluates every eval_steps.
    template <training_data Data>
    training_result train(Data& data) {
        const auto begin = clock::now();
        const double seconds_before = state_.seconds;
        bool stopped = false;
        while (state_.step < arguments_.max_steps && !(stopped = stop_.exchange(false))) {
            const auto step_begin = clock::now();
            const extent tokens = step(data);
            const double seconds = since(step_begin);
            step_seconds_.add(seconds);
            window_.add(tokens, seconds), total_.add(tokens, seconds);
            state_.seconds = seconds_before + since(begin);
            report(data);
        }
        if (stopped) log();
        return result(stopped ? training_end::stopped : training_end::finished);
    }

    /// The mean loss over the data's windows, without recording anything.
    template <evaluation_data Data>
    evaluation_result evaluate(Data& data) {
        const auto begin = clock::now();
        double sum = 0;
        evaluation_result r;
        for (extent first = 0; first < data.windows(); first += arguments_.per_device_eval_batch_size) {
            const auto batch = data.window(first, arguments_.per_device_eval_batch_size);
            sum += static_cast<double>(model_->loss(inference_, batch).item()) * static_cast<double>(batch.size());
            r.tokens += batch.size();
        }
        if (r.tokens == 0) fail<argument_error>("trainer: evaluate() of data without windows; hold some of it out");
        r.loss = sum / static_cast<double>(r.tokens);
        r.seconds = since(begin);
        return r;
    }

    /// train() returns after the present step. May be called from a callback, another thread or a signal handler.
    void stop() { stop_.store(true); }

    const trainer_state& state() const { return state_; }
    const training_arguments& arguments() const { return arguments_; }
    adamw<Device, Model>& optimizer() { return optimizer_; }
    grad_scaler<Device>& scaler() { return scaler_; }

  private:
    using clock = std::chrono::steady_clock;
    static_assert(std::atomic<bool>::is_always_lock_free);

    /// Tokens and the time they took.
    struct meter {
        double tokens = 0, seconds = 0;
        void add(extent n, double s) { tokens += static_cast<double>(n), seconds += s; }
        double rate() const { return seconds > 0 ? tokens / seconds : 0; }
    };

    static double since(clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

    /// One step; returns its tokens.
    template <class Data>
    extent step(Data& data) {
        const extent micro_batches = arguments_.gradient_accumulation_steps;
        const auto batch = [&] {
            const range here(listener_, "batch", pass::forward);
            return data.sample(static_cast<std::uint32_t>(state_.step), arguments_.per_device_train_batch_size * micro_batches);
        }();
        double sum = 0;
        for (const auto& micro : batch.split(micro_batches)) {
            const auto loss = model_->loss(tape_, micro);
            tape_.backward(scaler_.scale(loss / static_cast<float>(micro_batches)), accumulator_);
            sum += static_cast<double>(loss.item());
        }
        update();
        ++state_.step;
        losses_.add(sum / static_cast<double>(micro_batches));
        window_loss_ += sum / static_cast<double>(micro_batches);
        ++window_steps_;
        return batch.size();
    }

    void update() {
        auto gradients = [&] {
            const range here(listener_, "unscale", pass::update);
            return scaler_.unscale(accumulator_.take());
        }();
        if (arguments_.max_grad_norm > 0) {
            const range here(listener_, "clip_grad_norm", pass::update);
            clip_grad_norm(gradients, static_cast<float>(arguments_.max_grad_norm));
        }
        state_.learning_rate = optimizer_.lr();
        const range here(listener_, "adamw", pass::update);
        optimizer_.step(gradients);
        scaler_.update();
    }

    template <class Data>
    void report(Data& data) {
        state_.loss = window_loss_ / static_cast<double>(window_steps_);
        state_.tokens_per_second = window_.rate();
        state_.loss_scale = static_cast<double>(scaler_.get_scale());
        state_.skipped = optimizer_.skipped_steps();
        for (trainer_callback* callback : callbacks_) callback->on_step(state_);
        if (state_.step % arguments_.logging_steps == 0 || state_.step == arguments_.max_steps) log();
        if constexpr (evaluation_data<Data>) {
            if (arguments_.eval_steps != 0 && state_.step % arguments_.eval_steps == 0) {
                const evaluation_result r = evaluate(data);
                state_.seconds += r.seconds;
                for (trainer_callback* callback : callbacks_) callback->on_evaluate(state_, r);
            }
        }
    }

    /// Ends a window of steps that are reported together.
    void log() {
        if (window_steps_ == 0) return;
        state_.step_ms = 1e3 * step_seconds_.median();
        state_.peak_bytes = device_->memory().usage().peak();
        for (trainer_callback* callback : callbacks_) callback->on_log(state_);
        window_ = {};
        window_loss_ = 0;
        window_steps_ = 0;
    }

    training_result result(training_end end) {
        const memory_usage& usage = device_->memory().usage();
        training_result r{.steps = state_.step,
                          .skipped_steps = optimizer_.skipped_steps(),
                          .train_loss = losses_.mean(),
                          .tokens_per_second = total_.rate(),
                          .step_ms = 1e3 * step_seconds_.median(),
                          .loss_scale = static_cast<double>(scaler_.get_scale()),
                          .peak_bytes = usage.peak(),
                          .end = end};
        for (int kind = 0; kind < memory_kinds; ++kind) r.peak_bytes_of[kind] = usage.peak(static_cast<memory_kind>(kind));
        return r;
    }

    training_arguments arguments_;
    Device* device_;
    Model* model_;
    adamw<Device, Model> optimizer_;
    accumulator<through_scaler, types<Model>> accumulator_;
    grad_scaler<Device> scaler_;
    tape<Device> tape_;
    inference<Device> inference_;
    std::vector<trainer_callback*> callbacks_;
    range_listener* listener_ = nullptr;
    std::atomic<bool> stop_{false};

    trainer_state state_;
    detail::recent losses_, step_seconds_;
    meter window_, total_;
    double window_loss_ = 0;
    std::int64_t window_steps_ = 0;
};

template <class Device, class Model>
trainer(Device&, Model&, const training_arguments&) -> trainer<Device, Model>;
template <class Device, class Model>
trainer(Device&, Model&, const training_arguments&, std::vector<parameter_group>) -> trainer<Device, Model>;

}  // namespace halftone::inline HALFTONE_ABI
