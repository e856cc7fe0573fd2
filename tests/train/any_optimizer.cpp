// SPDX-License-Identifier: MIT
/// \file
/// The trainer takes any optimizer: it has the bits of the same loop written by hand, its plan is what the run needs, and
/// groups, averages, moments in 8 bits and memory budgets are those of that optimizer.
#include <doctest/doctest.h>

#include <halftone/observe/memory/plan.hpp>

#include "train/any_optimizer.hpp"

namespace train_any_optimizer_tests {

namespace ht = halftone;

/// The parameters after the same steps in a loop of one's own.
template <class Options>
std::vector<std::byte> by_hand(ht::cpu& device) {
    using model_type = any::net<any::policy>;
    model_type model{device};
    any::rows_data data;
    typename Options::template optimizer<ht::cpu, model_type> optimizer(
        device, model, any::options<Options>(),
        std::vector<ht::parameter_group>{{"*.bias", {.weight_decay = 0}}, {"*.gain", {.weight_decay = 0}}});
    optimizer.set_schedule({.shape = ht::cosine, .total_steps = 6, .warmup_steps = 2});
    ht::grad_scaler<ht::cpu> scaler{device, {.enabled = false}};
    ht::accumulator acc{model};
    ht::tape tape{device};
    tape.seed(42);
    for (std::uint32_t step = 0; step < 6; ++step) {
        for (const auto& micro : data.sample(step, 4).split(2)) tape.backward(scaler.scale(model.loss(tape, micro) / 2), acc);
        auto gradients = scaler.unscale(acc.take());
        ht::clip_grad_norm(gradients, 1.0f);
        optimizer.step(gradients);
        scaler.update();
    }
    return support::bytes_of(model.parameters());
}

TEST_CASE_TEMPLATE("trainer of any optimizer: the bits of a loop written out, the bytes of its plan", Options, ANY_OPTIMIZER) {
    ht::cpu device{{.threads = 1}};
    const ht::memory_plan plan = ht::plan(device, [](auto& twin) {
        ht::training_arguments a = any::arguments;
        a.max_steps = 2;
        any::run<Options, std::remove_reference_t<decltype(twin)>> r{twin, a};
        r.trainer.train(r.data);
    });
    std::vector<std::byte> trained;
    {
        any::run<Options> r{device};
        const auto result = r.trainer.train(r.data);
        CHECK(result.steps == 6);
        CHECK(r.trainer.optimizer().steps() == 6);
        CHECK(std::string(r.trainer.optimizer().name()) == Options::name);
        CHECK(r.trainer.arguments().optim == Options::name);
        trained = support::bytes_of(r.model.parameters());
    }
    const ht::memory_usage& usage = device.memory().usage();
    CHECK(plan.peak_bytes == usage.peak());
    CHECK(plan.peak_of(ht::memory_kind::moment) == usage.peak(ht::memory_kind::moment));
    CHECK(plan.peak_of(ht::memory_kind::moment) > 0);
    CHECK(trained == by_hand<Options>(device));
}

TEST_CASE("trainer of any optimizer: groups are those of the optimizer") {
    ht::cpu device{{.threads = 1}};
    any::run<own::ademamix_options> r{device, any::arguments, {{"down", ht::frozen}, {"norm", {.lr = 0}}}};
    const auto gain = r.model.norm.gain.master()(0);
    const auto weight = r.model.down.weight.values()(0, 0).bits();
    r.trainer.train(r.data);
    CHECK(r.model.norm.gain.master()(0) == gain);
    CHECK(r.model.down.weight.values()(0, 0).bits() == weight);
    CHECK(r.trainer.optimizer().moments() == 3);
}

TEST_CASE("trainer of any optimizer: an average of the parameters, for evaluation") {
    ht::cpu device{{.threads = 1}};
    any::net<any::policy> model{device};
    any::rows_data data;
    own::ademamix_options options = any::options<own::ademamix_options>();
    options.ema_decay = 0.9;
    ht::trainer trainer{device, model, any::arguments, options};
    trainer.train(data);
    const auto last = support::bytes_of(model.parameters());
    trainer.visit_optimizer([&](auto& o) {
        const auto averaged = o.average_parameters();
        CHECK(support::bytes_of(model.parameters()) != last);
    });
    CHECK(support::bytes_of(model.parameters()) == last);
}

TEST_CASE_TEMPLATE("trainer of any optimizer: its form with moments in 8 bits, by name and by a budget", Options, ht::lion_options,
                   ht::sgd_options) {
    ht::cpu device{{.threads = 1}};
    ht::training_arguments a = any::arguments;
    a.optim = std::string(Options::name) + "_8bit";
    const auto peak_of = [&](const ht::training_arguments& arguments, std::vector<std::byte>& bytes, std::size_t& live) {
        ht::cpu own{{.threads = 1}};
        any::run<Options> r{own, arguments, {}, 1024};  // more than the tables of the codes take
        r.trainer.train(r.data);
        bytes = support::bytes_of(r.model.parameters());
        live = own.memory().usage().live(ht::memory_kind::moment);
        CHECK((r.trainer.optimizer_8bit() != nullptr) == (r.trainer.arguments().optim == a.optim));
        return own.memory().usage().peak();
    };
    std::vector<std::byte> wide, narrow, chosen;
    std::size_t wide_moments = 0, narrow_moments = 0, chosen_moments = 0;
    const std::size_t peak = peak_of(any::arguments, wide, wide_moments);
    peak_of(a, narrow, narrow_moments);
    CHECK(narrow_moments < wide_moments);
    CHECK(narrow != wide);
    ht::training_arguments budget = any::arguments;
    budget.memory.budget = peak - 1;
    budget.memory.measures = {.micro_batches = false, .recomputation = false, .logits = false, .eight_bit_moments = true};
    CHECK(peak_of(budget, chosen, chosen_moments) < peak);
    CHECK(chosen == narrow);
    CHECK(chosen_moments == narrow_moments);
    budget.memory.budget = peak;
    peak_of(budget, chosen, chosen_moments);
    CHECK(chosen == wide);
    CHECK(chosen_moments == wide_moments);
}

TEST_CASE("trainer of any optimizer: what contradicts its options, or names another one, is refused") {
    ht::cpu device{{.threads = 1}};
    any::net<any::policy> model{device};
    const auto message = [&](const ht::training_arguments& a, const auto&... options) {
        try {
            ht::trainer trainer{device, model, a, options...};
        } catch (const ht::argument_error& e) {
            return std::string(e.what());
        }
        return std::string("no error");
    };
    CHECK(message({.max_steps = 1, .optim = "adam"}) ==
          "training_arguments: optim is adam; this trainer's optimizer is adamw or adamw_8bit");
    CHECK(message({.max_steps = 1, .optim = "lion"}, own::ademamix_options{}) ==
          "training_arguments: optim is lion; this trainer's optimizer is ademamix");
    CHECK(message({.max_steps = 1, .optim = "sgd_8bit"}, ht::sgd_options{}) ==
          "training_arguments: optim is sgd_8bit; this trainer's optimizer is sgd");  // without momentum there is no state
    CHECK(message({.max_steps = 1, .optim = "sgd_8bit"}, ht::sgd_options{.momentum = 0.9}) == "no error");
    const std::string beside = " beside lion_options, which the trainer was given; expected it there";
    CHECK(message({.max_steps = 1, .learning_rate = 1e-3}, ht::lion_options{}) == "training_arguments: learning_rate is 0.001" + beside);
    CHECK(message({.max_steps = 1, .weight_decay = 0.5}, ht::lion_options{}) == "training_arguments: weight_decay is 0.5" + beside);
    CHECK(message({.max_steps = 1, .adam_beta1 = 0.5}, ht::lion_options{}) == "training_arguments: adam_beta1 is 0.5" + beside);
    CHECK(message({.max_steps = 1, .adam_beta2 = 0.5}, ht::lion_options{}) == "training_arguments: adam_beta2 is 0.5" + beside);
    CHECK(message({.max_steps = 1, .adam_epsilon = 0.5}, ht::lion_options{}) == "training_arguments: adam_epsilon is 0.5" + beside);
    CHECK(message({.gradient_checkpointing = true, .max_steps = 1}) ==
          "training_arguments: gradient_checkpointing for a model that has no checkpoint_every(n); call ht::checkpoint in the model "
          "itself");
    CHECK(message({.max_steps = 1}, ht::lion_options{.lr = -1}) == "lion: lr is -1; expected 0 or more");
    // The end of a schedule is compared with the rate of the optimizer's options.
    const ht::lr_scheduler_arguments end{.lr_end = 1e-3};
    CHECK(message({.max_steps = 1, .lr_scheduler_type = ht::schedule::polynomial, .lr_scheduler_kwargs = end},
                  ht::lion_options{.lr = 1e-2}) == "no error");
    CHECK(message({.max_steps = 1, .lr_scheduler_type = ht::schedule::polynomial, .lr_scheduler_kwargs = end},
                  ht::lion_options{.lr = 1e-4}) ==
          "training_arguments: lr_scheduler_kwargs.lr_end is 0.001; expected 0 to learning_rate, 0.0001");
}

}  // namespace train_any_optimizer_tests
