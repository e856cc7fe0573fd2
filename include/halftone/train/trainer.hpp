// SPDX-License-Identifier: MIT
// Longer than 600 lines because a trainer is one class: its steps, evaluations, figures and refusals share its state.
/// \file
/// The training loop: micro-batches, a loss scale if the policy needs one, clipping, an optimizer with its schedule,
/// evaluation, and the figures of all of these.
///
///     ht::language_data data{ht::token_view{corpus}, {.context = 128}};
///     ht::nn::gpt<ht::amp_bf16> model{device, config, seed};
///     ht::trainer trainer{device, model, {.per_device_train_batch_size = 16, .max_steps = 1000, .learning_rate = 1e-3}};
///     const ht::training_result result = trainer.train(data);
///     std::cout << trainer.evaluate(data).loss << " nats a token\n";
///
/// The optimizer is AdamW as the arguments describe it, or any other one, whose options are given and name it:
///
///     ht::trainer trainer{device, model, {.max_steps = 1000}, ht::lion_options{.lr = 1e-4, .weight_decay = 1.0}};
///
/// A step's gradient and loss are those of its whole batch, however its targets are distributed over micro-batches
/// (train/training_data.hpp).
///
/// Data of various lengths (data/length_buckets.hpp) has batches of few shapes. Before the first step, the passes of the
/// largest one run and are dropped, so that the memory for all shapes is there.
///
/// Its memory can be planned (train/memory_budget.hpp) and recorded (observe/memory/history.hpp), by arguments. Where memory
/// runs out, the error says what was asked for, by which operation of which layer, what is held, by which layers, and what
/// would fit.
///
/// Several ranks train together after ht::join(trainer, comm) (train/ranks.hpp).
///
/// The loop is the one in amp.hpp, and uses only public functions. After the first steps a step allocates nothing. On a
/// device that supports capture (a GPU) it is a captured step, and the host waits for the device only after the first
/// step, and when it logs or evaluates.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halftone/observe/memory/history.hpp>
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>
#include <halftone/observe/watch/watched_tape.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/outlier_guard.hpp>
#include <halftone/train/callback.hpp>
#include <halftone/train/captured_step.hpp>
#include <halftone/train/loss_meter.hpp>
#include <halftone/train/planned_run.hpp>
#include <halftone/train/recent.hpp>
#include <halftone/train/scaled_loss.hpp>
#include <halftone/train/token_meter.hpp>
#include <halftone/train/trainer_optimizer.hpp>
#include <halftone/train/trainer_progress.hpp>
#include <halftone/train/trainer_ranks.hpp>
#include <halftone/train/training_arguments.hpp>
#include <halftone/train/training_data.hpp>
#include <halftone/train/window_mean.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// `Kind`: the kind of its tape; `Options`: those of its optimizer, which name it (optim/optimizer_options.hpp).
template <class Device, class Model, class Kind = plain_tape, optimizer_options Options = adamw_options>
class trainer {
    template <class, class, class, class, optimizer_options>
    friend struct detail::planned_run;
    static constexpr bool watches = std::is_same_v<Kind, watched_tape>;

  public:
    /// Allocates gradients and moments. `groups` are appended to those that exempt biases and gains from weight decay.
    /// Model and device must outlive it. Throws argument_error for arguments out of range, and out_of_memory.
    trainer(Device& device, Model& model, const training_arguments& arguments, std::vector<parameter_group> groups = {})
        requires std::same_as<Options, adamw_options>
        : trainer(device, model, arguments, Kind{}, std::move(groups)) {}
    /// The same with another kind of tape: ht::watched, which is needed by arguments that examine values.
    trainer(Device& device, Model& model, const training_arguments& arguments, Kind, std::vector<parameter_group> groups = {})
        requires std::same_as<Options, adamw_options>
        : trainer(device, model, arguments, detail::asked_by(arguments), Kind{}, std::move(groups)) {}
    /// With the optimizer whose options these are, rate and decay among them: throws argument_error for arguments that describe
    /// an AdamW, too.
    template <std::same_as<Options> Given>
    trainer(Device& device, Model& model, const training_arguments& arguments, const Given& options,
            std::vector<parameter_group> groups = {})
        : trainer(device, model, arguments, options, Kind{}, std::move(groups)) {}
    template <std::same_as<Options> Given>
    trainer(Device& device, Model& model, const training_arguments& arguments, const Given& options, Kind,
            std::vector<parameter_group> groups = {})
        : trainer(device, model, arguments, detail::asked_beside(options, arguments), Kind{}, std::move(groups)) {}
    trainer(const trainer&) = delete;
    trainer& operator=(const trainer&) = delete;

