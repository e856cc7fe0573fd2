// SPDX-License-Identifier: MIT
/// \file
/// Lesson 24: an optimizer of your own, in the trainer, on two ranks.
///
/// AdEMAMix (Pagliardini, Ablin and Grangier 2024) adds a second, slow mean of gradients to AdamW: gradients of thousands of
/// steps ago still tell where to go. With the mean of squares that makes three moments for each parameter. What is written
/// here is the rule for one parameter; masters and rounded copies, loss scales, clipping, skipped steps, groups, schedules,
/// checkpoints, memory plans, GPUs and ranks are those of every optimizer.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/optim/own_optimizer.hpp>
#include <halftone/ranks/threads.hpp>
#include <halftone/train/ranks.hpp>
#include <halftone/train/trainer.hpp>

namespace ht = halftone;

// 1. The rule: its name, its moments, its coefficients.
struct ademamix_rule {
    static constexpr const char* name = "ademamix";
    static constexpr int moments = 3;
    static constexpr const char* moment_names[moments] = {"fast mean", "slow mean", "mean of squares"};
    static constexpr bool always_keeps = true;  // there is no setting without moments, as SGD has one
    static constexpr bool keeps() { return true; }

    double beta1, beta2, beta3, alpha, epsilon;

    // A gradient whose square is no finite number would spoil the mean of squares for ever: such a step is skipped.
    static constexpr float largest_gradient() { return ht::kernel::largest_with_square; }

    // What all parameters of a step share is computed in double and rounded once. `steps` counts from 1.
    struct scalars {
        float fast_weight, slow_weight, square_decay, square_weight, fast_scale, root_scale, alpha, epsilon, lr, decay;
    };
    HALFTONE_HD scalars scalars_of(const ht::kernel::group_rates& rates, const ht::kernel::step_record& step) const {
        const double lr = rates.lr(step), t = static_cast<double>(step.steps);
        const auto rounded = [](double x) { return static_cast<float>(x); };
        return {.fast_weight = rounded(1 - beta1),
                .slow_weight = rounded(1 - beta3),
                .square_decay = rounded(beta2),
                .square_weight = rounded(1 - beta2),
                .fast_scale = rounded(1 / (1 - std::pow(beta1, t))),
                .root_scale = rounded(1 / std::sqrt(1 - std::pow(beta2, t))),
                .alpha = rounded(alpha),
                .epsilon = rounded(epsilon),
                .lr = rounded(lr),
                .decay = rounded(1 - lr * rates.weight_decay)};
    }

    // The squares of gradients underflow in fp16; bfloat16 moments are rounded stochastically by the library.
    template <class State>
    static consteval bool check_state() {
        static_assert(!ht::narrow_range<State>, "ademamix: moments in fp16");
        return true;
    }
};

// 2. The update of one parameter, written once: V is a float of a GPU's thread, or a vector of a CPU's instruction set.
HALFTONE_UPDATE(ademamix_rule,
    V& fast = moments[0];
    V& slow = moments[1];
    V& square = moments[2];
    fast = fma(g - fast, splat(s.fast_weight), fast);
    slow = fma(g - slow, splat(s.slow_weight), slow);
    square = fma(g * s.square_weight, g, square * s.square_decay);
    const V direction = fma(slow, splat(s.alpha), fast * s.fast_scale);
    const V root = fma(sqrt(square), splat(s.root_scale), splat(s.epsilon));
    return fma(w, splat(s.decay), direction * -s.lr / root);)

// 3. Its options, by whose type everything else knows the optimizer.
struct ademamix_options {
    double lr = 1e-3;
    double beta1 = 0.9, beta2 = 0.999, beta3 = 0.9999, alpha = 5, epsilon = 1e-8;
    double weight_decay = 0;

    static constexpr const char* name = ademamix_rule::name;
    template <class Device, class Model>
    using optimizer = ht::own_optimizer<Device, Model, ademamix_options>;
    ademamix_rule rule() const { return {beta1, beta2, beta3, alpha, epsilon}; }
};

using model_type = ht::nn::gpt<ht::amp_bf16>;
constexpr ht::nn::gpt_config config{.vocabulary = 16, .context = 8, .layers = 1, .heads = 2, .width = 32};

/// A walk over 16 symbols that a model can learn.
std::string walk() {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += static_cast<char>((i * i + i / 7) % 16);
    return text;
}

struct result {
    double loss = 0;
    std::vector<std::byte> weights;
    std::size_t moment_bytes = 0, parameters = 0;
};

/// Trains for 150 steps of 8 rows, alone or as one of several ranks.
template <class Options>
result train(const std::string& text, const Options& options, ht::communicator* comm) {
    ht::cpu device{{.threads = 1}};
    model_type model{device, config, 1};
    ht::language_data data{ht::token_view{text}, {.context = config.context, .vocabulary = config.vocabulary}};
    const ht::extent rows = comm == nullptr ? 8 : 8 / comm->size();
    ht::trainer trainer{device, model, {.per_device_train_batch_size = rows, .max_steps = 150}, options};
    if (comm != nullptr) ht::join(trainer, *comm);
    trainer.train(data);
    result r{trainer.evaluate(data).loss, {}, device.memory().usage().live(ht::memory_kind::moment), model.parameters().size()};
    for (const ht::store::group& g : model.parameters().groups())
        r.weights.insert(r.weights.end(), g.master.data(), g.master.data() + g.master.bytes());
    return r;
}

int main() {
    const std::string text = walk();
    const double none = std::log(16.0);  // of a model that knows nothing

    const result adamw = train(text, ht::adamw_options{.lr = 3e-3}, nullptr);
    const result own = train(text, ademamix_options{.lr = 3e-3, .beta3 = 0.99}, nullptr);
    std::printf("moments of a parameter, bytes: adamw %.0f, ademamix %.0f\n",
                static_cast<double>(adamw.moment_bytes) / static_cast<double>(adamw.parameters),
                static_cast<double>(own.moment_bytes) / static_cast<double>(own.parameters));
    // Prints: moments of a parameter, bytes: adamw 8, ademamix 12
    std::printf("loss after 150 steps less than two thirds of the first: adamw %s, ademamix %s\n",
                adamw.loss < 2 * none / 3 ? "yes" : "no", own.loss < 2 * none / 3 ? "yes" : "no");
    // Prints: loss after 150 steps less than two thirds of the first: adamw yes, ademamix yes

    // Two ranks, each with half of the rows: the gradients are added, and both take the same steps of the same rule.
    result ranks[2];
    ht::run_ranks(2, [&](ht::communicator& comm) {
        ranks[comm.rank()] = train(text, ademamix_options{.lr = 3e-3, .beta3 = 0.99}, &comm);
    });
    std::printf("two ranks: the same bits: %s, learned: %s\n", ranks[0].weights == ranks[1].weights ? "yes" : "no",
                ranks[0].loss < 2 * none / 3 ? "yes" : "no");
    // Prints: two ranks: the same bits: yes, learned: yes
    return 0;
}
