// SPDX-License-Identifier: MIT
/// \file
/// Every field outside its range throws an exception that names it, before it is used.
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <halftone/train/training_arguments.hpp>

namespace train_training_arguments_tests {

namespace ht = halftone;

std::string message(const ht::training_arguments& a) {
    try {
        ht::check_arguments(a);
    } catch (const ht::argument_error& e) {
        return e.what();
    }
    return "no error";
}
template <class T>
std::string message(T ht::training_arguments::*field, T value) {
    ht::training_arguments a{.max_steps = 10};
    a.*field = value;
    return message(a);
}
/// The same of a field of one of halftone's own structs.
template <class Own, class T>
std::string message(Own ht::training_arguments::*own, T Own::*field, T value) {
    ht::training_arguments a{.max_steps = 10};
    a.*own.*field = value;
    return message(a);
}

void refuses(const std::string& name, const std::string& told) {
    CAPTURE(told);
    CHECK(told.rfind("training_arguments: " + name + " is ", 0) == 0);
    CHECK(told.find("; expected ") != std::string::npos);
}

TEST_CASE("a run has max_steps, or num_train_epochs") {
    CHECK(message(ht::training_arguments{.max_steps = 1}) == "no error");
    CHECK(message(ht::training_arguments{}) == "no error");
    CHECK(message(ht::training_arguments{.max_steps = 0}) ==
          "training_arguments: max_steps is 0; expected 1 or more, or -1 for a run of num_train_epochs");
}

TEST_CASE("each field has its range") {
    using a = ht::training_arguments;
    using s = ht::scaler_arguments;
    const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
    refuses("per_device_train_batch_size", message(&a::per_device_train_batch_size, ht::extent{0}));
    refuses("per_device_eval_batch_size", message(&a::per_device_eval_batch_size, ht::extent{-1}));
    refuses("gradient_accumulation_steps", message(&a::gradient_accumulation_steps, ht::extent{0}));
    for (const auto field :
         {&a::per_device_train_batch_size, &a::per_device_eval_batch_size, &a::gradient_accumulation_steps}) {
        CHECK(message(field, ht::extent{1} << 31).ends_with(" is 2147483648; expected 2147483647 at most"));
        CHECK(message(field, (ht::extent{1} << 31) - 1) == "no error");
    }
    refuses("max_steps", message(&a::max_steps, std::int64_t{-2}));
    refuses("max_steps", message(&a::max_steps, std::int64_t{1} << 31));
    refuses("num_train_epochs", message(&a::num_train_epochs, 0.0));
    for (const double bad : {-1.0, nan, inf}) {
        refuses("num_train_epochs", message(&a::num_train_epochs, bad));
        refuses("learning_rate", message(&a::learning_rate, bad));
        refuses("weight_decay", message(&a::weight_decay, bad));
        refuses("adam_beta1", message(&a::adam_beta1, bad));
        refuses("adam_beta2", message(&a::adam_beta2, bad));
        refuses("adam_epsilon", message(&a::adam_epsilon, bad));
        refuses("max_grad_norm", message(&a::max_grad_norm, bad));
        refuses("warmup_ratio", message(&a::warmup_ratio, bad));
        refuses("final_lr_ratio", message(&a::final_lr_ratio, bad));
        refuses("scaler.init_scale", message(&a::scaler, &s::init_scale, static_cast<float>(bad)));
        refuses("scaler.outlier_factor", message(&a::scaler, &s::outlier_factor, bad));
    }
    refuses("adam_beta1", message(&a::adam_beta1, 1.0));
    refuses("warmup_ratio", message(&a::warmup_ratio, 1.5));
    refuses("warmup_steps", message(&a::warmup_steps, std::int64_t{-1}));
    refuses("logging_steps", message(&a::logging_steps, std::int64_t{0}));
    refuses("eval_steps", message(&a::eval_steps, std::int64_t{-1}));
    refuses("scaler.init_scale", message(&a::scaler, &s::init_scale, 0.0f));
    refuses("scaler.outlier_window", message(&a::scaler, &s::outlier_window, 3));
    refuses("diagnosis.numerics_steps", message(&a::diagnosis, &ht::diagnosis_arguments::numerics_steps, std::int64_t{-1}));
    refuses("memory.checkpoint_every", message(&a::memory, &ht::memory_arguments::checkpoint_every, 0));
    CHECK(message(&a::memory, &ht::memory_arguments::checkpoint_every, 2) ==
          "training_arguments: memory.checkpoint_every is 2 without gradient_checkpointing; expected both, or 1");
    CHECK(message({.gradient_checkpointing = true, .max_steps = 1, .memory = {.checkpoint_every = 2}}) == "no error");
    refuses("scaler.growth_interval", message(&a::scaler, &s::growth_interval, 0));
    refuses("scaler.hysteresis", message(&a::scaler, &s::hysteresis, 0));
    const std::string bounds = "training_arguments: loss scales from ";
    for (const float bad : {-1.0f, 131072.0f, static_cast<float>(nan), static_cast<float>(inf)})
        CHECK(message(&a::scaler, &s::min_scale, bad).rfind(bounds, 0) == 0);
    for (const float bad : {-1.0f, 32768.0f, static_cast<float>(nan), static_cast<float>(inf)})
        CHECK(message(&a::scaler, &s::max_scale, bad).rfind(bounds, 0) == 0);
    CHECK(message(&a::max_grad_norm, 0.0) == "no error");
    CHECK(message(&a::learning_rate, 0.0) == "no error");
}

TEST_CASE("schedules read lr_scheduler_kwargs, whose fields have ranges") {
    ht::training_arguments a{.max_steps = 100, .learning_rate = 2e-3, .lr_scheduler_type = ht::schedule::polynomial,
                             .warmup_steps = 10};
    a.lr_scheduler_kwargs = {.lr_end = 5e-4, .power = 2};
    CHECK_NOTHROW(ht::check_arguments(a));
    ht::schedule_options s = ht::detail::schedule_of(a, a.learning_rate);
    CHECK(ht::rate_multiplier(s, 55) == doctest::Approx(0.25 + 0.75 * 0.25).epsilon(1e-15));
    CHECK(ht::rate_multiplier(s, 100) == 0.25);
    a.lr_scheduler_kwargs.lr_end = 3e-3;
    CHECK_THROWS_WITH_AS(
        ht::check_arguments(a), "training_arguments: lr_scheduler_kwargs.lr_end is 0.003; expected 0 to learning_rate, 0.002",
        ht::argument_error);
    a.lr_scheduler_kwargs = {.power = -1};
    CHECK_THROWS_AS(ht::check_arguments(a), ht::argument_error);
    a.lr_scheduler_kwargs = {};
    a.final_lr_ratio = 0.1;
    CHECK_THROWS_AS(ht::check_arguments(a), ht::argument_error);

    a.final_lr_ratio = 0;
    a.lr_scheduler_type = ht::schedule::warmup_stable_decay;
    CHECK_THROWS_WITH_AS(ht::check_arguments(a),
                         "training_arguments: lr_scheduler_kwargs.num_decay_steps is 0; expected 1 to 90, the steps "
                         "behind the warm-up",
                         ht::argument_error);
    a.lr_scheduler_kwargs = {.num_decay_steps = 20, .decay_type = ht::rate_curve::linear, .min_lr_ratio = 0.5};
    CHECK_NOTHROW(ht::check_arguments(a));
    s = ht::detail::schedule_of(a, a.learning_rate);
    CHECK(ht::rate_multiplier(s, 0) == 0.5);
    CHECK(ht::rate_multiplier(s, 80) == 1);
    CHECK(ht::rate_multiplier(s, 90) == 0.75);
    CHECK(ht::rate_multiplier(s, 1000) == 0.5);
    a.lr_scheduler_kwargs.min_lr_ratio = 1.5;
    CHECK_THROWS_AS(ht::check_arguments(a), ht::argument_error);
    a.lr_scheduler_kwargs = {.num_decay_steps = 91};
    CHECK_THROWS_AS(ht::check_arguments(a), ht::argument_error);
}

}  // namespace train_training_arguments_tests
