// SPDX-License-Identifier: MIT
/// \file
/// The definition of make_run(), which each policy's file includes to instantiate it.
#pragma once

#include <algorithm>

#include <halftone/train/trainer.hpp>

#include "model.hpp"
#include "run.hpp"

namespace {

namespace ht = halftone;

template <class Policy>
class run final : public any_run {
  public:
    run(ht::cpu& device, const row& r, const options& o, ht::extent vocabulary, ht::trainer_callback& observer,
        ht::range_listener* listener)
        : device_(&device),
          model_(device, vocabulary, 2,
                 {.context = o.length,
                  .layers = static_cast<int>(o.layers),
                  .heads = o.heads,
                  .width = o.width,
                  .checkpointing = r.recomputes ? static_cast<int>(o.checkpointing) : 0},
                 o.seed),
          trainer_(device, model_,
                   {.per_device_train_batch_size = o.batch,
                    .max_steps = o.steps,
                    .optim = r.has_8bit_state ? "adamw_8bit" : "adamw",
                    .learning_rate = o.learning_rate,
                    .weight_decay = 0.1,
                    .adam_beta2 = 0.95,
                    .lr_scheduler_type = ht::cosine,
                    .warmup_ratio = 0.1,
                    .final_lr_ratio = 0.1,
                    .logging_steps = std::max<std::int64_t>(1, o.steps / 10),
                    .seed = o.seed}) {
        trainer_.add_callback(observer);
        stopper_.target = &trainer_;
        trainer_.add_callback(stopper_);
        trainer_.listen(listener);
    }

    std::size_t parameters() const override { return model_.parameters().size(); }
    void train(review_data& data, std::int64_t steps) override {
        stopper_.last = trainer_.state().step + steps;
        result_ = trainer_.train(data);
    }
    row_result finish(review_data& data) override {
        row_result r;
        r.parameters = parameters();
        r.training = result_;
        r.measured.peak = result_.peak_bytes;
        std::copy(std::begin(result_.peak_bytes_of), std::end(result_.peak_bytes_of), r.measured.by_kind.begin());
        r.validation_loss = trainer_.evaluate(data).loss;
        r.accuracy = accuracy(data);
        r.policies = ht::policies_of<review_model<Policy>>();
        return r;
    }

  private:
    using trainer_type = ht::trainer<ht::cpu, review_model<Policy>>;

    /// Ends train() after a step.
    struct stopper final : ht::trainer_callback {
        trainer_type* target = nullptr;
        std::int64_t last = 0;
        void on_step(const ht::trainer_state& s) override {
            if (s.step == last && s.step != s.max_steps) target->stop();
        }
    };

    double accuracy(review_data& data) const {
        constexpr ht::extent together = 32;
        ht::inference eval{*device_};
        std::int64_t right = 0;
        for (ht::extent first = 0; first < data.windows(); first += together) {
            const review_batch batch = data.window(first, together);
            const auto logits = ht::to_host(*device_, model_.logits(eval, batch));
            for (ht::extent i = 0; i < batch.labels.size(); ++i) {
                const bool says_one = static_cast<float>(logits(i, 1)) > static_cast<float>(logits(i, 0));
                right += (says_one ? 1 : 0) == batch.labels(i) ? 1 : 0;
            }
        }
        return static_cast<double>(right) / static_cast<double>(data.windows());
    }

    ht::cpu* device_;
    review_model<Policy> model_;
    trainer_type trainer_;
    stopper stopper_;
    ht::training_result result_;
};

}  // namespace

template <class Policy>
std::unique_ptr<any_run> make_run(ht::cpu& device, const row& r, const options& o, ht::extent vocabulary,
                                  ht::trainer_callback& observer, ht::range_listener* listener) {
    return std::make_unique<run<Policy>>(device, r, o, vocabulary, observer, listener);
}
