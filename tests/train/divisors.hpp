// SPDX-License-Identifier: MIT
/// \file
/// Models of losses that are means over something else than rows, and PyTorch's losses and gradients of eight rows
/// (golden/loss_divisors.py).
///
///     divisors::for_each_case([&](const divisors::golden& want, auto how, const auto& data) { ... });
#pragma once

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/halftone.hpp>

#include "optim/golden.hpp"

namespace divisors {

namespace ht = halftone;
using ht::extent;

constexpr extent all_rows = 8, features = 4, classes = 8;

/// One of PyTorch's cases.
struct golden {
    std::string name;
    std::int32_t ignored = 0;
    double smoothing = 0;
    std::vector<std::int32_t> labels;
    std::vector<float> weight;
    double loss = 0;
    std::vector<double> gradients;  // of the layer's weight, and of its bias
};

inline std::vector<golden> read_cases() {
    std::vector<golden> cases;
    for (const support::golden_line& line : support::read_golden("loss_divisors.txt")) {
        if (line.kind == "case") {
            cases.emplace_back().name = line.words[0];
            cases.back().ignored = static_cast<std::int32_t>(line.number(1)), cases.back().smoothing = line.number(2);
            continue;
        }
        golden& c = cases.back();
        for (std::size_t i = 0; i < line.words.size(); ++i) {
            const double number = line.number(i);
            if (line.kind == "labels") c.labels.push_back(static_cast<std::int32_t>(number));
            if (line.kind == "weight") c.weight.push_back(static_cast<float>(number));
            if (line.kind == "loss") c.loss = number;
            if (line.kind == "dweight" || line.kind == "dbias") c.gradients.push_back(number);
        }
    }
    return cases;
}

/// The numbers of golden/loss_divisors.py.
inline std::vector<float> numbers(extent count, extent step, extent modulus) {
    std::vector<float> all;
    for (extent i = 0; i < count; ++i) all.push_back(static_cast<float>(step * i % modulus - modulus / 2) / 4);
    return all;
}

/// Rows with a label each.
struct labelled_rows {
    ht::const_view<float, 2> x;              // (rows, features)
    ht::const_view<std::int32_t, 1> labels;  // (rows)

    extent rows() const { return x.extent_of(0); }
    extent size() const { return rows(); }
    template <class F>
    labelled_rows with_views(const F& f) const {
        return {f(x), f(labels)};
    }
    labelled_rows part(extent first, extent count) const {
        return {{x.data() + features * first, {count, features}}, {labels.data() + first, {count}}};
    }
    std::vector<labelled_rows> split(extent count) const {
        std::vector<labelled_rows> parts;
        for (extent i = 0; i < count; ++i) parts.push_back(part(i * (rows() / count), rows() / count));
        return parts;
    }
};
static_assert(ht::has_loss_divisor<labelled_rows>);

/// Rows with a weight each, over whose sum the loss is a mean; its labels say nothing.
struct masked_rows {
    ht::const_view<float, 2> x;              // (rows, features)
    ht::const_view<float, 1> mask;           // (rows)
    ht::const_view<std::int32_t, 1> labels;  // (rows)

    ht::loss_divisor loss_divisor() const { return mask; }
    extent rows() const { return x.extent_of(0); }
    extent size() const { return rows(); }
    masked_rows part(extent first, extent count) const {
        return {{x.data() + features * first, {count, features}},
                {mask.data() + first, {count}},
                {labels.data() + first, {count}}};
    }
    std::vector<masked_rows> split(extent count) const {
        std::vector<masked_rows> parts;
        for (extent i = 0; i < count; ++i) parts.push_back(part(i * (rows() / count), rows() / count));
        return parts;
    }
};

/// The eight rows: one step's batch, and eight windows.
template <class Batch>
class eight_rows {
  public:
    explicit eight_rows(const golden& g) : golden_(g), x_(numbers(all_rows * features, 7, 11)) {}

    Batch all() const {
        const ht::const_view<float, 2> x(x_.data(), {all_rows, features});
        const ht::const_view<std::int32_t, 1> labels(golden_.labels.data(), {all_rows});
        if constexpr (std::is_same_v<Batch, masked_rows>) {
            return {x, {golden_.weight.data(), {all_rows}}, labels};
        } else {
            return {x, labels};
        }
    }
    Batch sample(std::uint32_t, extent rows) const {
        CHECK(rows == all_rows);
        return all();
    }
    extent windows() const { return all_rows; }
    Batch window(extent first, extent rows) const { return all().part(first, std::min(rows, all_rows - first)); }