  private:
    trainer(Device& device, Model& model, const training_arguments& arguments, const detail::asked_optimizer<Options>& asked, Kind,
            std::vector<parameter_group> groups) try
        : arguments_((check_arguments(arguments, asked.options.lr), detail::check_watching(arguments, watches), detail::begun_within_budget(arguments, asked))),
          device_(&device),
          model_(&model),
          asked_(asked),
          groups_(groups),
          history_(detail::memory_history_in(device, arguments.memory_history)),
          optimizer_(device, model, asked, arguments_.optim, detail::with_undecayed(model.parameters(), std::move(groups))),
          accumulator_(model),
          scaler_(device, {.init_scale = arguments.initial_loss_scale,
                           .growth_interval = arguments.loss_scale_growth_interval,
                           .min_scale = arguments.min_loss_scale,
                           .max_scale = arguments.max_loss_scale,
                           .hysteresis = arguments.loss_scale_hysteresis,
                           .enabled = model_needs_scaling<Model>}),
          tape_(device),
          inference_(device),
          losses_(device, static_cast<std::size_t>(std::min<std::int64_t>(arguments.logging_steps, 4096))),
          captured_(device, one_step{this}),
          step_seconds_(1024) {
        tape_.seed(arguments.seed);
        listen(nullptr);
        optimizer().set_schedule(detail::schedule_of(arguments, asked.options.lr));
        if (arguments.outlier_factor > 0) {
            guard_.emplace(device, outlier_options{.factor = arguments.outlier_factor,
                                                   .window = arguments.outlier_window,
                                                   .warm_up = arguments.outlier_window / 2,
                                                   .of = outlier_of::both});
        }
        if (arguments.checkpointing != 0) detail::set_checkpointing(model, arguments.checkpointing);
        state_.max_steps = arguments.max_steps;
        if constexpr (watches) {
            if (arguments.find_overflow == overflow_search::on) finder_.emplace(device, tape_);
        }
    } catch (const out_of_memory& e) {
        fail<out_of_memory>(e.what(), "; asked for by the trainer, for gradients and moments; the largest layers of the model: ",
                            model.parameters().largest_layers());
    }

  public:
    /// Called by ht::join (train/ranks.hpp): `make(device, accumulator, arguments)` gives the ranks.
    template <class Make>
    void join(const Make& make) {
        if (ranks_ != nullptr) fail<state_error>("trainer: join() was called twice");
        if (arguments_.auto_find_batch_size || arguments_.memory_budget != 0)
            fail<argument_error>("trainer: join() with auto_find_batch_size or a memory_budget, by which each rank would choose "
                                 "micro-batches of its own; give all ranks the same");
        ranks_ = make(*device_, accumulator_, std::as_const(arguments_));
        if (ranks_->size() > 1) capture_refused_ = "trainer: steps of several ranks are not captured";
    }
    /// This rank's number, and how many have joined; 0 and 1 for a trainer alone.
    int rank() const { return ranks_ == nullptr ? 0 : ranks_->rank(); }
    int rank_count() const { return ranks_ == nullptr ? 1 : ranks_->size(); }

    /// The callback must outlive the trainer's last call.
    void add_callback(trainer_callback& callback) { callbacks_.push_back(&callback); }
    /// Sets the listener for ranges of operations, forward and backward, of the parts of an update, and of steps;
    /// nullptr: none. With a listener no step is captured.
    void listen(range_listener* listener) {
        if (history_) {
            history_->also_tell(listener != nullptr ? listener : detail::listener_of(*device_));
            listener = history_.get();
        }
        is_listened_to_ = listener != nullptr && listener != detail::listener_of(*device_);
        listener_ = listener != nullptr ? listener : detail::listener_of(*device_);
        tape_.listen(listener);
        inference_.listen(listener != nullptr && listener->wants_origins() ? listener : nullptr);
    }
    /// The listener that is told, also for parts that callbacks add; nullptr: none.
    range_listener* listener() const { return listener_; }

