// SPDX-License-Identifier: MIT
/// \file
/// The arguments of a training run, under the names of Hugging Face's TrainingArguments.
///
///     ht::training_arguments args{.per_device_train_batch_size = 2, .gradient_accumulation_steps = 8, .max_steps = 5000,
///                                 .learning_rate = 2e-4, .lr_scheduler_type = ht::cosine, .warmup_ratio = 0.03};
///
/// What is halftone's own is in three structs, for memory, for diagnosis and for the loss scale:
///
///     ht::training_arguments args{.max_steps = 5000, .memory = {.budget = std::size_t{200} << 20}, .scaler = {.growth_interval = 100}};
///
/// A step's batch has per_device_train_batch_size times gradient_accumulation_steps rows, and fewer at the end of an epoch.
/// Defaults are theirs: without max_steps, three epochs of data that has epochs (train/training_data.hpp).
#pragma once

#include <cstdint>
#include <string>

#include <halftone/error.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/optim/schedule.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Whether steps are captured (train/captured_step.hpp). The bits are the same.
enum class step_capture {
    automatic,  ///< if the device supports it and there is no range listener
    off,
};

/// Whether the results of operations are examined, to report for a skipped step where it overflowed
/// (observe/overflow/overflow.hpp). It needs a trainer with a watched tape: ht::trainer trainer{device, model,
/// arguments, ht::watched}.
enum class overflow_search { off, on };

/// When checkpoints are saved.
enum class save_strategy {
    steps,  ///< every save_steps steps, and at the end
    best,   ///< after evaluations that are better than all before
};

/// What a trainer may do to stay within its memory.budget (train/memory_budget.hpp).
struct memory_measures {
    /// Smaller ones, and more of them: sums of gradients are rounded in another order. Not of a model with batch norm, whose
    /// statistics would be others.
    bool micro_batches = true;
    bool recomputation = true;  ///< the first blocks are computed again in the backward pass, as many as needed
    bool logits = true;         ///< logits are computed again in the backward pass
    bool eight_bit_moments = false;  ///< optim becomes adamw_8bit, or the form in 8 bits of another optimizer that has one
};

/// Further arguments of some schedules, under the names of Hugging Face's lr_scheduler_kwargs.
struct lr_scheduler_arguments {
    double lr_end = 1e-7;              ///< of polynomial: the rate at the end, at most learning_rate
    double power = 1;                  ///< of polynomial
    std::int64_t num_decay_steps = 0;  ///< of warmup_stable_decay: the number of last steps; required
    rate_curve warmup_type = rate_curve::linear;  ///< of warmup_stable_decay
    rate_curve decay_type = rate_curve::cosine;   ///< of warmup_stable_decay
    double min_lr_ratio = 0;                      ///< of warmup_stable_decay: the fraction at the beginning and the end
};

/// Memory, by halftone's own arguments.
struct memory_arguments {
    int checkpoint_every = 1;     ///< with gradient_checkpointing every n-th block is computed again (the model's
                                  ///< checkpoint_every)
    std::size_t budget = 0;       ///< the most bytes that may be in use on the device while train() runs, which begins with
                                  ///< choosing how (train/memory_budget.hpp), for batches of equal shapes; 0: no limit
    memory_measures measures{};   ///< what it may choose
    std::string history{};        ///< FILE.html or .json: the allocations of the run from the trainer's construction on
                                  ///< (observe/memory/history.hpp), written when train() returns, and where memory runs out;
                                  ///< empty: none
};

/// What is examined. Both need a trainer with a watched tape.
struct diagnosis_arguments {
    overflow_search find_overflow = overflow_search::off;
    std::int64_t numerics_steps = 0;  ///< steps between two numerics views (observe/numerics/numerics.hpp); 0: none
};

/// The loss scale, if the model's policies need one (scale/grad_scaler.hpp), and steps that are skipped.
struct scaler_arguments {
    float init_scale = 65536;
    int growth_interval = 2000;
    float min_scale = 1.17549435e-38f, max_scale = 3.40282347e+38f;  ///< its limits
    int hysteresis = 1;         ///< consecutive overflows before it is reduced
    double outlier_factor = 0;  ///< steps are skipped whose loss or gradient norm is this number of standard deviations above
                                ///< the mean of earlier ones (scale/outlier_guard.hpp), with a loss scale or without; 0: none
    int outlier_window = 128;   ///< the number of earlier steps; judged once there are half of them
};

