// SPDX-License-Identifier: MIT
/// \file
/// N micro-batches of B and one batch of N B: the same gradients and the same AdamW update, within rounding errors;
/// also with unequal numbers of targets that are not -100.
#include <algorithm>
#include <cmath>

#include "nn/gpt_gradients.hpp"

namespace train_micro_batches_tests {

namespace ht = halftone;
using nn_test::batch;

constexpr double lr = 1e-2, epsilon = 1e-8;

struct in_float {
    using accumulate = float;
};

/// One step's gradients and masters, by entry.
struct outcome {
    std::vector<std::vector<float>> gradients, masters;
};

enum class weighing { alike, by_share };

template <class P>
outcome step(const batch& whole, int parts, weighing by) {
    ht::cpu device{{.threads = 2}};
    ht::nn::gpt<P> model{device, nn_test::small_config};
    nn_test::randomize(model, 3);
    ht::adamw optimizer{device, model, {.lr = lr, .epsilon = epsilon, .weight_decay = 0}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    for (int i = 0; i < parts; ++i) {
        const batch part = whole.part(i * whole.rows / parts, whole.rows / parts);
        if (by == weighing::alike) {
            tape.backward(model.loss(tape, part) / static_cast<float>(parts), acc);
        } else {
            tape.backward(model.loss(tape, part) * ht::share_of(tape, part, whole), acc);
        }
    }
    CHECK(acc.received() == parts);
    auto grads = acc.take();
    outcome o;
    ht::store& s = model.parameters();
    for (const ht::store::entry& e : s.entries()) {
        const float* all = grads.slabs(s).template group<in_float>(e.group).data() + e.gradient;
        o.gradients.emplace_back(all, all + e.count);
    }
    optimizer.step(grads);
    for (std::size_t i = 0; i < s.entries().size(); ++i)
        o.masters.emplace_back(support::masters(s, i), support::masters(s, i) + s.entries()[i].count);
    return o;
}

/// The first update of AdamW without decay, in units of the rate.
double direction(double g) { return g / (std::fabs(g) + epsilon); }

/// Four rows with these numbers of targets that count.
batch with_targets(const int (&counted)[4]) {
    const batch all = batch::random(4, 6, 11, 4);
    std::vector<std::int32_t> targets = all.target_ids;
    for (int row = 0; row < 4; ++row) {
        for (int t = 0; t < 6 - counted[row]; ++t) targets[static_cast<std::size_t>(6 * row + t)] = -100;
    }
    return {4, 6, all.token_ids, targets};
}

template <class P, class T>
void the_same_update(const batch& whole, weighing by) {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> model{device, nn_test::small_config};
    nn_test::randomize(model, 3);
    const nn_test::expected<T> want(model, whole, 1);
    const outcome one = step<P>(whole, 1, weighing::alike);
    for (const int parts : {2, 4}) {
        CAPTURE(parts);
        const outcome many = step<P>(whole, parts, by);
        for (std::size_t i = 0; i < one.gradients.size(); ++i) {
            const std::string& path = model.parameters().entries()[i].path;
            CAPTURE(path);
            const auto& exact = want.exact.gradients.at(path).values;
            support::comparison gradients, updates;
            for (std::size_t j = 0; j < exact.size(); ++j) {
                const double bound = want.spreads.at(path).bound(j),
                             before = static_cast<double>(support::masters(model.parameters(), i)[j]);
                gradients.expect(static_cast<double>(many.gradients[i][j]), static_cast<double>(one.gradients[i][j]),
                                 2 * bound);
                // The update increases with the gradient; it has ten roundings, and the master one more.
                const double reach = direction(exact[j] + bound) - direction(exact[j] - bound);
                const double error = lr * (reach + 2 * support::gamma(10)) + 2 * support::u * (std::fabs(before) + lr);
                updates.expect(static_cast<double>(many.masters[i][j]) - before,
                               static_cast<double>(one.masters[i][j]) - before, error);
            }
            CHECK_MESSAGE(gradients.within(), gradients);
            CHECK_MESSAGE(gradients.telling(), gradients);
            CHECK_MESSAGE(updates.within(), updates);
            // Rounding to bf16 changes the sign of the smallest gradients, where AdamW's update jumps.
            if (std::is_same_v<T, float>) CHECK_MESSAGE(updates.telling(), updates);
        }
    }
}

TEST_CASE("micro-batches: gradients and update of one large batch, within rounding") {
    const batch whole = batch::random(4, 6, 11, 4);
    SUBCASE("full_fp32") { the_same_update<ht::full_fp32, float>(whole, weighing::alike); }
    SUBCASE("amp_bf16") { the_same_update<ht::amp_bf16, ht::bfloat16>(whole, weighing::alike); }
}

TEST_CASE("micro-batches with unequal numbers of targets, each weighted by its share: one large batch's update") {
    SUBCASE("6, 1, 1, 1 targets") {
        the_same_update<ht::full_fp32, float>(with_targets({6, 1, 1, 1}), weighing::by_share);
    }
    SUBCASE("6, 3, 4, 2 targets") {
        the_same_update<ht::amp_bf16, ht::bfloat16>(with_targets({6, 3, 4, 2}), weighing::by_share);
    }
    SUBCASE("2, 0, 5, 0 targets") {
        the_same_update<ht::full_fp32, float>(with_targets({2, 0, 5, 0}), weighing::by_share);
    }
}

TEST_CASE("micro-batches with equal shares: a share has the bits of a division") {
    for (const int parts : {1, 2, 3, 4, 5, 6, 7, 11}) {
        CAPTURE(parts);
        const batch whole = batch::random(2 * parts, 5, 11, 4);
        const outcome divided = step<ht::amp_bf16>(whole, parts, weighing::alike),
                      shared = step<ht::amp_bf16>(whole, parts, weighing::by_share);
        CHECK(divided.gradients == shared.gradients);
        CHECK(divided.masters == shared.masters);
    }
}

}  // namespace train_micro_batches_tests
