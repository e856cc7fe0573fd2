// SPDX-License-Identifier: MIT
/// \file
/// The norm of gradients whose squares the backward pass summed while it wrote them: it equals the norm of the gradients in
/// memory, found without reading most of them.
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "nn/gpt_gradients.hpp"
#include "support/bounds.hpp"

namespace train_known_norm_tests {

namespace ht = halftone;
using nn_test::batch;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr ht::nn::gpt_config shape{.vocabulary = 67, .context = 12, .layers = 2, .heads = 2, .width = 40};

struct in_float {
    using accumulate = float;
};

/// A model after a window of two micro-batches.
template <class P>
struct trained {
    ht::cpu device;
    ht::nn::gpt<P> model{device, shape};
    ht::accumulator<ht::unscaled_t, ht::types<ht::nn::gpt<P>>> acc{model, ht::unscaled};
    ht::tape<ht::cpu> tape{device};

    explicit trained(int threads = 2) : device{{.threads = threads}} { nn_test::randomize(model, 3); }

    auto gradients() {
        const batch whole = batch::random(4, 11, 67, 4);
        for (int i = 0; i < 2; ++i) tape.backward(model.loss(tape, whole.part(2 * i, 2)) / 2.0f, acc);
        return acc.take();
    }
    template <class Gradients>
    float* of(const Gradients& g, std::size_t entry) {
        const ht::store::entry& e = model.parameters().entries()[entry];
        return g.slabs(model.parameters()).template group<in_float>(e.group).data() + e.gradient;
    }
    template <class Gradients>
    double in_double(const Gradients& g) {
        double squares = 0;
        for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
            for (std::size_t j = 0; j < model.parameters().entries()[i].count; ++j)
                squares += std::pow(static_cast<double>(of(g, i)[j]), 2);
        }
        return std::sqrt(squares);
    }
    /// Entries whose squares are known.
    template <class Gradients>
    std::vector<std::string> known(const Gradients& g) {
        std::vector<std::string> paths;
        const auto& entries = model.parameters().entries();
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (g.slabs(model.parameters()).squares(i) != nullptr) paths.push_back(entries[i].path);
        }
        return paths;
    }
    template <class Gradients>
    double measured(Gradients& g) {
        return static_cast<double>(ht::clip_grad_norm(device, g, infinity).value());
    }
};

/// Squares are summed in float within a tile or a chunk, and these sums in double; the root halves the error, and is rounded.
double bound(double norm) {
    const auto depth = std::max<double>(ht::kernel::written_squares::depth, ht::kernel::gradient_norm<ht::cpu>::depth);
    return (support::gamma(depth + 5) / 2 + 2 * support::u) * norm;
}

TEST_CASE_TEMPLATE("known norm: equals that of the gradients in memory, with any number of threads", P, ht::full_fp32,
                   ht::amp_bf16) {
    float of_one_thread = 0;
    for (const int threads : {1, 2, 3}) {
        trained<P> t(threads);
        auto grads = t.gradients();
        // Among them the tied table, to which the head writes and the embedding adds.
        const std::vector<std::string> want{"embed.tokens",         "h.0.attn.qkv.weight", "h.0.attn.proj.weight",
                                            "h.0.mlp.up.weight",    "h.0.mlp.down.weight", "h.1.attn.qkv.weight",
                                            "h.1.attn.proj.weight", "h.1.mlp.up.weight",   "h.1.mlp.down.weight"};
        CHECK(t.known(grads) == want);
        const double norm = t.measured(grads), exact = t.in_double(grads);
        CHECK(std::fabs(norm - exact) <= bound(exact));
        if (threads == 1) of_one_thread = static_cast<float>(norm);
        CHECK(static_cast<float>(norm) == of_one_thread);
    }
}

TEST_CASE("known norm: gradients changed by hand are read again") {
    trained<ht::amp_bf16> t;
    auto grads = t.gradients();
    const double before = t.measured(grads);
    t.of(grads, 1)[3] += 100;
    grads.changed();
    CHECK(t.known(grads).empty());
    const double after = t.measured(grads), exact = t.in_double(grads);
    CHECK(after > before + 50);
    CHECK(std::fabs(after - exact) <= bound(exact));
}

TEST_CASE("known norm: after clipping by value the norm takes a pass over the gradients") {
    trained<ht::amp_bf16> t;
    auto grads = t.gradients();
    ht::clip_grad_value(t.device, grads, 1e-3f);
    double squares = 0;
    for (std::size_t i = 0; i < t.model.parameters().entries().size(); ++i) {
        for (std::size_t j = 0; j < t.model.parameters().entries()[i].count; ++j)
            squares += std::pow(std::clamp(static_cast<double>(t.of(grads, i)[j]), -1e-3, 1e-3), 2);
    }
    const double exact = std::sqrt(squares);
    CHECK(std::fabs(t.measured(grads) - exact) <= bound(exact));
}

TEST_CASE("known norm: times the inverse of the loss scale") {
    ht::cpu device{{.threads = 2}};
    ht::nn::gpt<ht::amp_fp16> model{device, shape};
    nn_test::randomize(model, 3);
    const batch b = batch::random(2, 11, 67, 4);
    ht::tape tape{device};
    double norm[2]{};
    for (const int power : {0, 12}) {
        ht::static_scaler scaler{device, {.scale = std::ldexp(1.0f, power)}};
        ht::accumulator acc{model};
        tape.backward(scaler.scale(model.loss(tape, b)), acc);
        auto grads = scaler.unscale(acc.take());
        norm[power != 0] = static_cast<double>(ht::clip_grad_norm(grads, infinity).value());
        double squares = 0;
        for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
            const ht::store::entry& e = model.parameters().entries()[i];
            const float* g = grads.slabs(model.parameters()).template group<in_float>(e.group).data() + e.gradient;
            for (std::size_t j = 0; j < e.count; ++j)
                squares += std::pow(std::ldexp(static_cast<double>(g[j]), -power), 2);
        }
        CHECK(std::fabs(norm[power != 0] - std::sqrt(squares)) <= bound(std::sqrt(squares)));
    }
    CHECK(std::fabs(norm[0] - norm[1]) < 0.01 * norm[1]);
}

TEST_CASE("known norm: the step is skipped if a gradient is not finite, whichever kernel wrote it") {
    for (const float odd : {infinity, std::numeric_limits<float>::quiet_NaN()}) {
        trained<ht::full_fp32> t;
        ht::adamw optimizer{t.device, t.model, {.lr = 1e-3}};
        const batch b = batch::random(2, 11, 67, 4);
        t.tape.backward(t.model.loss(t.tape, b) * static_cast<double>(odd), t.acc);
        auto grads = t.acc.take();
        CHECK(t.known(grads).empty());
        // Infinite gradients meet zeros on their way back, so that some are NaN in both runs: a sum of their squares is.
        CHECK(std::isnan(t.in_double(grads)));
        CHECK(std::isnan(t.measured(grads)));
        CHECK(optimizer.step(grads).skipped());
    }
}

}  // namespace train_known_norm_tests
