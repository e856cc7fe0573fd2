// SPDX-License-Identifier: MIT
/// \file
/// The plan of a trainer's own run: its model, made again from its configuration, and its arguments, on a twin of the
/// device that computes nothing (observe/memory/plan.hpp). Included by trainer.hpp.
///
///     const detail::planned_run<Device, Model, Kind, Data> run{*device, *model, arguments, groups, data};
///     run.plan(way, limit).peak_bytes                     // of the process's device, with what else is in use there
///
/// Two steps are planned, and if the run evaluates, an evaluation of two batches, whose workspace is there in the step
/// behind it: the peak of any number of them, if their batches have equal shapes.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <halftone/autodiff/op/loss.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/optim/groups.hpp>
#include <halftone/train/callback.hpp>
#include <halftone/train/memory_budget.hpp>
#include <halftone/train/trainer_optimizer.hpp>
#include <halftone/train/training_data.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

template <class Device, class Model, class Kind, optimizer_options Options>
class trainer;

namespace detail {

/// A model that can be made again from its configuration, on a twin of its device.
template <class Model, class Device>
concept made_of_config = requires(typename planning_twin<Device>::type& twin, const Model& model) {
    Model(twin, model.config());
};
/// A model of blocks that can be computed again in the backward pass.
template <class Model>
concept made_of_blocks = requires(Model& model, extent length) {
    model.checkpoint_where([](int) { return true; });
    { model.work(length) } -> std::convertible_to<nn::token_work>;
};
/// A model whose loss keeps logits or not.
template <class Model>
concept has_logits_to_keep = requires(Model& model) { model.store_logits(keep_logits::never); };

/// Makes a model recompute every n-th block. Throws argument_error for a model that cannot.
template <class Model>
void set_checkpointing(Model& model, [[maybe_unused]] int every) {
    if constexpr (requires { model.checkpoint_every(every); }) {
        model.checkpoint_every(every);
    } else {
        fail<argument_error>("training_arguments: gradient_checkpointing for a model that has no checkpoint_every(n); call "
                             "ht::checkpoint in the model itself");
    }
}

/// The arguments with which a trainer is made: where its budget may choose moments in 8 bits, it begins with these, which
/// take less memory than what may replace them.
template <optimizer_options Options>
training_arguments begun_within_budget(training_arguments a, const asked_optimizer<Options>& asked) {
    a.optim = asked.name;
    if (a.memory.budget != 0 && a.memory.measures.eight_bit_moments && asked.has_eight_bits())
        a.optim = asked.eight_bit_name();
    return a;
}

/// Makes a model and the arguments of its trainer do what was chosen; no blocks to compute again: those of the model itself.
template <optimizer_options Options, class Model>
void follow(const memory_choice& way, const asked_optimizer<Options>& asked, Model& model, training_arguments& arguments) {
    arguments.optim = way.eight_bit_moments ? asked.eight_bit_name() : asked.name;
    arguments.per_device_train_batch_size = way.micro_batch;
    arguments.gradient_accumulation_steps = way.accumulation;
    if constexpr (made_of_blocks<Model>) {
        if (way.recomputed_blocks != 0) {
            model.checkpoint_where([&way](int block) { return block < way.recomputed_blocks; });
            arguments.gradient_checkpointing = false, arguments.memory.checkpoint_every = 1;
        }
    }
    if constexpr (has_logits_to_keep<Model>) {
        if (!way.keeps_logits) model.store_logits(keep_logits::never);
    }
}

/// Freezes the parameters of `twin` that are frozen in `original`, and leaves out adapters that are merged there.
inline void freeze_as(const store& original, store& twin) {
    for (std::size_t i = 0; i < original.entries().size(); ++i) {
        const store_entry& e = original.entries()[i];
        if (e.frozen && !e.is_state && !twin.entries()[i].frozen) twin.freeze(e.path);
    }
    if (original.adapters().are_merged()) twin.adapters().set_merged();
}

/// "h.0.mlp 4096, embed 1024, h.1.mlp 512": bytes of layers.
inline std::string layers_text(const std::vector<planned_parameter>& layers) {
    std::string text;
    for (const planned_parameter& l : layers)
        text += (text.empty() ? "" : ", ") + l.path + ' ' + std::to_string(l.total());
    return text;
}

/// A trainer's run, as far as its memory is concerned. Refers to its arguments.
template <class Device, class Model, class Kind, class Data, optimizer_options Options = adamw_options,
          class Evaluation = Data>
struct planned_run {
    Device& device;
    Model& model;
    const training_arguments& arguments;
    const asked_optimizer<Options>& asked;  ///< arguments.optim is what the trainer has now
    const std::vector<parameter_group>& groups;
    Data& data;
    Evaluation* evaluation = &data;  ///< what it evaluates on, if that has windows

