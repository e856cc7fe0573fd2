// SPDX-License-Identifier: MIT
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
///
/// Its parts: what a step computes (training_step.hpp) and how it is run (step_runner.hpp), figures (trainer_figures.hpp),
/// evaluations (trainer_evaluation.hpp), memory (trainer_memory.hpp).
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include <halftone/train/trainer_parts.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// `Kind`: the kind of its tape; `Options`: those of its optimizer, which name it (optim/optimizer_options.hpp).
template <class Device, class Model, class Kind = plain_tape, optimizer_options Options = adamw_options>
class trainer : public detail::trainer_parts<Device, Model, Kind, Options> {
    template <class, class, class, class, optimizer_options, class>
    friend struct detail::planned_run;
    using parts = detail::trainer_parts<Device, Model, Kind, Options>;
    using parts::context_, parts::memory_, parts::step_, parts::evaluation_, parts::runner_, parts::figures_, parts::ranks_,
        parts::draws_, parts::has_checkpoints_;

  public:
    using parts::arguments, parts::budget, parts::for_each_callback, parts::history, parts::listener, parts::rank, parts::state;

    /// Allocates gradients and moments. `groups` are appended to those that exempt biases and gains from weight decay.
    /// Model and device must outlive it. Throws argument_error for arguments out of range, and out_of_memory.
    trainer(Device& device, Model& model, const training_arguments& arguments, std::vector<parameter_group> groups = {})
        requires std::same_as<Options, adamw_options>
        : trainer(device, model, arguments, Kind{}, std::move(groups)) {}
    /// A trainer with another kind of tape: ht::watched, which is needed by arguments that examine values.
    trainer(Device& device, Model& model, const training_arguments& arguments, Kind, std::vector<parameter_group> groups = {})
        requires std::same_as<Options, adamw_options>
        : trainer(device, model, arguments, detail::asked_by(arguments), Kind{}, std::move(groups)) {}
    /// A trainer with the optimizer whose options these are, rate and decay among them: throws argument_error for arguments
    /// that describe an AdamW, too.
    template <std::same_as<Options> Given>
    trainer(Device& device, Model& model, const training_arguments& arguments, const Given& options,
            std::vector<parameter_group> groups = {})
        : trainer(device, model, arguments, options, Kind{}, std::move(groups)) {}
    /// A trainer with the optimizer whose options these are, and another kind of tape.
    template <std::same_as<Options> Given>
    trainer(Device& device, Model& model, const training_arguments& arguments, const Given& options, Kind,
            std::vector<parameter_group> groups = {})
        : trainer(device, model, arguments, detail::asked_beside(options, arguments), Kind{}, std::move(groups)) {}

    /// Called by ht::join (train/ranks.hpp): `make(device, accumulator, arguments)` gives the ranks.
    template <class Make>
    void join(const Make& make) {
        if (ranks_ != nullptr) fail<state_error>("trainer: join() was called twice");
        if (arguments().auto_find_batch_size || arguments().memory.budget != 0)
            fail<argument_error>("trainer: join() with auto_find_batch_size or a memory.budget, by which each rank would choose "
                                 "micro-batches of its own; give all ranks the same");
        ranks_ = make(*context_.device, step_.accumulator, std::as_const(context_.arguments));
        context_.ranks = ranks_.get();
        if (ranks_->size() > 1) runner_.refuse_capture("trainer: steps of several ranks are not captured");
    }
    /// Trains until max_steps, the end of num_train_epochs, or stop(). Called again, it continues after a stop with the next step, after an
    /// exception with the interrupted step, from its beginning: layers' states, such as running statistics, and random draws are
    /// those of then. If the data also gives windows, it evaluates every eval_steps. With a memory.budget it first calls
    /// fit_to_budget(). Throws out_of_memory, with what train() knows about the request that failed; state_error after an
    /// exception in the optimizer's update, which cannot be repeated, since parameters may have changed.
    template <training_data Data>
    training_result train(Data& data) {
        if constexpr (evaluation_data<Data>) {
            return train_and_evaluate(data, data, [&] { return evaluate(data); });
        } else {
            return train_and_evaluate(data, data, no_evaluation{});
        }
    }
    /// Trains on `data`, evaluating on other data: windows, or a data loader that is used for nothing else.
    template <training_data Data, class Evaluation>
        requires(evaluation_data<Evaluation> || evaluation_loader<Evaluation>)
    training_result train(Data& data, Evaluation& evaluation) {
        return train_and_evaluate(data, evaluation, [&] { return evaluate(evaluation); });
    }