    /// Trains until max_steps, or until stop(). Called again, it continues after a stop with the next step, after an
    /// exception with the interrupted step, from its beginning. If the data also gives windows, it evaluates every
    /// eval_steps. With a memory_budget it first calls fit_to_budget(). Throws out_of_memory, with what train() knows about
    /// the request that failed.
    template <training_data Data>
    training_result train(Data& data) {
        if constexpr (evaluation_data<Data>) {
            return train_and_evaluate(data, [&] { return evaluate(data); });
        } else {
            return train_and_evaluate(data, no_evaluation{});
        }
    }
    /// The same, evaluating on other data: windows, or a data loader that is used for nothing else.
    template <training_data Data, class Evaluation>
        requires(evaluation_data<Evaluation> || evaluation_loader<Evaluation>)
    training_result train(Data& data, Evaluation& evaluation) {
        return train_and_evaluate(data, [&] { return evaluate(evaluation); });
    }

    /// Chooses how the run stays within its memory_budget, and does so from now on (train/memory_budget.hpp). Throws
    /// budget_error if no allowed measure suffices; argument_error for a model that cannot be planned, since it has no
    /// config() from which it can be made.
    template <training_data Data>
    const memory_choice& fit_to_budget(Data& data) {
        choice_ = detail::choose_measures(planned(data));
        const std::string before = arguments_.optim;
        detail::follow(*choice_, asked_, *model_, arguments_);
        if (arguments_.optim != before) {
            optimizer_.remake(*device_, *model_, asked_, arguments_.optim, detail::with_undecayed(model_->parameters(), groups_));
            optimizer().set_schedule(detail::schedule_of(arguments_, asked_.options.lr));
        }
        captured_.renew("a memory budget has been applied");
        return *choice_;
    }
    /// What was chosen; empty: nothing yet.
    const std::optional<memory_choice>& budget() const { return choice_; }
    /// The history that the arguments ask for; nullptr: none.
    const memory_history* history() const { return history_.get(); }

    /// The mean loss over the data's windows (train/window_mean.hpp).
    template <evaluation_data Data>
    evaluation_result evaluate(Data& data) {
        try {
            return evaluate_first(data, data.windows());
        } catch (const out_of_memory& e) {
            explain(e, data);
        }
    }
    /// The mean loss over the rest of an epoch of a data loader: all of it, for one that is used for nothing else. Of several
    /// ranks each has a loader of its own part.
    template <evaluation_loader Loader>
    evaluation_result evaluate(Loader& loader) {
        return evaluate_each([&](const auto& f) {
            while (const auto* batch = loader.next()) f(*batch, true);
        });
    }

    /// Makes train() return after the current step. May be called from a callback, another thread or a signal handler.
    void stop() { stop_.store(true); }

    /// The trainer's own counters, for a checkpoint; the other parts are below. On a GPU it waits for the device. Throws
    /// state_error after a step that ended with an exception.
    trainer_progress progress() {
        if (is_under_way_) fail<state_error>("trainer: saved in the middle of a step, which an exception has ended");
        read();
        return {.step = state_.step,
                .window_steps = window_steps_,
                .seconds = state_.seconds,
                .step_ms = step_seconds_.size() == 0 ? state_.step_ms : 1e3 * step_seconds_.median(),
                .tokens = total_.tokens,
                .token_seconds = total_.seconds,
                .window_tokens = window_.tokens,
                .window_seconds = window_.seconds,
                .losses = losses_.state()};
    }
    /// Restores them: train() continues with the next step. Throws argument_error for counters that are negative, or
    /// beyond max_steps; nothing changes then.
    void restore(const trainer_progress& p) {
        if (p.step < 0 || p.step > arguments_.max_steps || p.window_steps < 0)
            fail<argument_error>("trainer: a state of step ", p.step, "; expected 0 to max_steps, ", arguments_.max_steps);
        losses_.load(p.losses);
        state_.step = p.step;
        state_.seconds = p.seconds;
        state_.step_ms = p.step_ms;
        window_steps_ = p.window_steps;
        total_ = {p.tokens, p.token_seconds};
        window_ = {p.window_tokens, p.window_seconds};
        unread_ = {};
        is_under_way_ = false;
    }
    /// Calls f(name, part) for each part of a checkpoint of the run (io/checkpoint.hpp).
    template <class F>
    void visit_checkpoint_parts(const F& f) {
        f("model", *model_);
        optimizer_.visit([&](auto& o) { f("optimizer", o); });
        f("scaler", scaler_), f("random", draws_);
        if (guard_) f("outlier_guard", *guard_);
        f("trainer", saved_progress_);
    }