    /// Not of an evaluation on data that has windows alone.
    static constexpr bool is_plannable = made_of_config<Model, Device> && training_data<Data>;

    /// The run as asked for, and what its budget may change.
    budget_question question() const {
        const extent rows = arguments.per_device_train_batch_size, all = rows * arguments.gradient_accumulation_steps;
        budget_question q{rows,  arguments.gradient_accumulation_steps,        1, {},
                          false, asked.has_wide_moments(), arguments.memory.measures};
        for (const store_entry& e : model.parameters().entries()) q.has_states = q.has_states || e.is_state;
        q.may.micro_batches = q.may.micro_batches && !q.has_states;
        q.length = std::max<extent>(1, data.sample(0, all).size() / all);
        if constexpr (made_of_blocks<Model>) q.work = model.work(q.length);
        if constexpr (has_logits_to_keep<Model>) q.has_logits = true;
        return q;
    }
    /// Bytes that are in use on the device, and are not of this run: to be called while the trainer is between steps.
    std::ptrdiff_t foreign_bytes() const {
        std::size_t own = 0;
        halftone::plan(device, [&](auto& twin) { run_on(twin, {}, &own); });
        const memory_usage& usage = device.memory().usage();
        return static_cast<std::ptrdiff_t>(usage.live() - usage.live(memory_kind::workspace)) -
               static_cast<std::ptrdiff_t>(own);
    }
    /// The plan of the run's own bytes, from train() on, if it does what was chosen. Throws out_of_memory if it needs more than
    /// `memory_limit` bytes of the system's.
    memory_plan plan(const memory_choice& way, std::size_t memory_limit = static_cast<std::size_t>(-1)) const {
        return halftone::plan(
            device, [&](auto& twin) { run_on(twin, way, nullptr); }, memory_limit);
    }
    /// The way that changes nothing.
    memory_choice as_asked() const {
        memory_choice way;
        way.micro_batch = arguments.per_device_train_batch_size;
        way.accumulation = arguments.gradient_accumulation_steps;
        return way;
    }

  private:
    struct few_steps : trainer_callback {
        std::function<void()> stop;
        std::int64_t last = 2;
        void on_step(const trainer_state& state) override {
            if (state.step >= last) stop();
        }
    };

    /// What is asked for by these arguments, whose `optim` is a form of the optimizer.
    asked_optimizer<Options> of_asked(const training_arguments& few) const { return {asked.options, few.optim}; }