/// The arguments of the trainer: under the names of Hugging Face's TrainingArguments, and halftone's own in three structs.
struct training_arguments {
    extent per_device_train_batch_size = 8;        ///< rows of a micro-batch
    extent per_device_eval_batch_size = 8;
    extent gradient_accumulation_steps = 1;        ///< micro-batches of a step, weighted by their share of targets
    bool gradient_checkpointing = false;           ///< blocks are computed again in the backward pass, all of them or every
                                                   ///< memory.checkpoint_every-th; false: as the model has it
    double num_train_epochs = 3;                   ///< of the data, with a fraction; used if max_steps is -1
    std::int64_t max_steps = -1;                   ///< steps of the run, skipped ones included; -1: by num_train_epochs

    std::string optim{};                           ///< the optimizer's name: adamw or adamw_8bit, or those of another one that
                                                   ///< the trainer is given; empty: the one with moments in the `state` type
    double learning_rate = 5e-5;
    double weight_decay = 0;                       ///< of all parameters except biases and gains of norms
    double adam_beta1 = 0.9;
    double adam_beta2 = 0.999;
    double adam_epsilon = 1e-8;
    double max_grad_norm = 1;                      ///< 0: gradients are not clipped

    schedule lr_scheduler_type = schedule::linear;
    double warmup_ratio = 0;                       ///< fraction of the run's steps; used if warmup_steps is 0
    std::int64_t warmup_steps = 0;
    double final_lr_ratio = 0;                     ///< the last rate of linear and cosine, as a fraction of learning_rate
    lr_scheduler_arguments lr_scheduler_kwargs{};  ///< further arguments of polynomial and warmup_stable_decay

    std::int64_t logging_steps = 500;              ///< steps between two calls of on_log
    std::int64_t eval_steps = 0;                   ///< steps between two evaluations; 0: only by calling evaluate()

    std::string output_dir{};                      ///< the folder of checkpoints; with any of the next fields a trainer
                                                   ///< needs ht::trainer_checkpoints (train/checkpoints.hpp)
    std::int64_t save_steps = 0;                   ///< steps between two checkpoints; 0: none
    halftone::save_strategy save_strategy = halftone::save_strategy::steps;
    int save_total_limit = 0;                      ///< the newest checkpoints that are kept, beside the best; 0: all
    bool load_best_model_at_end = false;           ///< the model gets the weights of the best checkpoint
    std::string metric_for_best_model = "eval_loss";  ///< eval_loss, or what trainer_checkpoints::report names
    bool greater_is_better = false;                ///< of that metric
    std::string resume_from_checkpoint{};          ///< a checkpoint's folder, or "newest": the newest good one in output_dir,
                                                   ///< if there is one; empty: from the start

    bool auto_find_batch_size = false;  ///< where memory runs out in a step, it is taken again with micro-batches of half
                                        ///< the rows, and twice as many of them
    std::uint64_t seed = 42;                       ///< for stochastic rounding and dropout
    step_capture capture_steps = step_capture::automatic;

    memory_arguments memory{};
    diagnosis_arguments diagnosis{};
    scaler_arguments scaler{};
};

