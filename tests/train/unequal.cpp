// SPDX-License-Identifier: MIT
/// \file
/// Micro-batches and windows with unequal numbers of targets that are not -100.
#include "train/unequal.hpp"

namespace train_unequal_tests {

namespace ht = halftone;
using unequal::extent;

TEST_CASE("trainer: micro-batches with unequal numbers of targets give the loss and the update of the whole batch") {
    ht::cpu device{{.threads = 1}};
    unequal::check_training<ht::full_fp32>(device);
}

TEST_CASE("trainer: a scaled loss, an outlier guard and a micro-batch without targets that count") {
    ht::cpu device{{.threads = 1}};
    ht::training_arguments a = unequal::few_steps(12);
    a.scaler.outlier_factor = 6;
    a.scaler.outlier_window = 4;
    const unequal::ended e = unequal::train<ht::amp_fp16>(device, {8, 0, 3, 1}, 4, a);
    CHECK(e.result.skipped_steps == 0);
    CHECK(e.result.train_loss > 0);
    CHECK(e.result.train_loss < 4);
}

TEST_CASE("trainer: if no target of a batch counts the loss is NaN, and its gradients are 0") {
    for (const int parts : {1, 4}) {
        ht::cpu device{{.threads = 1}};
        ht::training_arguments a = unequal::few_steps(3);
        a.weight_decay = 0;
        const unequal::ended start = unequal::train<ht::full_fp32>(device, {0}, parts, unequal::few_steps(0)),
                             e = unequal::train<ht::full_fp32>(device, {0}, parts, a);
        CHECK(std::isnan(e.result.train_loss));
        CHECK(std::isnan(e.evaluated));
        CHECK(e.result.skipped_steps == 0);
        CHECK(unequal::apart(e, start) == 0);
    }
}

TEST_CASE("trainer: evaluation is the mean over targets that count, in windows of any number at a time") {
    const std::string corpus = small::text();
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> model{device, small::config, 1};
    unequal::masked_data data(corpus, {8, 1, 0, 2, 5});
    // One window after the other, computed from the losses.
    ht::inference eval{device};
    double sum = 0, counted = 0;
    for (extent w = 0; w < data.windows(); ++w) {
        if (data.counted_in(w) == 0) continue;
        const auto n = static_cast<double>(data.counted_in(w));
        sum += n * static_cast<double>(model.loss(eval, data.window(w, 1)).item());
        counted += n;
    }
    for (const int rows : {1, 3, 7, 64}) {
        CAPTURE(rows);
        ht::training_arguments a = unequal::few_steps(1);
        a.per_device_eval_batch_size = rows;
        ht::trainer trainer{device, model, a};
        const ht::evaluation_result r = trainer.evaluate(data);
        CHECK(r.loss == doctest::Approx(sum / counted).epsilon(1e-6));
        CHECK(r.tokens == data.windows() * small::config.context);
    }
}

}  // namespace train_unequal_tests
