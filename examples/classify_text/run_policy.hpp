// SPDX-License-Identifier: MIT
/// \file
/// The definition of run(), which each policy's file includes to instantiate it.
#pragma once

#include <halftone/nn/classifier.hpp>

#include "../classify/train.hpp"
#include "model.hpp"

template <class P, memory_use Use, class Device>
classifier_result run(Device& device, const std::string& name, const text_data& data, const text_options& o) {
    o.seen->view.watch(device.memory());
    ht::nn::classifier<P> model{device,
                                {.encoder = {.vocab_size = data.vocabulary,
                                             .hidden_size = o.width,
                                             .num_hidden_layers = static_cast<int>(o.layers),
                                             .num_attention_heads = o.heads,
                                             .intermediate_size = 4 * o.width,
                                             .max_position_embeddings = o.length,
                                             .pad_token_id = data.padding},
                                 .num_labels = data.classes},
                                o.seed};
    const ht::subset trained{data.texts, data.parts.training}, held_out{data.texts, data.parts.held_out};
    const ht::collate_padded collate{data.padding};
    // Batches of texts of similar length, so that little is padding.
    ht::data_loader training{
        device, trained, {.batch_size = o.batch, .num_workers = o.workers, .bucket_batches = 16, .seed = o.seed}, collate};
    const auto logits = [&model](auto& eval, const ht::labelled_batch& batch) {
        return model.logits(eval, batch.tokens, {}, ht::key_lengths(batch.lengths));
    };
    const auto train_with = [&](auto& optimizer) {
        const ht::loader_options in_order{
            .batch_size = o.batch, .order = ht::row_order::in_order, .num_workers = o.workers};
        if (data.test != nullptr) {
            ht::data_loader test{device, *data.test, in_order, collate};
            return train(name, device, model, optimizer, training, test, logits, o);
        }
        ht::data_loader test{device, held_out, in_order, collate};
        return train(name, device, model, optimizer, training, test, logits, o);
    };
    if constexpr (Use == memory_use::small) {
        model.checkpoint_every(1);
        ht::adamw_8bit optimizer{device, model, {.lr = o.learning_rate, .weight_decay = 0.01}};
        return train_with(optimizer);
    } else {
        ht::adamw optimizer{device, model, {.lr = o.learning_rate, .weight_decay = 0.01}};
        return train_with(optimizer);
    }
}