    const trainer_state& state() const { return state_; }
    /// The arguments; those of micro-batches and of the optimizer are what is done now, by a budget or after memory ran out.
    const training_arguments& arguments() const { return arguments_; }
    Model& model() { return *model_; }
    /// Called by what saves the trainer's checkpoints, so that train() knows that there is something.
    void note_keeper() { has_keeper_ = true; }
    /// Calls f(callback) for each callback of this rank, in the order in which they were added: on rank 0 all of them, on others
    /// those of all ranks.
    template <class F>
    void for_each_callback(const F& f) const {
        for (trainer_callback* callback : callbacks_) {
            if (rank() == 0 || callback->is_of_all_ranks()) f(*callback);
        }
    }
    /// The optimizer's name, rate, counts and moments, whichever it is. Its steps are the trainer's.
    detail::optimizer<Device, Model>& optimizer() { return optimizer_.base(); }
    /// Calls f with the optimizer as what it is, such as an ht::lion: for average_parameters(), say, or options().
    template <class F>
    decltype(auto) visit_optimizer(const F& f) {
        return optimizer_.visit(f);
    }
    /// The optimizer if arguments().optim is its form with moments in 8 bits, with its codes; else nullptr.
    auto* optimizer_8bit()
        requires detail::has_eight_bit_form<Options>
    {
        return optimizer_.eight_bit();
    }
    grad_scaler<Device>& scaler() { return scaler_; }
    /// The captured step: how steps were captured, and why.
    const auto& captured() const { return captured_; }
    /// If the model does something that cannot be captured, the message about it; its steps then run uncaptured.
    const std::string& capture_refused() const { return capture_refused_; }

  private:
    using clock = std::chrono::steady_clock;
    static_assert(std::atomic<bool>::is_always_lock_free);

    struct no_evaluation {};
    template <class Data, class Evaluate>
    training_result train_and_evaluate(Data& data, const Evaluate& evaluate_now) {
        if (arguments_.memory_budget != 0 && !choice_) fit_to_budget(data);
        const training_result r = train_steps(data, evaluate_now);
        if (history_ && rank() == 0) history_->dump(arguments_.memory_history);
        return r;
    }

    /// evaluate_now() returns an evaluation_result, or is a no_evaluation.
    template <class Data, class Evaluate>
    training_result train_steps(Data& data, const Evaluate& evaluate_now) {
        constexpr bool may_evaluate = !std::is_same_v<Evaluate, no_evaluation>;
        const auto begin = clock::now();
        const double seconds_before = state_.seconds;
        bool stopped = false;
        if (detail::has_checkpoints(arguments_) && !has_keeper_)
            fail<state_error>("trainer: its arguments ask for checkpoints; include <halftone/train/checkpoints.hpp> and make "
                              "ht::trainer_checkpoints checkpoints{trainer} before train()");
        if constexpr (bucketed_training_data<Data>) {
            captured_.set_most_graphs(std::max(captured_.most_graphs(), static_cast<int>(data.shapes())));
            if (!std::exchange(is_warm_, true)) warm_up(data);
        }
        draws_.begin(rank());
        for_each_callback([&](trainer_callback& c) { c.on_train_begin(state_); });
        while (state_.step < arguments_.max_steps && !(stopped = is_to_stop())) {
            if (unread_.steps == 0) unread_.begin = clock::now();
            if (detail::ranges_exist && listener_ != nullptr) listener_->begin_step(state_.step + 1);
            unread_.tokens += step_in_memory(data);
            if (detail::ranges_exist && listener_ != nullptr) listener_->end_step();
            ++unread_.steps;
            const bool logs = state_.step % arguments_.logging_steps == 0 || state_.step == arguments_.max_steps;
            const bool evaluates = may_evaluate && arguments_.eval_steps != 0 && state_.step % arguments_.eval_steps == 0;
            if (!is_asynchronous || logs || evaluates || state_.step == 1) read();
            state_.seconds = seconds_before + since(begin);
            for_each_callback([&](trainer_callback& c) { c.on_step(state_); });
            if (logs) log();
            if constexpr (may_evaluate) {
                if (evaluates) report(evaluate_now());
            }
            for_each_callback([&](trainer_callback& c) { c.after_step(state_); });
        }
        if (stopped) {
            read();
            for_each_callback([&](trainer_callback& c) { c.on_stop(state_); });
            log();
        }
        for_each_callback([&](trainer_callback& c) { c.on_train_end(state_); });
        return result(stopped ? training_end::stopped : training_end::finished);
    }

