// SPDX-License-Identifier: MIT
/// \file
/// Losses that are means over labels that count, class weights, another ignore_index, or something of the user's own: in windows of
/// micro-batches and in evaluations they are those of PyTorch's one batch.
#include <halftone/data/labelled_batches.hpp>
#include <halftone/nn/classifier.hpp>

#include "train/divisors.hpp"

namespace train_divisors_tests {

using namespace divisors;

TEST_CASE("divisors: windows of 1, 2, 4 and 8 micro-batches give PyTorch's loss and gradient of one batch") {
    for_each_case([](const golden& want, const auto& how, auto data) {
        for (const extent parts : {1, 2, 4, 8}) {
            CAPTURE(parts);
            ht::cpu device{{.threads = 1}};
            scorer model{device, how};
            const std::vector<float> before = model.values();
            ht::trainer trainer{device, model, one_step(parts), by_sgd};
            const ht::training_result r = trainer.train(data);
            CHECK(r.skipped_steps == 0);
            check_loss(want, r.train_loss);
            check_gradients(want, before, model.values());
        }
    });
}

TEST_CASE("divisors: evaluations of 8, 4, 3, 2 and 1 rows at a time have PyTorch's loss of one batch") {
    for_each_case([](const golden& want, const auto& how, auto data) {
        for (const extent rows : {8, 4, 3, 2, 1}) {
            CAPTURE(rows);
            ht::cpu device{{.threads = 1}};
            scorer model{device, how};
            ht::trainer trainer{device, model, one_step(1, 1, rows), by_sgd};
            check_loss(want, trainer.evaluate(data).loss);
        }
    });
}

TEST_CASE("divisors: a loop of the user's own weights by divisor_of(model, batch)") {
    for_each_case([](const golden& want, const auto& how, const auto& data) {
        ht::cpu device{{.threads = 1}};
        scorer model{device, how};
        const std::vector<float> before = model.values();
        ht::sgd optimizer{device, model, by_sgd};
        ht::accumulator acc{model, ht::unscaled};
        ht::tape tape{device};
        ht::loss_meter losses{device};
        const auto batch = data.all();
        for (const auto& micro : batch.split(4)) {
            const auto loss = model.loss(tape, micro) *
                              ht::share_of(tape, ht::divisor_of(model, micro), ht::divisor_of(model, batch));
            losses.add(loss);
            tape.backward(loss, acc);
        }
        losses.end_step();
        optimizer.step(acc.take());
        check_loss(want, losses.mean());
        check_gradients(want, before, model.values());
    });
}

/// Rows whose divisor is a number.
struct counted_rows : labelled_rows {
    double items = 0;
    double loss_divisor() const { return items; }
    std::vector<counted_rows> split(extent) const = delete;
};
/// A model says more than a batch.
struct says_three {
    int loss_divisor(const auto&) const { return 3; }
};
struct says_nothing {};
struct targets_of_floats {
    ht::const_view<float, 1> targets;
    ht::const_view<std::int32_t, 1> labels;
};
static_assert(ht::has_loss_divisor<says_nothing, labelled_rows> && !ht::has_loss_divisor<says_nothing, says_nothing>);
static_assert(ht::has_loss_divisor<says_three, says_nothing>);
static_assert(!ht::has_loss_divisor<targets_of_floats>);  // labels count where there are no targets
static_assert(ht::has_loss_divisor<ht::labelled_batch> && ht::has_loss_divisor<ht::language_batch>);

TEST_CASE("divisors: numbers, and what comes first; a divisor that is none is refused") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    const std::vector<std::int32_t> labels{1, -100, 7};
    const counted_rows rows{{{}, {labels.data(), {3}}}, 0.25};
    CHECK(ht::share_of(eval, rows, ht::loss_divisor(2)).read().share == 0.125);
    CHECK(ht::share_of(eval, ht::divisor_of(says_three{}, rows), ht::loss_divisor(4)).read().share == 0.75);
    CHECK(ht::share_of(eval, ht::divisor_of(says_nothing{}, rows), ht::loss_divisor(4)).read().counted == 0.25);
    CHECK(ht::share_of(eval, static_cast<const labelled_rows&>(rows)).read().counted == 2);
    CHECK(ht::share_of(eval, ht::loss_divisor(0), ht::loss_divisor(0)).read().share == 0);
    CHECK_THROWS_WITH_AS(ht::loss_divisor(-1.5), "loss_divisor: a loss is divided by -1.5; expected 0 or more",
                         ht::argument_error);
    CHECK_THROWS_AS(ht::loss_divisor(std::nan("")), ht::argument_error);
    const ht::const_view<std::int32_t, 1> apart(labels.data(), {2}, {2});
    CHECK_THROWS_AS((ht::loss_divisor(apart)), ht::shape_error);
}

TEST_CASE("divisors: a step of which no label counts has a loss of NaN and gradients of 0") {
    golden none = read_cases()[0];
    none.labels.assign(all_rows, -100);
    for (const extent parts : {1, 4}) {
        ht::cpu device{{.threads = 1}};
        scorer model{device, plain_loss{}};
        const std::vector<float> before = model.values();
        eight_rows<labelled_rows> data(none);
        ht::trainer trainer{device, model, one_step(parts), by_sgd};
        const ht::training_result r = trainer.train(data);
        CHECK(std::isnan(r.train_loss));
        CHECK(r.skipped_steps == 0);
        CHECK(model.values() == before);
        CHECK(std::isnan(trainer.evaluate(data).loss));
    }
}

/// Texts of four tokens.
struct four_texts {
    std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}, labels{0, 1, -100, -100},
        lengths{4, 4, 4, 4};
    ht::labelled_batch sample(std::uint32_t, extent) const {
        return {{tokens.data(), {4, 4}}, {labels.data(), {4}}, {lengths.data(), {4}}};
    }
    extent windows() const { return 4; }
    ht::labelled_batch window(extent first, extent rows) const { return sample(0, 4).part(first, rows); }
};

TEST_CASE("divisors: nn::classifier with labels of -100: loss, norm and evaluation are those of one batch") {
    const auto train = [](extent rows) {
        ht::cpu device{{.threads = 1}};
        ht::nn::classifier<ht::full_fp32> model{device,
                                                {.encoder = {.vocab_size = 10,
                                                             .hidden_size = 8,
                                                             .num_hidden_layers = 1,
                                                             .num_attention_heads = 2,
                                                             .intermediate_size = 16,
                                                             .max_position_embeddings = 4}},
                                                1};
        four_texts data;
        ht::training_arguments a{.per_device_train_batch_size = rows,
                                 .per_device_eval_batch_size = rows,
                                 .gradient_accumulation_steps = 4 / rows,
                                 .max_steps = 1,
                                 .learning_rate = 0,
                                 .logging_steps = 1};
        ht::trainer trainer{device, model, a};
        const double evaluated = trainer.evaluate(data).loss, trained = trainer.train(data).train_loss;
        return std::vector<double>{trained, evaluated, trainer.state().grad_norm};
    };
    const std::vector<double> whole = train(4);
    for (const extent rows : {2, 1}) {
        const std::vector<double> parts = train(rows);
        for (std::size_t i = 0; i < 3; ++i) CHECK(parts[i] == doctest::Approx(whole[i]).epsilon(1e-5));
    }
}

}  // namespace train_divisors_tests