    /// Runs on the twin; with `own`, makes the model and the trainer alone, and tells their bytes.
    template <class Twin>
    void run_on(Twin& twin, const memory_choice& way, std::size_t* own) const {
        {
            const workspace::lease before(twin.scratch(), device.memory().usage().live(memory_kind::workspace));
        }
        const add_adapters as_original(twin.memory(), model.parameters().adapters().options());
        Model again(twin, model.config());
        freeze_as(model.parameters(), again.parameters());
        training_arguments few = arguments;
        if (own == nullptr) follow(way, asked, again, few);
        few.memory.budget = 0;
        few.auto_find_batch_size = false;
        few.memory.history.clear();
        few.save_steps = 0, few.save_strategy = save_strategy::steps;
        few.load_best_model_at_end = false;
        few.resume_from_checkpoint.clear();
        if (few.max_steps < 0) few.max_steps = INT32_MAX;  // an evaluation before train(), which counts them
        std::int64_t& looks = few.diagnosis.numerics_steps;
        looks = looks == 0 || looks > few.max_steps ? 0 : 1;
        trainer<Twin, Model, Kind, Options> run(twin, again, few, of_asked(few), Kind{}, groups);
        if (own != nullptr) {
            const memory_usage& usage = twin.memory().usage();
            *own = usage.live() - usage.live(memory_kind::workspace);
            return;
        }
        twin.memory().usage().reset_peaks();  // freezing has had its own one
        few_steps callback;
        callback.stop = [&run] { run.stop(); };
        const bool goes_on = few.eval_steps != 0 && few.eval_steps < few.max_steps;
        if (goes_on) callback.last = std::min<std::int64_t>(2, few.max_steps - 1);
        run.add_callback(callback);
        constexpr typename trainer<Twin, Model, Kind, Options>::no_evaluation nothing{};
        run.train_steps(data, nothing);
        if constexpr (evaluation_data<Evaluation>) {
            if (few.eval_steps == 0 || few.eval_steps > few.max_steps) return;
            run.evaluation_.of_windows(*evaluation, 2 * few.per_device_eval_batch_size);
            run.stop_.store(false);
            if (goes_on) run.train_steps(data, nothing);
        }
    }
};

/// choose_measures for a model that can be planned.
template <class Run>
memory_choice choose_of_plannable(const Run& run) {
    const budget_question q = run.question();
    const std::size_t budget = run.arguments.memory.budget;
    const std::ptrdiff_t foreign = run.foreign_bytes();
    const auto peak_of = [&](const memory_choice& way) {
        return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(run.plan(way).peak_bytes) + foreign);
    };
    const auto [way, fits] = cheapest_measures(q, [&](const memory_choice& w) {
        const std::size_t peak = peak_of(w);
        return budget_plan{peak <= budget, peak};
    });
    const std::string words = budget_words(q, way);
    if (!fits) {
        throw budget_error(sentence("memory.budget: the run needs ", way.peak_bytes, " bytes",
                                    words.empty() ? "" : " with ", words, "; ", way.peak_bytes - budget, " more than the ",
                                    budget, " given; it would take ", budget_remedies(q)),
                           way.peak_bytes, budget);
    }
    memory_choice chosen = way;
    chosen.budget_bytes = budget;
    char numbers[128];
    std::snprintf(numbers, sizeof numbers, ": peak %.2f of %.2f MiB, %.1f%% more operations",
                  static_cast<double>(chosen.peak_bytes) / (1 << 20), static_cast<double>(budget) / (1 << 20),
                  100 * chosen.more_operations);
    chosen.text = (words.empty() ? "fits as it is" : words) + numbers;
    return chosen;
}

/// What the plan of a run that is out of memory says: its largest layers, and what would fit into `held` bytes of the
/// system's: the device's limit, or what it has had.
template <class Run>
std::string explained_within(const Run& run, std::size_t held) {
    const budget_question q = run.question();
    const auto foreign = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, run.foreign_bytes()));
    const std::size_t limit = held - std::min(held, foreign);
    const memory_plan whole = run.plan(run.as_asked());
    const auto [way, fits] = cheapest_measures(q, [&](const memory_choice& w) {
        try {
            return budget_plan{true, run.plan(w, limit).peak_bytes};
        } catch (const out_of_memory&) {
            return budget_plan{false, run.plan(w).peak_bytes};
        }
    });
    const std::string words = budget_words(q, way);
    return sentence("; the largest layers of the run: ", layers_text(whole.largest_layers(3)), "; ",
                    !fits ? "it would take " + budget_remedies(q)
                    : words.empty() ? "by its plan the run fits into what was there as it is"
                                    : "it would fit with " + words);
}

/// The cheapest measures with which a run stays within its budget. Throws budget_error if there are none.
template <class Run>
memory_choice choose_measures(const Run& run) {
    if constexpr (!Run::is_plannable) {
        fail<argument_error>(
            "training_arguments: memory.budget of a model that cannot be planned; give it a config() from which it is made, "
            "as model{device, config}");
    } else {
        return choose_of_plannable(run);
    }
}

/// What is known about a run that is out of memory: its largest layers, and what would fit.
template <class Run>
std::string explained(const Run& run) {
    const memory_resource& memory = run.device.memory();
    const bool is_limited = memory.limit() != static_cast<std::size_t>(-1);
    if constexpr (Run::is_plannable) {
        try {
            return explained_within(run, is_limited ? memory.limit() : memory.usage().peak_held());
        } catch (const std::exception&) {  // the host, too, has no memory: the error at hand matters more
        }
    }
    return "; the largest layers of the model: " + run.model.parameters().largest_layers();
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