namespace detail {

/// Throws argument_error for a schedule's arguments out of range, of a run whose number of steps is not known yet: what
/// does not depend on it.
inline void check_schedule(const training_arguments& a, double learning_rate) {
    const lr_scheduler_arguments& k = a.lr_scheduler_kwargs;
    if (a.lr_scheduler_type != schedule::polynomial && a.lr_scheduler_type != schedule::warmup_stable_decay) return;
    if (a.final_lr_ratio != 0) {
        fail<argument_error>("training_arguments: final_lr_ratio is ", a.final_lr_ratio,
                             "; expected 0, since polynomial ends at lr_scheduler_kwargs.lr_end, warmup_stable_decay at "
                             "lr_scheduler_kwargs.min_lr_ratio");
    }
    if (a.lr_scheduler_type == schedule::polynomial) {
        if (!(k.lr_end >= 0 && k.lr_end <= learning_rate))
            fail<argument_error>("training_arguments: lr_scheduler_kwargs.lr_end is ", k.lr_end,
                                 "; expected 0 to learning_rate, ", learning_rate);
        if (!(k.power > 0 && is_finite(k.power)))
            fail<argument_error>("training_arguments: lr_scheduler_kwargs.power is ", k.power, "; expected more than 0");
        return;
    }
    const std::int64_t most =
        a.max_steps < 0 ? INT32_MAX
                        : a.max_steps - warmup_steps({.total_steps = a.max_steps, .warmup_steps = a.warmup_steps,
                                                      .warmup_ratio = a.warmup_ratio});
    if (k.num_decay_steps < 1 || k.num_decay_steps > most)
        fail<argument_error>("training_arguments: lr_scheduler_kwargs.num_decay_steps is ", k.num_decay_steps,
                             "; expected 1 to ", most, ", the steps behind the warm-up");
    if (!(k.min_lr_ratio >= 0 && k.min_lr_ratio <= 1))
        fail<argument_error>("training_arguments: lr_scheduler_kwargs.min_lr_ratio is ", k.min_lr_ratio,
                             "; expected 0 to 1");
}

/// Whether a run saves or loads checkpoints.
inline bool has_checkpoints(const training_arguments& a) {
    return a.save_steps != 0 || a.save_strategy == save_strategy::best || a.load_best_model_at_end ||
           !a.resume_from_checkpoint.empty();
}
inline void check_saving(const training_arguments& a) {
    if (a.save_steps < 0) fail<argument_error>("training_arguments: save_steps is ", a.save_steps, "; expected 0 or more");
    if (a.save_total_limit < 0)
        fail<argument_error>("training_arguments: save_total_limit is ", a.save_total_limit, "; expected 0 or more");
    if (has_checkpoints(a) && a.output_dir.empty())
        fail<argument_error>("training_arguments: checkpoints need an output_dir");
    if (a.metric_for_best_model.empty()) fail<argument_error>("training_arguments: metric_for_best_model is empty");
    if (!a.load_best_model_at_end || a.save_strategy == save_strategy::best) return;
    if (a.save_steps == 0) fail<argument_error>("training_arguments: load_best_model_at_end needs save_steps");
    if (a.metric_for_best_model == "eval_loss" && (a.eval_steps == 0 || a.save_steps % a.eval_steps != 0)) {
        fail<argument_error>("training_arguments: load_best_model_at_end: save_steps is ", a.save_steps,
                             "; expected a multiple of eval_steps, ", a.eval_steps);
    }
}

/// The schedule of the run's optimizer, which has this rate.
inline schedule_options schedule_of(const training_arguments& a, double learning_rate) {
    const lr_scheduler_arguments& k = a.lr_scheduler_kwargs;
    double final_ratio = a.final_lr_ratio;
    if (a.lr_scheduler_type == schedule::polynomial) final_ratio = learning_rate > 0 ? k.lr_end / learning_rate : 0;
    if (a.lr_scheduler_type == schedule::warmup_stable_decay) final_ratio = k.min_lr_ratio;
    return {.shape = a.lr_scheduler_type, .total_steps = a.max_steps, .warmup_steps = a.warmup_steps,
            .warmup_ratio = a.warmup_ratio, .final_ratio = final_ratio, .power = k.power,
            .decay_steps = k.num_decay_steps, .warmup_type = k.warmup_type, .decay_type = k.decay_type};
}

inline void check_watching(const training_arguments& a, bool watches) {
    if (watches || (a.diagnosis.find_overflow == overflow_search::off && a.diagnosis.numerics_steps == 0)) return;
    fail<argument_error>(
        "training_arguments: ", a.diagnosis.numerics_steps == 0 ? "diagnosis.find_overflow" : "diagnosis.numerics_steps",
        " of a trainer that does not watch; make it as ht::trainer trainer{device, model, arguments, ht::watched}");
}

}  // namespace detail

