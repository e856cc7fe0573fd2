// SPDX-License-Identifier: MIT
/// \file
/// A model computes for packed documents in one row what it computes for each document alone, on any device.
///
///     nn_test::check_packed_logits<ht::amp_bf16>(device);
#pragma once

#include <algorithm>
#include <vector>

#include "nn/gpt_gradients.hpp"
#include "nn/pack.hpp"

namespace nn_test {

/// The same as rows of a batch, filled up with tokens that do not count.
inline batch padded(const pack& docs, int time) {
    const auto rows = docs.lengths.size(), width = static_cast<std::size_t>(time);
    std::vector<std::int32_t> ids(rows * width, 1), next(rows * width, -100);
    for (std::size_t d = 0; d < rows; ++d) {
        std::copy_n(docs.token_ids.begin() + docs.offsets[d], docs.lengths[d],
                    ids.begin() + static_cast<int>(d) * time);
        std::copy_n(docs.target_ids.begin() + docs.offsets[d], docs.lengths[d],
                    next.begin() + static_cast<int>(d) * time);
    }
    return {static_cast<int>(rows), time, ids, next};
}

/// Heads of eight numbers, which matrix units take.
inline constexpr ht::nn::gpt_config packed_config{.vocabulary = 19, .context = 8, .layers = 2, .heads = 2, .width = 16};

template <class T, int Rank>
std::vector<T> values_of(const ht::store& s, const ht::view<T, Rank>& v) {
    std::vector<T> values(static_cast<std::size_t>(v.size()));
    s.memory().read(values.data(), v.data(), values.size() * sizeof(T));
    return values;
}

/// The logits of each document have the bits that they have alone, in a row longer than the context.
template <class P, class Device>
void check_packed_logits(Device& device) {
    const pack docs({5, 1, 0, 8, 3}, 19);
    ht::nn::gpt<P> model{device, packed_config, 3};
    ht::inference eval{device};
    const auto got = model.logits(eval, docs.tokens(), docs.documents());
    const auto values = values_of(model.parameters(), got.view());
    for (std::size_t d = 0; d < docs.lengths.size(); ++d) {
        if (docs.lengths[d] == 0) continue;
        CAPTURE(d);
        const auto alone = model.logits(eval, docs.tokens_of(d));
        const auto want = values_of(model.parameters(), alone.view());
        CHECK(std::equal(want.begin(), want.end(), values.begin() + docs.offsets[d] * 19,
                         [](auto a, auto b) { return a == b; }));
    }
}

/// Loss and all gradients of a batch.
template <class Device, class Model, class Batch>
std::vector<float> loss_and_gradients(Device& device, Model& model, const Batch& b) {
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, b);
    std::vector<float> all{loss.item()};
    tape.backward(loss, sink);
    for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
        const auto more = sink.entry(i);
        all.insert(all.end(), more.begin(), more.end());
    }
    return all;
}

/// Documents as long as each other: the bits that they have as a batch, whose sums have the same order.
template <class P, class Device>
void check_packed_as_batch(Device& device) {
    const pack docs({7, 7}, 19);
    ht::nn::gpt<P> model{device, packed_config, 3};
    const batch rows = padded(docs, 7);
    CHECK(loss_and_gradients(device, model, docs.in_a_row()) == loss_and_gradients(device, model, rows));
    // The boundaries matter: with the same tokens split as eight and six, the results differ.
    pack other({8, 6}, 19);
    other.token_ids = docs.token_ids, other.target_ids = docs.target_ids;
    CHECK(loss_and_gradients(device, model, other.in_a_row()) != loss_and_gradients(device, model, rows));
    CHECK_THROWS_AS(loss_and_gradients(device, model, batch(1, 14, docs.token_ids, docs.target_ids)), ht::shape_error);
}

/// Documents of various lengths, against the oracle of the padded batch.
template <class P, class T, class Device>
void check_packed_gradients(Device& device, float seed) {
    const pack docs({5, 1, 0, 6, 3}, 11);
    check_on<P>(device, expected_of<P, T>(padded(docs, 6), seed), docs.in_a_row(), seed);
}

/// What the host can see of offsets is refused.
template <class P, class Device>
void check_packed_refusals(Device& device) {
    const pack docs({5, 3}, 19);
    ht::nn::gpt<P> model{device, packed_config, 3};
    ht::inference eval{device};
    const auto refused = [&](const std::vector<std::int32_t>& offsets, const char* sentence) {
        CHECK_THROWS_WITH_AS(
            model.logits(eval, docs.tokens(), {{offsets.data(), {static_cast<ht::extent>(offsets.size())}}}), sentence,
            ht::shape_error);
    };
    refused({1, 8}, "packed: the offsets go from 1 to 8; expected 0 to 8, the tokens of the row");
    refused({0, 5, 7}, "packed: the offsets go from 0 to 7; expected 0 to 8, the tokens of the row");
    refused({0, 5, 4, 8}, "packed: document 1 has -1 tokens; offsets ascend");
    const std::vector<std::int32_t> none(1);
    CHECK_THROWS_WITH_AS(model.logits(eval, docs.tokens(), {{none.data(), {0}}}),
                         "packed: offsets is empty; expected documents + 1", ht::shape_error);
    CHECK_THROWS_WITH_AS(model.logits(eval, {docs.token_ids.data(), {2, 4}}, docs.documents()),
                         "packed: tokens are (2, 4); expected one row of documents", ht::shape_error);
    CHECK_THROWS_AS(model.logits(eval, docs.tokens(), {{docs.offsets.data(), {2}, {2}}}), ht::shape_error);
    const pack longer({9}, 19);
    CHECK_THROWS_WITH_AS(model.logits(eval, longer.tokens(), longer.documents()),
                         "packed: document 0 has 9 tokens; the context holds 8", ht::shape_error);
}

}  // namespace nn_test
