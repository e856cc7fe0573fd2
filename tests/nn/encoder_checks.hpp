// SPDX-License-Identifier: MIT
/// \file
/// A classifier over an encoder against transformers' BertForSequenceClassification (golden/bert.py) on any device: hidden
/// states, logits, loss and every gradient of small random models.
///
///     is_as_bert<ht::full_fp32>(device);
#pragma once

#include <halftone/nn/classifier.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "nn/golden_model.hpp"

namespace encoder_test {

using namespace golden_model;

constexpr int rows = 4, steps = 9;

inline ht::nn::classifier_config config_of(const std::string& name) {
    ht::nn::classifier_config c{.encoder = {.vocab_size = 32,
                                            .hidden_size = 16,
                                            .num_hidden_layers = 2,
                                            .num_attention_heads = 4,
                                            .intermediate_size = 24,
                                            .max_position_embeddings = 12},
                                .num_labels = 5};
    if (name == "padded") c.encoder.pad_token_id = 0;
    return c;
}

/// Inputs from the generator, after the model's masters.
struct inputs {
    std::vector<std::int32_t> token_ids, type_ids, label_ids, length_list{9, 1, 6, 4};
    ht::const_view<std::int32_t, 2> tokens, token_types;
    ht::const_view<std::int32_t, 1> labels, lengths;

    template <class Model>
    explicit inputs(Model& model) : inputs(model.config(), after_masters_of(model)) {}
    /// Without a model's masters before them.
    explicit inputs(const ht::nn::classifier_config& c, generator values = {}) {
        token_ids = values.ids(rows * steps, c.encoder.vocab_size);
        type_ids = values.ids(rows * steps, c.encoder.type_vocab_size);
        label_ids = values.ids(rows, c.num_labels);
        tokens = {token_ids.data(), {rows, steps}};
        token_types = {type_ids.data(), {rows, steps}};
        labels = {label_ids.data(), {rows}};
        lengths = {length_list.data(), {rows}};
    }
    inputs(const inputs&) = delete;

    template <class Model>
    static generator after_masters_of(Model& model) {
        generator values;
        values.fill(model.parameters());
        return values;
    }
    void pad() {
        for (std::size_t b = 0; b < rows; ++b) {
            for (std::size_t t = static_cast<std::size_t>(length_list[b]); t < steps; ++t) token_ids[b * steps + t] = 0;
        }
    }
};

/// A batch without padding and types, and one with padded rows.
struct plain_batch {
    ht::const_view<std::int32_t, 2> tokens;
    ht::const_view<std::int32_t, 1> labels;
};
struct padded_batch {
    ht::const_view<std::int32_t, 2> tokens, token_types;
    ht::const_view<std::int32_t, 1> labels, lengths;
};

template <class P, class Device, class Batch, class... F>
void compare(Device& device, ht::nn::classifier<P>& model, const golden_case& golden, const Batch& batch,
             const ht::const_view<std::int32_t, 2>& types, const F&... functions) {
    ht::inference eval{device};
    const auto hidden = model.encode()(eval, batch.tokens, types, functions...);
    CHECK(hidden.shape() == ht::shape<3>{rows, steps, 16});
    CHECK(off(support::doubles(ht::to_host(device, hidden).view()), golden.hidden) <= allowed<P>(golden.hidden_off));
    const auto logits = model.logits(eval, batch.tokens, types, functions...);
    CHECK(logits.shape() == ht::shape<2>{rows, 5});
    CHECK(off(support::doubles(ht::to_host(device, logits).view()), golden.logits) <= allowed<P>(golden.logits_off));
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, batch);
    check_loss<P>(static_cast<double>(loss.item()), golden);
    tape.backward(loss, sink);
    check_gradients<P>(model.parameters(), sink, golden);
}

template <class P, class Device>
void is_as_bert(Device& device) {
    const std::vector<golden_case> cases = read_cases("bert.txt");
    REQUIRE(cases.size() == 2);
    for (const golden_case& golden : cases) {
        CAPTURE(golden.name);
        ht::nn::classifier<P> model{device, config_of(golden.name)};
        inputs in(model);
        if (golden.name == "padded") {
            in.pad();
            const auto lengths = ht::to_device(device, in.lengths);
            compare<P>(device, model, golden, padded_batch{in.tokens, in.token_types, in.labels, lengths.const_view()},
                       in.token_types, ht::key_lengths(lengths.const_view()));
        } else {
            compare<P>(device, model, golden, plain_batch{in.tokens, in.labels}, {});
        }
    }
}

}  // namespace encoder_test