/// Throws argument_error, naming the first field outside its range, for an optimizer of this rate.
inline void check_arguments(const training_arguments& a, double optimizer_rate) {
    const auto at_least = [](const char* field, std::int64_t value, std::int64_t least) {
        if (value < least)
            fail<argument_error>("training_arguments: ", field, " is ", value, "; expected ", least, " or more");
    };
    const auto at_most = [](const char* field, std::int64_t value, std::int64_t most) {
        if (value > most)
            fail<argument_error>("training_arguments: ", field, " is ", value, "; expected ", most, " at most");
    };
    const auto number = [](const char* field, double value, double least) {
        if (!(value >= least && is_finite(value)))
            fail<argument_error>("training_arguments: ", field, " is ", value, "; expected ", least, " or more");
    };
    const auto below_one = [&](const char* field, double value) {
        if (!(value >= 0 && value < 1))
            fail<argument_error>("training_arguments: ", field, " is ", value, "; expected 0 or more and less than 1");
    };
    at_least("per_device_train_batch_size", a.per_device_train_batch_size, 1);
    at_least("per_device_eval_batch_size", a.per_device_eval_batch_size, 1);
    at_least("gradient_accumulation_steps", a.gradient_accumulation_steps, 1);
    if (a.max_steps == 0 || a.max_steps < -1)
        fail<argument_error>("training_arguments: max_steps is ", a.max_steps,
                             "; expected 1 or more, or -1 for a run of num_train_epochs");
    if (!(a.num_train_epochs > 0 && is_finite(a.num_train_epochs)))
        fail<argument_error>("training_arguments: num_train_epochs is ", a.num_train_epochs, "; expected more than 0");
    at_most("per_device_train_batch_size", a.per_device_train_batch_size, INT32_MAX);
    at_most("per_device_eval_batch_size", a.per_device_eval_batch_size, INT32_MAX);
    at_most("gradient_accumulation_steps", a.gradient_accumulation_steps, INT32_MAX);
    at_most("max_steps", a.max_steps, INT32_MAX);
    number("learning_rate", a.learning_rate, 0);
    number("weight_decay", a.weight_decay, 0);
    below_one("adam_beta1", a.adam_beta1);
    below_one("adam_beta2", a.adam_beta2);
    number("adam_epsilon", a.adam_epsilon, 0);
    number("max_grad_norm", a.max_grad_norm, 0);
    number("scaler.outlier_factor", a.scaler.outlier_factor, 0);
    at_least("scaler.outlier_window", a.scaler.outlier_window, 4);
    if (!(a.warmup_ratio >= 0 && a.warmup_ratio <= 1))
        fail<argument_error>("training_arguments: warmup_ratio is ", a.warmup_ratio, "; expected 0 to 1");
    at_least("warmup_steps", a.warmup_steps, 0);
    if (!(a.final_lr_ratio >= 0 && a.final_lr_ratio <= 1)) {
        fail<argument_error>("training_arguments: final_lr_ratio is ", a.final_lr_ratio, "; expected 0 to 1");
    }
    detail::check_schedule(a, optimizer_rate);
    at_least("logging_steps", a.logging_steps, 1);
    at_least("eval_steps", a.eval_steps, 0);
    at_least("diagnosis.numerics_steps", a.diagnosis.numerics_steps, 0);
    detail::check_saving(a);
    at_least("memory.checkpoint_every", a.memory.checkpoint_every, 1);
    if (a.memory.checkpoint_every != 1 && !a.gradient_checkpointing)
        fail<argument_error>("training_arguments: memory.checkpoint_every is ", a.memory.checkpoint_every,
                             " without gradient_checkpointing; expected both, or 1");
    if (a.memory.budget != 0 && a.gradient_checkpointing)
        fail<argument_error>("training_arguments: gradient_checkpointing together with a memory.budget, which chooses the blocks "
                             "that are computed again; expected one of them");
    if (!(a.scaler.init_scale > 0 && is_finite(a.scaler.init_scale))) {
        fail<argument_error>("training_arguments: scaler.init_scale is ", a.scaler.init_scale,
                             "; expected more than 0");
    }
    at_least("scaler.growth_interval", a.scaler.growth_interval, 1);
    at_least("scaler.hysteresis", a.scaler.hysteresis, 1);
    if (!(a.scaler.min_scale >= 0 && a.scaler.min_scale <= a.scaler.init_scale &&
          a.scaler.init_scale <= a.scaler.max_scale && is_finite(a.scaler.max_scale))) {
        fail<argument_error>("training_arguments: loss scales from ", a.scaler.min_scale, " to ", a.scaler.max_scale,
                             ", beginning with ", a.scaler.init_scale,
                             "; expected 0 <= scaler.min_scale <= scaler.init_scale <= scaler.max_scale, all finite");
    }
}
/// Throws argument_error for arguments out of range, with the optimizer that they describe.
inline void check_arguments(const training_arguments& a) { check_arguments(a, a.learning_rate); }

}  // namespace HALFTONE_ABI
}  // namespace halftone