    template <class Data>
    evaluation_result evaluate_first(Data& data, extent windows) {
        windows = std::min(windows, data.windows());
        const extent size = arguments_.per_device_eval_batch_size, parts = (windows + size - 1) / size, ranks = rank_count();
        // Ranks take turns. Those that must call the model together repeat the last part where there is none for them.
        const bool is_together = ranks_ && ranks_->calls_together() && parts != 0;
        const extent turns = is_together ? (parts + ranks - 1) / ranks * ranks : parts;
        return evaluate_each([&](const auto& f) {
            for (extent part = rank(); part < turns; part += ranks) f(data.window(std::min(part, parts - 1) * size, size), part < parts);
        });
    }
    /// each(f) calls f(batch, counts) for each batch of this rank.
    template <class Each>
    evaluation_result evaluate_each(const Each& each) {
        const scoped_range here(listener_, "evaluation", track::step);
        const auto begin = clock::now();
        is_evaluating_ = true;
        detail::window_mean mean;
        evaluation_result r;
        each([&](const auto& batch, bool counts) {
            const auto loss = model_->loss(inference_, batch);
            if (!counts) return;
            mean.add(inference_, loss, batch);
            r.tokens += batch.size();
        });
        if (ranks_) {
            mean.set_step(ranks_->add_up(mean.step()));
            r.tokens = ranks_->add_up(r.tokens);
        }
        if (r.tokens == 0) fail<argument_error>("trainer: evaluate() of data without windows; hold some of it out");
        r.loss = mean.value();
        r.seconds = since(begin);
        is_evaluating_ = false;
        return r;
    }

