// SPDX-License-Identifier: MIT
/// \file
/// The parts of a trainer, and what they tell of a run. Included by trainer.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halftone/train/step_runner.hpp>
#include <halftone/train/trainer_evaluation.hpp>
#include <halftone/train/trainer_figures.hpp>
#include <halftone/train/trainer_memory.hpp>
#include <halftone/train/trainer_progress.hpp>
#include <halftone/train/training_step.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What a trainer consists of; ht::trainer says how they run.
template <class Device, class Model, class Kind, optimizer_options Options>
class trainer_parts {
  public:
    trainer_parts(const trainer_parts&) = delete;
    trainer_parts& operator=(const trainer_parts&) = delete;

    /// This rank's number, and how many have joined; 0 and 1 for a trainer alone.
    int rank() const { return context_.rank(); }
    int rank_count() const { return context_.rank_count(); }

    /// The callback must outlive the trainer's last call.
    void add_callback(trainer_callback& callback) { context_.callbacks.push_back(&callback); }
    /// Calls f(callback) for each callback of this rank, in the order in which they were added: on rank 0 all of them, on others
    /// those of all ranks.
    template <class F>
    void for_each_callback(const F& f) const {
        context_.for_each_callback(f);
    }
    /// Sets the listener for ranges of operations, forward and backward, of the parts of an update, and of steps;
    /// nullptr: none. With a listener no step is captured.
    void listen(range_listener* listener) {
        range_listener* const of_device = listener_of(*context_.device);
        if (memory_history* const history = memory_.history()) {
            history->also_tell(listener != nullptr ? listener : of_device);
            listener = history;
        }
        context_.is_listened_to = listener != nullptr && listener != of_device;
        context_.listener = listener != nullptr ? listener : of_device;
        step_.tape.listen(listener);
        evaluation_.inference().listen(listener != nullptr && listener->wants_origins() ? listener : nullptr);
    }
    /// The listener that is told, also for parts that callbacks add; nullptr: none.
    range_listener* listener() const { return context_.listener; }

    const trainer_state& state() const { return context_.state; }
    /// The arguments; those of micro-batches and of the optimizer are what is done now, by a budget or after memory ran out.
    const training_arguments& arguments() const { return context_.arguments; }
    Model& model() { return *context_.model; }
    /// How the run stays within its memory budget; empty: nothing has been chosen yet.
    const std::optional<memory_choice>& budget() const { return memory_.choice(); }
    /// The history that the arguments ask for; nullptr: none.
    const memory_history* history() const { return memory_.history(); }

    /// The optimizer's name, rate, counts and moments, whichever it is. Its steps are the trainer's.
    detail::optimizer<Device, Model>& optimizer() { return step_.optimizer.base(); }
    /// Calls f with the optimizer as what it is, such as an ht::lion: for average_parameters(), say, or options().
    template <class F>
    decltype(auto) visit_optimizer(const F& f) {
        return step_.optimizer.visit(f);
    }
    /// The optimizer if arguments().optim is its form with moments in 8 bits, with its codes; else nullptr.
    auto* optimizer_8bit()
        requires has_eight_bit_form<Options>
    {
        return step_.optimizer.eight_bit();
    }
    grad_scaler<Device>& scaler() { return step_.scaler; }
    /// The captured step: how steps were captured, and why.
    const auto& captured() const { return runner_.captured(); }
    /// If the model does something that cannot be captured, the message about it; its steps then run uncaptured.
    const std::string& capture_refused() const { return runner_.refused(); }

    /// The trainer's own counters, for a checkpoint; the other parts are below. On a GPU it waits for the device. Throws
    /// state_error after a step that ended with an exception.
    trainer_progress progress() {
        if (runner_.is_under_way()) fail<state_error>("trainer: saved in the middle of a step, which an exception has ended");
        return figures_.progress();
    }
    /// Restores them: train() continues with the next step. Throws argument_error for counters that are negative, or
    /// beyond max_steps, if it is known; nothing changes then.
    void restore(const trainer_progress& p) {
        const std::int64_t most = arguments().max_steps < 0 ? INT32_MAX : arguments().max_steps;
        if (p.step < 0 || p.step > most || p.window_steps < 0)
            fail<argument_error>("trainer: a state of step ", p.step, "; expected 0 to max_steps, ", most);
        figures_.restore(p);
        runner_.restart();
    }
    /// Calls f(name, part) for each part of a checkpoint of the run (io/checkpoint.hpp).
    template <class F>
    void visit_checkpoint_parts(const F& f) {
        f("model", model());
        visit_optimizer([&](auto& o) { f("optimizer", o); });
        f("scaler", step_.scaler), f("random", draws_);
        if (step_.guard) f("outlier_guard", *step_.guard);
        f("trainer", saved_progress_);
    }
    /// Adds a sentence to the notes of train()'s result.
    void add_note(const std::string& line) {
        if (!context_.notes.empty()) context_.notes += '\n';
        context_.notes += line;
    }
    /// Called by what saves the trainer's checkpoints, so that train() knows that there is something.
    void note_checkpoints() { has_checkpoints_ = true; }

  protected:
    using step_type = training_step<Device, Model, Kind, Options>;

