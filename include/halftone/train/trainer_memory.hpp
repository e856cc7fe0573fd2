// SPDX-License-Identifier: MIT
/// \file
/// The memory of a trainer's run: its budget, its history, and what is known where memory runs out. Included by trainer.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halftone/observe/memory/history.hpp>
#include <halftone/train/planned_run.hpp>
#include <halftone/train/trainer_context.hpp>
#include <halftone/train/training_step.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What a trainer was asked for, which plans of its run need, and what was chosen to stay within its budget.
template <class Device, class Model, class Kind, optimizer_options Options>
class trainer_memory {
    using context_type = trainer_context<Device, Model>;
    using step_type = training_step<Device, Model, Kind, Options>;

  public:
    trainer_memory(context_type& context, const asked_optimizer<Options>& asked, std::vector<parameter_group> groups)
        : context_(&context),
          asked_(asked),
          groups_(std::move(groups)),
          history_(memory_history_in(*context.device, context.arguments.memory.history)) {}

    /// Chooses how the run stays within its budget, and makes model, arguments and optimizer do so. The run evaluates on
    /// `evaluation`. Throws state_error if another optimizer were to replace one that has moments.
    template <class Data, class Evaluation>
    const memory_choice& fit_to_budget(Data& data, Evaluation& evaluation, step_type& step) {
        const memory_choice way = choose_measures(planned(data, evaluation));
        training_arguments& a = context_->arguments;
        const std::string before = a.optim;
        if (const std::string next = way.eight_bit_moments ? asked_.eight_bit_name() : asked_.name; next != before) {
            if (const std::int64_t steps = step.optimizer.base().steps(); steps != 0)
                fail<state_error>(
                    "trainer: the memory.budget takes ", next, " in place of ", before, ", which has taken ", steps,
                    " steps, and whose moments would be lost; call fit_to_budget(data) before a checkpoint is loaded, "
                    "or give the budget of before");
        }
        choice_ = way;
        follow(*choice_, asked_, *context_->model, a);
        if (a.optim != before) {
            const schedule_options schedule = step.optimizer.base().schedule();
            const double rate = step.optimizer.base().state().lr;
            step.optimizer.remake(*context_->device, *context_->model, asked_, a.optim,
                                  with_undecayed(context_->model->parameters(), groups_));
            step.renew_schedule(schedule);
            step.optimizer.base().set_lr(rate);
        }
        return *choice_;
    }
    /// What was chosen; empty: nothing yet.
    const std::optional<memory_choice>& choice() const { return choice_; }

    /// The history that the arguments ask for; nullptr: none.
    memory_history* history() const { return history_.get(); }

    /// Throws the error that is being handled again, with `place` and with what would fit.
    template <class Data>
    [[noreturn]] void explain(const out_of_memory& e, const std::string& place, Data& data) const {
        fail<out_of_memory>(e.what(), place, explained(planned(data, data)));
    }

  private:
    template <class Data, class Evaluation>
    planned_run<Device, Model, Kind, Data, Options, Evaluation> planned(Data& data, Evaluation& evaluation) const {
        return {*context_->device, *context_->model, context_->arguments, asked_, groups_, data, &evaluation};
    }

    context_type* context_;
    asked_optimizer<Options> asked_;
    std::vector<parameter_group> groups_;
    std::unique_ptr<memory_history> history_;
    std::optional<memory_choice> choice_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