    bool is_to_stop() {
        const bool own = stop_.exchange(false);
        return ranks_ ? ranks_->is_any(own) : own;
    }
    static double since(clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

    /// Whether the device works asynchronously, so that reading from it means waiting.
    static constexpr bool is_asynchronous = capturing_device<Device> || detail::plans_captures<Device>;

    struct one_step {
        trainer* self;
        template <class Batch>
        void operator()(const Batch& batch) const {
            self->take(batch);
        }
    };
    struct same_view {
        template <class View>
        View operator()(const View& v) const {
            return v;
        }
    };

    /// Runs the passes of a micro-batch of the largest shape, and drops what they computed: the memory that they needed
    /// is there from then on, and batches of other shapes fit in. Not done for models with states that a forward pass
    /// changes, such as running statistics.
    template <class Data>
    void warm_up(Data& data) {
        for (const auto& e : model_->parameters().entries()) {
            if (e.is_state) return;
        }
        const range here(listener_, "warm-up", pass::update);
        const random_state draws = tape_.random_state();
        const auto largest = data.largest(arguments_.per_device_train_batch_size);
        {
            const auto loss = model_->loss(tape_, largest);
            tape_.backward(scaler_.scale(of_ranks(loss)), accumulator_);
        }
        drop_step();
        tape_.restore(draws);
    }
    template <class Loss>
    rank_loss<Loss> of_ranks(const Loss& loss) const {
        return {loss, rank_count()};
    }
    template <class Data>
    detail::planned_run<Device, Model, Kind, Data, Options> planned(Data& data) {
        return {*device_, *model_, arguments_, asked_, groups_, data};
    }
    /// Runs one step; where memory runs out, with smaller micro-batches if the arguments say so, as if the run had had
    /// them in this step from its beginning.
    template <class Data>
    extent step_in_memory(Data& data) {
        if (arguments_.auto_find_batch_size && arguments_.per_device_train_batch_size > 1) {
            const random_state before = tape_.random_state();
            while (arguments_.per_device_train_batch_size > 1) {
                try {
                    return step(data);
                } catch (const out_of_memory& e) {
                    take_smaller_batches(e, before);
                }
            }
        }
        try {
            return step(data);
        } catch (const out_of_memory& e) {
            explain(e, data);
        }
    }
    void take_smaller_batches(const out_of_memory& e, const random_state& before) {
        extent parts = 2;  // the least number that divides the rows
        while (arguments_.per_device_train_batch_size % parts != 0) ++parts;
        arguments_.per_device_train_batch_size /= parts;
        arguments_.gradient_accumulation_steps *= parts;
        is_under_way_ = false;
        drop_step();
        tape_.restore(before);
        device_->memory().release_cached();  // what the larger ones needed is in the way of what the smaller ones need
        captured_.renew("micro-batches are smaller, since memory ran out");
        for_each_callback([&](trainer_callback& c) { c.on_out_of_memory(state_, arguments_.per_device_train_batch_size, e.what()); });
    }
    /// Throws the error again with what is known about the request that failed, and what would fit.
    template <class Data>
    [[noreturn]] void explain(const out_of_memory& e, Data& data) {
        if (!device_->memory().has_contents()) throw;  // a plan, whose reader knows
        const std::string place = detail::sentence("; asked for by ", place_of_last(), " in step ", state_.step + 1);
        if (std::exchange(is_under_way_, false)) drop_step();
        fail<out_of_memory>(e.what(), place, detail::explained(planned(data)));
    }
    /// The operation that ran last, its pass and its layer.
    std::string place_of_last() const {
        if (part_ != nullptr && !is_evaluating_) return part_;
        if constexpr (watches) {
            if (std::string place = tape_.hook().place_of_last(); !is_evaluating_ && !place.empty()) return place;
        }
        return (is_evaluating_ ? inference_.graph() : tape_.graph()).place_of_last();
    }

    /// Runs one step; returns its number of tokens.
    template <class Data>
    extent step(Data& data) {
        part_ = "the step's batch";
        is_evaluating_ = false;
        const auto batch = [&] {
            const scoped_range part(listener_, "data loading", track::data);
            const range here(listener_, "batch", pass::forward);
            return data.sample(static_cast<std::uint32_t>(state_.step),
                               arguments_.per_device_train_batch_size * arguments_.gradient_accumulation_steps * rank_count());
        }();
        if (std::exchange(is_under_way_, true)) drop_step();
        if (looks_now()) {
            observed_step(batch);
        } else if constexpr (is_asynchronous && requires { batch.with_views(same_view{}); }) {
            if (arguments_.capture_steps == step_capture::off || is_listened_to_ || !capture_refused_.empty()) {
                take(batch);
            } else {
                try {
                    captured_(batch);
                } catch (const capture_error& e) {
                    // A user's model that runs uncaptured, but cannot be captured. The capture had no effect on the
                    // device.
                    capture_refused_ = e.what();
                    drop_step();
                    take(batch);
                }
            }
        } else {
            take(batch);
        }
        is_under_way_ = false;
        ++state_.step;
        ++window_steps_;
        return batch.size();
    }

    /// Cleans up after a step that ended with an exception.
    void drop_step() {
        tape_.clear();
        accumulator_.discard();
        losses_.discard();
        if (guard_) guard_->discard();
        scaler_.load(scaler_.state());  // begins a new round
        if constexpr (watches) tape_.begin_step();
    }

    bool looks_now() const {
        return watches && arguments_.numerics_steps > 0 && (state_.step + 1) % arguments_.numerics_steps == 0;
    }
    /// Runs a step uncaptured, with its tensors observed.
    template <class Batch>
    void observed_step(const Batch& batch) {
        if constexpr (watches) {
            numerics_collector<Device> numerics(*device_, tape_);
            const float scale = scaler_.get_scale();
            take(batch);
            const scoped_range here(listener_, "numerics", track::files);
            const numerics_view view = numerics.take(*model_, scale, state_.step + 1);
            for_each_callback([&](trainer_callback& c) { c.on_numerics(state_, view); });
        }
    }

    template <class Batch>
    void take(const Batch& batch) {
        part_ = nullptr;
        const extent own = arguments_.gradient_accumulation_steps, micro_batches = own * rank_count();
        extent index = 0;
        for (const auto& micro : batch.split(micro_batches)) {
            if (index++ / own != rank()) continue;
            const auto loss = [&] {
                const scoped_range part(listener_, "forward", track::forward);
                return model_->loss(tape_, micro);
            }();
            if constexpr (counts_targets<Batch> && counts_targets<decltype(micro)>) {
                if (micro_batches > 1) {
                    const auto part = of_ranks(loss * share_of(tape_, micro, batch));
                    learn(part, part);
                    continue;
                }
            }
            learn(of_ranks(loss / static_cast<float>(micro_batches)), loss);
        }
        if (ranks_) {
            losses_.set_step(ranks_->add_up(losses_.step()));
            if (guard_) guard_->set_step(ranks_->add_up(guard_->step()));
        }
        update();
        losses_.end_step();
    }
    template <class Part, class Told>
    void learn(const Part& part, const Told& told) {  // of a batch's loss; means are computed from these
        const scoped_range whole(listener_, "backward", track::backward);
        tape_.backward(scaler_.scale(part), accumulator_);
        detail::check_scaled<Model>(accumulator_);
        losses_.add(told);
        if (guard_) guard_->add(told);
    }

    void update() {
        const scoped_range whole(listener_, "optimizer", track::update);
        part_ = "unscale (update)";
        auto gradients = [&] {
            const range here(listener_, "unscale", pass::update);
            return scaler_.unscale(accumulator_.take());
        }();
        if (guard_) guard_->watch(gradients);
        if (arguments_.max_grad_norm > 0) {
            part_ = "clip_grad_norm (update)";
            const range here(listener_, "clip_grad_norm", pass::update);
            norm_ = clip_grad_norm(gradients, static_cast<float>(arguments_.max_grad_norm));
        }
        part_ = optimizer_.part();
        const range here(listener_, optimizer().name(), pass::update);
        if (listener_ != nullptr && listener_->wants_work())
            listener_->work(optimizer_.work(device_->memory().usage(), model_->parameters()));
        [[maybe_unused]] const auto outcome = optimizer_.visit([&](auto& o) { return o.step(gradients); });
        if constexpr (watches) {
            if (finder_) finder_->end_step(outcome);
        }
        scaler_.update();
    }

    /// Reads the figures from the device, and the clock, when the steps that were not read yet have finished.
    void read() {
        if (unread_.steps == 0) return;
        state_.loss = losses_.mean();
        state_.step_loss = losses_.last();
        if (norm_) state_.grad_norm = static_cast<double>(norm_->value());
        state_.learning_rate = optimizer().last_lr();
        state_.loss_scale = static_cast<double>(scaler_.get_scale());
        state_.skipped = optimizer().skipped_steps();
        state_.skips = optimizer().skips();
        const double seconds = since(unread_.begin);
        for (std::int64_t i = 0; i < std::min<std::int64_t>(unread_.steps, 1024); ++i)
            step_seconds_.add(seconds / static_cast<double>(unread_.steps));
        window_.add(unread_.tokens, seconds), total_.add(unread_.tokens, seconds);
        state_.tokens_per_second = window_.rate();
        unread_ = {};
        if constexpr (watches) {
            if (finder_) {
                for (const overflow& o : finder_->take(*model_)) tell_overflow(o);
            }
        }
    }

    void tell_overflow(const overflow& o) const {
        if (o.is_skipped()) for_each_callback([&](trainer_callback& c) { c.on_overflow(state_, o); });
    }

    void report(const evaluation_result& r) {
        state_.seconds += r.seconds;
        for_each_callback([&](trainer_callback& c) { c.on_evaluate(state_, r); });
    }

    /// Ends a window of steps that are reported together.
    void log() {
        if (window_steps_ == 0) return;
        const scoped_range here(listener_, "log", track::files);
        state_.step_ms = 1e3 * step_seconds_.median();
        state_.peak_bytes = device_->memory().usage().peak();
        for_each_callback([&](trainer_callback& c) { c.on_log(state_); });
        window_ = {};
        losses_.restart();
        window_steps_ = 0;
    }

    training_result result(training_end end) {
        const memory_usage& usage = device_->memory().usage();
        training_result r{.steps = state_.step,
                          .skipped_steps = optimizer().skipped_steps(),
                          .skips = optimizer().skips(),
                          .train_loss = losses_.latest_mean(),
                          .tokens_per_second = total_.rate(),
                          .step_ms = step_seconds_.size() == 0 ? state_.step_ms : 1e3 * step_seconds_.median(),
                          .loss_scale = static_cast<double>(scaler_.get_scale()),
                          .peak_bytes = usage.peak(),
                          .end = end};
        for (int kind = 0; kind < memory_kinds; ++kind)
            r.peak_bytes_of[kind] = usage.peak(static_cast<memory_kind>(kind));
        return r;
    }

    training_arguments arguments_;
    Device* device_;
    Model* model_;
    detail::asked_optimizer<Options> asked_;
    std::vector<parameter_group> groups_;
    std::unique_ptr<memory_history> history_;
    std::optional<memory_choice> choice_;
    const char* part_ = nullptr;  ///< of a step, for messages, where it is not in an operation of the tape
    bool is_evaluating_ = false;
    detail::chosen_optimizer<Device, Model, Options> optimizer_;
    accumulator<through_scaler, types<Model>> accumulator_;
    grad_scaler<Device> scaler_;
    std::optional<outlier_guard<Device>> guard_;
    tape<Device, Kind> tape_;
    struct no_finder {};
    std::conditional_t<watches, std::optional<overflow_finder<Device>>, no_finder> finder_;
    inference<Device> inference_;
    std::vector<trainer_callback*> callbacks_;
    range_listener* listener_ = nullptr;
    bool is_listened_to_ = false;  ///< by another listener than that of a plan
    std::atomic<bool> stop_{false};

    trainer_state state_;
    loss_meter<Device> losses_;
    std::optional<measured_norm<Device>> norm_;  ///< of the last step; none without clipping
    captured_step<Device, one_step> captured_;
    std::string capture_refused_;
    std::unique_ptr<detail::trainer_ranks> ranks_;  ///< that it has joined; after the accumulator, to which they refer
    bool has_keeper_ = false;
    bool is_warm_ = false;       ///< warm_up() was called
    bool is_under_way_ = false;  ///< a step has begun; still true after an exception in it
    detail::recent step_seconds_;
    detail::token_meter window_, total_;
    detail::progress_part<trainer> saved_progress_{this};
    detail::draws_part<tape<Device, Kind>> draws_{&tape_, arguments_.seed};
    std::int64_t window_steps_ = 0;
    struct {
        std::int64_t steps = 0;
        extent tokens = 0;
        clock::time_point begin{};
    } unread_;  ///< steps whose figures have not been read yet
};

template <class Device, class Model>
trainer(Device&, Model&, const training_arguments&) -> trainer<Device, Model>;
template <class Device, class Model>
trainer(Device&, Model&, const training_arguments&, std::vector<parameter_group>) -> trainer<Device, Model>;
template <class Device, class Model>
trainer(Device&, Model&, const training_arguments&, watched_tape) -> trainer<Device, Model, watched_tape>;
template <class Device, class Model>
trainer(Device&, Model&, const training_arguments&, watched_tape, std::vector<parameter_group>)
    -> trainer<Device, Model, watched_tape>;
template <class Device, class Model, optimizer_options Options>
trainer(Device&, Model&, const training_arguments&, const Options&) -> trainer<Device, Model, plain_tape, Options>;
template <class Device, class Model, optimizer_options Options>
trainer(Device&, Model&, const training_arguments&, const Options&, std::vector<parameter_group>)
    -> trainer<Device, Model, plain_tape, Options>;
template <class Device, class Model, optimizer_options Options>
trainer(Device&, Model&, const training_arguments&, const Options&, watched_tape)
    -> trainer<Device, Model, watched_tape, Options>;
template <class Device, class Model, optimizer_options Options>
trainer(Device&, Model&, const training_arguments&, const Options&, watched_tape, std::vector<parameter_group>)
    -> trainer<Device, Model, watched_tape, Options>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