    trainer_parts(Device& device, Model& model, const training_arguments& arguments, const asked_optimizer<Options>& asked,
                  std::vector<parameter_group> groups)
        : context_{checked(arguments, asked), &device, &model},
          memory_(context_, asked, groups),
          step_(context_, asked, with_undecayed(model.parameters(), std::move(groups))),
          evaluation_(context_),
          runner_(context_, step_),
          figures_(context_, step_) {
        listen(nullptr);
        if (arguments.gradient_checkpointing) set_checkpointing(model, arguments.memory.checkpoint_every);
        context_.state.max_steps = arguments.max_steps;
    }
    ~trainer_parts() = default;

    /// Sets the number of steps of a run of num_train_epochs on this data.
    template <class Data>
    void count_steps([[maybe_unused]] Data& data) {
        if (!is_by_epochs_) return;
        if constexpr (epoch_data<Data>) {
            training_arguments& a = context_.arguments;
            context_.epoch_rows = data.epoch_rows();
            if (context_.epoch_rows < 1) fail<argument_error>("trainer: num_train_epochs of data that has no rows");
            context_.epoch_steps = steps_of_epoch(context_.epoch_rows, context_.rows_of_step());
            const std::int64_t steps = steps_of_epochs(a.num_train_epochs, context_.epoch_steps), before = std::exchange(a.max_steps, -1);
            if (context_.state.step > steps)
                fail<argument_error>("trainer: a state of step ", context_.state.step, "; expected 0 to ", steps, ", the steps of ",
                                     a.num_train_epochs, " epochs");
            a.max_steps = context_.state.max_steps = steps;
            context_.state.epoch = context_.epochs();
            if (steps == before) return;
            check_schedule(a, step_.rate());
            step_.renew_schedule(step_.optimizer.base().schedule());
            runner_.captured().renew("the run's number of steps is another");
        } else if constexpr (requires(std::uint32_t epoch, extent first) {
                                 data.epoch_rows();
                                 data.of_epoch(epoch, first, first);
                             } && !has_row_parts<decltype(data.sample(0, 1))>) {
            fail<argument_error>("training_arguments: max_steps is -1, a run of num_train_epochs, and a batch of the data has no "
                                 "rows() or no part(first, count), by which the last step of an epoch is divided "
                                 "(train/training_data.hpp); expected both, or max_steps");
        } else {
            fail<argument_error>("training_arguments: max_steps is -1, a run of num_train_epochs, and the data has no epochs "
                                 "(train/training_data.hpp); expected max_steps");
        }
    }

    /// Notes which rows the steps have. Throws argument_error if those of a run that has been restored were others.
    template <class Data>
    void note_order([[maybe_unused]] Data& data) {
        const std::string now = order_of(data), before = std::exchange(context_.order, now);
        if (!std::exchange(context_.is_restored, false) || context_.state.step == 0 || before.empty() || now.empty() || before == now)
            return;
        context_.order = before;
        context_.is_restored = true;
        if constexpr (!requires { data.order_text(); } && !requires { requires Data::draws_at_random; })
            fail<argument_error>("trainer: the run that is resumed had ", before, ", and here are ", now, ": unless the data draws rows "
                                 "at random, some would come twice, and others not at all; expected the same, data with `static "
                                 "constexpr bool draws_at_random = true` (train/training_data.hpp), or .resume_with = "
                                 "ht::program_arguments");
        fail<argument_error>("trainer: the run that is resumed had ", before, ", and here are ", now, ": some rows would come twice, "
                             "and others not at all; expected the same, or .resume_with = ht::program_arguments");
    }

    trainer_context<Device, Model> context_;
    trainer_memory<Device, Model, Kind, Options> memory_;
    step_type step_;
    trainer_evaluation<Device, Model> evaluation_;
    step_runner<Device, Model, step_type> runner_;
    trainer_figures<Device, Model, step_type> figures_;
    std::unique_ptr<trainer_ranks> ranks_;  ///< that it has joined; after the step, to whose gradients they refer
    draws_part<tape<Device, Kind>> draws_{&step_.tape, arguments().seed};
    progress_part<trainer_parts> saved_progress_{this};
    bool has_checkpoints_ = false;
    bool is_by_epochs_ = arguments().max_steps < 0;

  private:
    /// Which rows the steps of this run have; empty: random ones.
    template <class Data>
    std::string order_of([[maybe_unused]] Data& data) const {
        if constexpr (requires { requires Data::draws_at_random; }) {
            if (context_.epoch_steps == 0) return {};
        }
        std::string text = sentence(context_.rows_of_step(), " rows a step");
        if constexpr (requires { data.order_text(); }) text += " of " + data.order_text();
        // Else sample() has steps across the ends of epochs, or may have.
        if constexpr (!requires { requires Data::steps_are_of_epochs; } && !requires { requires Data::draws_at_random; }) {
            if (context_.epoch_steps != 0 && context_.epoch_rows % context_.rows_of_step() != 0) text += ", each epoch by itself";
        }
        return text;
    }
    static training_arguments checked(const training_arguments& a, const asked_optimizer<Options>& asked) {
        check_arguments(a, asked.options.lr);
        check_watching(a, step_type::watches);
        return begun_within_budget(a, asked);
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