  private:
    golden golden_;
    std::vector<float> x_;
};

/// The mean over labels that are not -100, of which the batch tells.
struct plain_loss {
    auto operator()(auto&& ctx, const auto& scores, const auto& b) const {
        return ht::cross_entropy(ctx, scores, b.labels);
    }
};
/// The mean with options, of which the model tells.
struct loss_with_options {
    ht::cross_entropy_options options{};
    auto operator()(auto&& ctx, const auto& scores, const auto& b) const {
        return ht::cross_entropy(ctx, scores, b.labels, options);
    }
    ht::loss_divisor divisor(const auto& b) const { return {b.labels, options}; }
};
/// A sum of squares over the sum of the mask, of which the batch tells. 1e-30 lets the gradient of 0 times the loss be 0.
struct masked_loss {
    auto operator()(auto&& ctx, const auto& y, const auto& b) const {
        const auto mask = ctx.root().to_device(b.mask);
        const auto squares = ht::sum(ctx, ht::mul(ctx, y, y), ht::axes<1>);
        return ht::div(ctx, ht::sum(ctx, ht::mul(ctx, squares, mask)), ht::add(ctx, ht::sum(ctx, mask), 1e-30));
    }
};

/// A linear layer whose scores have a loss.
template <class Loss>
struct scorer : ht::nn::model {
    using policy = ht::full_fp32;
    Loss how;
    ht::nn::linear<policy> layer;

    template <class Device>
    scorer(Device& device, const Loss& l) : ht::nn::model(device), how(l), layer(parameters(), features, classes) {
        commit(*this, 1);
        const std::vector<float> weight = numbers(classes * features, 5, 9), bias(classes, 0.0f);
        parameters().memory().write(layer.weight.master().data(), weight.data(), weight.size() * sizeof(float));
        parameters().memory().write(layer.bias.master().data(), bias.data(), bias.size() * sizeof(float));
        parameters().refresh();
    }
    template <class Context, class Batch>
    ht::variable<float, 0> loss(Context&& ctx, const Batch& b) const {
        return how(ctx, layer(ctx, ctx.root().to_device(b.x)), b);
    }
    template <class Batch>
        requires requires(const Loss& l, const Batch& b) { l.divisor(b); }
    auto loss_divisor(const Batch& b) const { return how.divisor(b); }
    /// Weight and bias.
    std::vector<float> values() const {
        std::vector<float> all(classes * features + classes);
        parameters().memory().read(all.data(), layer.weight.master().data(), classes * features * sizeof(float));
        parameters().memory().read(all.data() + classes * features, layer.bias.master().data(),
                                   classes * sizeof(float));
        return all;
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.layer); }
};

/// Calls f(case, its loss, its data) for each of PyTorch's cases.
template <class F>
void for_each_case(const F& f) {
    int count = 0;
    for (const golden& g : read_cases()) {
        CAPTURE(g.name);
        ++count;
        if (g.name == "masked") {
            f(g, masked_loss{}, eight_rows<masked_rows>(g));
        } else if (g.name == "labels") {
            f(g, plain_loss{}, eight_rows<labelled_rows>(g));
        } else {
            ht::cross_entropy_options o;
            o.label_smoothing = g.smoothing, o.ignore_index = g.ignored;
            if (!g.weight.empty()) o.weight = {g.weight.data(), {classes}};
            f(g, loss_with_options{o}, eight_rows<labelled_rows>(g));
        }
    }
    CHECK(count == 5);
}

/// Sums of some ten products of numbers below 16, rounded in another order, and losses, each rounded some times.
constexpr double bound = 400 * 0x1p-24;

inline void check_loss(const golden& want, double loss) { CHECK(std::fabs(loss - want.loss) <= bound * want.loss); }

/// The gradients of a step of SGD at a rate of 1 are the change of the values.
inline void check_gradients(const golden& want, const std::vector<float>& before, const std::vector<float>& after) {
    REQUIRE((before.size() == want.gradients.size() && after.size() == want.gradients.size()));
    for (std::size_t i = 0; i < before.size(); ++i) {
        CAPTURE(i);
        const double gradient = static_cast<double>(before[i]) - static_cast<double>(after[i]);
        CHECK(std::fabs(gradient - want.gradients[i]) <= bound);
    }
}

/// A step of all rows by `accumulation` micro-batches of each of `ranks` ranks.
inline ht::training_arguments one_step(extent accumulation, extent ranks = 1, extent windows = 8) {
    return {.per_device_train_batch_size = all_rows / (accumulation * ranks),
            .per_device_eval_batch_size = windows,
            .gradient_accumulation_steps = accumulation,
            .max_steps = 1,
            .max_grad_norm = 0,
            .logging_steps = 1};
}
constexpr ht::sgd_options by_sgd{.lr = 1};

}  // namespace divisors