    /// Chooses how the run stays within its memory.budget, and does so from now on (train/memory_budget.hpp). Throws
    /// budget_error if no allowed measure suffices; argument_error for a model that cannot be planned, since it has no
    /// config() from which it can be made; state_error if the choice were to replace an optimizer that has taken steps.
    template <training_data Data>
    const memory_choice& fit_to_budget(Data& data) {
        return fit_to_budget(data, data);
    }
    /// Chooses what to recompute so that a run fits the budget that evaluates on other data: windows. (Batches of a
    /// data loader are not planned.)
    template <training_data Data, class Evaluation>
    const memory_choice& fit_to_budget(Data& data, Evaluation& evaluation) {
        parts::count_steps(data);
        const memory_choice& choice = memory_.fit_to_budget(data, evaluation, step_);
        runner_.captured().renew("a memory budget has been applied");
        return choice;
    }
    /// The mean loss over the data's windows (train/window_mean.hpp).
    template <evaluation_data Data>
    evaluation_result evaluate(Data& data) {
        try {
            return evaluation_.of_windows(data, data.windows());
        } catch (const out_of_memory& e) {
            explain(e, data);
        }
    }
    /// The mean loss over the rest of an epoch of a data loader: all of it, for one that is used for nothing else. Of several
    /// ranks each has a loader of its own part.
    template <evaluation_loader Loader>
    evaluation_result evaluate(Loader& loader) {
        return evaluation_.of_each([&](const auto& f) {
            while (const auto* batch = loader.next()) f(*batch, true);
        });
    }

    /// Makes train() return after the current step. May be called from a callback, another thread or a signal handler.
    void stop() { stop_.store(true); }

  private:
    static_assert(std::atomic<bool>::is_always_lock_free);
    struct no_evaluation {};

    trainer(Device& device, Model& model, const training_arguments& arguments, const detail::asked_optimizer<Options>& asked, Kind,
            std::vector<parameter_group> groups) try
        : parts(device, model, arguments, asked, std::move(groups)) {
    } catch (const out_of_memory& e) {
        fail<out_of_memory>(e.what(), "; asked for by the trainer, for gradients and moments; the largest layers of the model: ",
                            model.parameters().largest_layers());
    }
    /// evaluate_now() returns an evaluation_result of `evaluation`, or is a no_evaluation.
    template <class Data, class Evaluation, class Evaluate>
    training_result train_and_evaluate(Data& data, Evaluation& evaluation, const Evaluate& evaluate_now) {
        parts::count_steps(data);
        parts::note_order(data);
        if (arguments().memory.budget != 0 && !budget()) fit_to_budget(data, evaluation);
        const training_result r = train_steps(data, evaluate_now);
        if (history() != nullptr && rank() == 0) history()->dump(arguments().memory.history);
        return r;
    }
    template <class Data, class Evaluate>
    training_result train_steps(Data& data, const Evaluate& evaluate_now) {
        trainer_state& state = context_.state;
        bool stopped = false;
        if (detail::has_checkpoints(arguments()) && !has_checkpoints_)
            fail<state_error>("trainer: its arguments ask for checkpoints; include <halftone/train/checkpoints.hpp> and make "
                              "ht::trainer_checkpoints checkpoints{trainer} before train()");
        runner_.warm_up(data);
        draws_.begin(rank());
        figures_.begin_run();
        for_each_callback([&](trainer_callback& c) { c.on_train_begin(state); });
        while (state.step < arguments().max_steps && !(stopped = is_to_stop())) {
            figures_.begin_step();
            if (detail::ranges_exist && listener() != nullptr) listener()->begin_step(state.step + 1);
            figures_.end_step(run_step(data));
            if (detail::ranges_exist && listener() != nullptr) listener()->end_step();
            end_step(evaluate_now);
        }
        if (stopped) {
            figures_.read();
            for_each_callback([&](trainer_callback& c) { c.on_stop(state); });
            figures_.log();
        }
        for_each_callback([&](trainer_callback& c) { c.on_train_end(state); });
        return figures_.result(stopped ? training_end::stopped : training_end::finished);
    }
    /// What follows a step: figures, logs, an evaluation, checkpoints.
    template <class Evaluate>
    void end_step(const Evaluate& evaluate_now) {
        constexpr bool may_evaluate = !std::is_same_v<Evaluate, no_evaluation>;
        const trainer_state& state = context_.state;
        const training_arguments& a = arguments();
        const bool logs = state.step % a.logging_steps == 0 || state.step == a.max_steps;
        const bool evaluates = may_evaluate && a.eval_steps != 0 && state.step % a.eval_steps == 0;
        if (!decltype(runner_)::is_asynchronous || logs || evaluates || state.step == 1) figures_.read();
        figures_.note_time();
        for_each_callback([&](trainer_callback& c) { c.on_step(state); });
        if (logs) figures_.log();
        if constexpr (may_evaluate) {
            if (evaluates) figures_.report(evaluate_now());
        }
        for_each_callback([&](trainer_callback& c) { c.after_step(state); });
    }
    template <class Data>
    extent run_step(Data& data) {
        try {
            return runner_.run(data);
        } catch (const out_of_memory& e) {
            explain(e, data);
        }
    }
    /// Throws the error that is being handled again with what is known about the request that failed, and what would fit.
    template <class Data>
    [[noreturn]] void explain(const out_of_memory& e, Data& data) {
        if (!context_.device->memory().has_contents()) throw;  // a plan, whose reader knows
        const std::string place = detail::sentence("; asked for by ", step_.place_of_last(evaluation_.inference()), " in step ",
                                                   state().step + 1);
        runner_.drop();
        memory_.explain(e, place, data);
    }
    bool is_to_stop() {
        const bool own = stop_.exchange(false);
        return ranks_ ? ranks_->is_any(own) : own;
    }

    std::atomic<bool> stop_{false};
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
