// SPDX-License-Identifier: MIT
/// \file
/// A trainer whose micro-batches and windows have unequal numbers of targets that are not -100, on any device.
///
///     unequal::check_training<ht::full_fp32>(device);
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/gradient_sink.hpp"
#include "train/small_gpt.hpp"

namespace unequal {

namespace ht = halftone;
using ht::extent;

inline ht::language_options few_windows() {
    ht::language_options o = small::options;
    o.most_windows = 7;
    return o;
}

/// Windows of a text. The pattern's element r + s, modulo its length, is the number of targets that count in row r of step s;
/// the others are -100.
class masked_data {
  public:
    masked_data(const std::string& corpus, std::vector<extent> counted)
        : data_(ht::token_view{corpus}, few_windows()), counted_(std::move(counted)) {}

    ht::language_batch sample(std::uint32_t step, extent rows) { return masked(data_.sample(step, rows), step); }
    extent windows() const { return data_.windows(); }
    ht::language_batch window(extent first, extent rows) { return masked(data_.window(first, rows), first); }
    extent counted_in(extent row) const { return counted_[static_cast<std::size_t>(row) % counted_.size()]; }

  private:
    ht::language_batch masked(const ht::language_batch& b, extent first) {
        targets_.assign(b.targets.data(), b.targets.data() + b.size());
        const extent time = b.tokens.extent_of(1);
        for (extent row = 0; row < b.rows(); ++row) {
            for (extent t = counted_in(first + row); t < time; ++t)
                targets_[static_cast<std::size_t>(row * time + t)] = -100;
        }
        return {b.tokens, {targets_.data(), b.tokens.shape()}};
    }

    ht::language_data data_;
    std::vector<extent> counted_;
    std::vector<std::int32_t> targets_;
};

/// The results of a run.
struct ended {
    ht::training_result result;
    double evaluated = 0;
    std::vector<double> masters;
};

template <class P, class Device>
ended train(Device& device, const std::vector<extent>& counted, int micro_batches, ht::training_arguments a = {}) {
    const std::string corpus = small::text();
    ht::nn::gpt<P> model{device, small::config, 1};
    masked_data data(corpus, counted);
    a.gradient_accumulation_steps = micro_batches;
    a.per_device_train_batch_size = 4 / micro_batches;
    a.logging_steps = 1;  // so that the result's loss is that of the last step
    ended e;
    if (a.max_steps > 0) {
        ht::trainer trainer{device, model, a};
        e.result = trainer.train(data);
        e.evaluated = trainer.evaluate(data).loss;
    }
    const ht::store& s = model.parameters();
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        for (const auto v : support::read_masters(s, i)) e.masters.push_back(static_cast<double>(v));
    }
    return e;
}

inline ht::training_arguments few_steps(std::int64_t steps) {
    return {.max_steps = steps, .learning_rate = 1e-3, .adam_epsilon = 1e-3, .max_grad_norm = 1};
}

inline double rounding_bound(double roundings) { return roundings * 0x1p-24; }
/// The bound for masters after one step of few_steps: the rate times the difference of gradients over epsilon. Gradients have a
/// norm of at most 1, and differ by at most 16 roundings of that norm.
inline const double largest_difference = 1e-3 * rounding_bound(16) / 1e-3;

/// The largest difference of two runs' masters.
inline double apart(const ended& a, const ended& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.masters.size(); ++i) most = std::fmax(most, std::fabs(a.masters[i] - b.masters[i]));
    return most;
}

/// One step of a batch as a whole, in two parts and in four: the same loss and update.
template <class P, class Device>
void check_training(Device& device) {
    for (const std::vector<extent>& counted : {std::vector<extent>{8, 1, 1, 1}, {2, 0, 8, 0}, {0, 0, 0, 3}}) {
        CAPTURE(counted[0]);
        const ended whole = train<P>(device, counted, 1, few_steps(1));
        for (const int parts : {2, 4}) {
            CAPTURE(parts);
            const ended e = train<P>(device, counted, parts, few_steps(1));
            CHECK(e.result.skipped_steps == 0);
            // Each loss of a part is rounded once, and so is that of the batch; the losses of parts are added in double.
            CHECK(e.result.train_loss == doctest::Approx(whole.result.train_loss).epsilon(rounding_bound(2)));
            CHECK(apart(e, whole) < largest_difference);
            CHECK(apart(e, whole) < 0.02 * apart(e, train<P>(device, counted, parts, few_steps(0))));
        }
    }
}

}  // namespace unequal
