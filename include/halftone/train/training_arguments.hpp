// SPDX-License-Identifier: MIT
/// \file
/// The arguments of a training run, under the names of Hugging Face's TrainingArguments.
///
///     ht::training_arguments args{.per_device_train_batch_size = 2, .gradient_accumulation_steps = 8, .max_steps = 5000,
///                                 .learning_rate = 2e-4, .lr_scheduler_type = ht::cosine, .warmup_ratio = 0.03};
///
/// A step's batch has per_device_train_batch_size times gradient_accumulation_steps rows. Defaults are theirs, except
/// for max_steps, which is required in place of epochs.
#pragma once

#include <cstdint>
#include <string>

#include <halftone/error.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/optim/schedule.hpp>
#include <halftone/tensor/shape.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

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

/// What a trainer may do to stay within its memory_budget (train/memory_budget.hpp).
struct memory_measures {
    bool micro_batches = true;  ///< smaller ones, and more of them: sums of gradients are rounded in another order
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

/// The arguments of the trainer, under the names of Hugging Face's TrainingArguments.
struct training_arguments {
    extent per_device_train_batch_size = 8;        ///< rows of a micro-batch
    extent per_device_eval_batch_size = 8;
    extent gradient_accumulation_steps = 1;        ///< micro-batches of a step, weighted by their share of targets
    int checkpointing = 0;  ///< every n-th block is computed again in the backward pass (the model's checkpoint_every);
                            ///< 0: as the model has it
    std::int64_t max_steps = 0;                    ///< steps of the run, skipped ones included

    std::string optim{};                           ///< the optimizer's name: adamw or adamw_8bit, or those of another one that
                                                   ///< the trainer is given; empty: the one with moments in the `state` type
    double learning_rate = 5e-5;
    double weight_decay = 0;                       ///< of all parameters except biases and gains of norms
    double adam_beta1 = 0.9;
    double adam_beta2 = 0.999;
    double adam_epsilon = 1e-8;
    double max_grad_norm = 1;                      ///< 0: gradients are not clipped
    double outlier_factor = 0;  ///< steps are skipped whose loss or gradient norm is this number of standard
                                ///< deviations above the mean of earlier ones (scale/outlier_guard.hpp); 0: none
    int outlier_window = 128;  ///< the number of earlier steps; judged once there are half of them

    schedule lr_scheduler_type = schedule::linear;
    double warmup_ratio = 0;                       ///< fraction of max_steps; used if warmup_steps is 0
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

    float initial_loss_scale = 65536;              ///< if the model's policies need a loss scale
    int loss_scale_growth_interval = 2000;
    float min_loss_scale = 1.17549435e-38f, max_loss_scale = 3.40282347e+38f;  ///< its limits
    int loss_scale_hysteresis = 1;  ///< consecutive overflows before it is reduced

    overflow_search find_overflow = overflow_search::off;
    std::int64_t numerics_steps =
        0;  ///< steps between two numerics views (observe/numerics/numerics.hpp); 0: none. Needs a watched tape, too
    std::size_t memory_budget =
        0;  ///< the most bytes that may be in use on the device while train() runs, which begins with choosing how
            ///< (train/memory_budget.hpp), for batches of equal shapes; 0: no limit
    memory_measures memory_budget_measures{};  ///< what it may choose
    bool auto_find_batch_size = false;  ///< where memory runs out in a step, it is taken again with micro-batches of half
                                        ///< the rows, and twice as many of them
    std::string memory_history{};  ///< FILE.html, .json or .pickle: the allocations of the run from the trainer's
                                   ///< construction on (observe/memory/history.hpp), written when train() returns, and
                                   ///< where memory runs out; empty: none
    std::uint64_t seed = 42;                       ///< for stochastic rounding and dropout
    step_capture capture_steps = step_capture::automatic;
};

namespace detail {

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
        a.max_steps - warmup_steps({.total_steps = a.max_steps, .warmup_steps = a.warmup_steps,
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
    if (watches || (a.find_overflow == overflow_search::off && a.numerics_steps == 0)) return;
    fail<argument_error>(
        "training_arguments: ", a.numerics_steps == 0 ? "find_overflow" : "numerics_steps",
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
    at_least("max_steps", a.max_steps, 1);
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
    number("outlier_factor", a.outlier_factor, 0);
    at_least("outlier_window", a.outlier_window, 4);
    if (!(a.warmup_ratio >= 0 && a.warmup_ratio <= 1))
        fail<argument_error>("training_arguments: warmup_ratio is ", a.warmup_ratio, "; expected 0 to 1");
    at_least("warmup_steps", a.warmup_steps, 0);
    if (!(a.final_lr_ratio >= 0 && a.final_lr_ratio <= 1)) {
        fail<argument_error>("training_arguments: final_lr_ratio is ", a.final_lr_ratio, "; expected 0 to 1");
    }
    detail::check_schedule(a, optimizer_rate);
    at_least("logging_steps", a.logging_steps, 1);
    at_least("eval_steps", a.eval_steps, 0);
    at_least("numerics_steps", a.numerics_steps, 0);
    detail::check_saving(a);
    if (a.memory_budget != 0 && a.checkpointing != 0) {
        fail<argument_error>("training_arguments: checkpointing is ", a.checkpointing,
                             " together with a memory_budget, which chooses the blocks that are computed again; expected 0");
    }
    if (!(a.initial_loss_scale > 0 && is_finite(a.initial_loss_scale))) {
        fail<argument_error>("training_arguments: initial_loss_scale is ", a.initial_loss_scale,
                             "; expected more than 0");
    }
    at_least("loss_scale_growth_interval", a.loss_scale_growth_interval, 1);
    at_least("loss_scale_hysteresis", a.loss_scale_hysteresis, 1);
    if (!(a.min_loss_scale >= 0 && a.min_loss_scale <= a.initial_loss_scale &&
          a.initial_loss_scale <= a.max_loss_scale && is_finite(a.max_loss_scale))) {
        fail<argument_error>("training_arguments: loss scales from ", a.min_loss_scale, " to ", a.max_loss_scale,
                             ", beginning with ", a.initial_loss_scale,
                             "; expected 0 <= min_loss_scale <= initial_loss_scale <= max_loss_scale, all finite");
    }
}
/// The same for the optimizer that the arguments describe.
inline void check_arguments(const training_arguments& a) { check_arguments(a, a.learning_rate); }

}  // namespace HALFTONE_ABI
}  // namespace halftone
