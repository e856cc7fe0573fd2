// SPDX-License-Identifier: MIT
/// \file
/// The definition of run(), which each policy's file includes to instantiate it.
#pragma once

#include <span>

#include "../classify/train.hpp"
#include "data.hpp"
#include "model.hpp"

namespace {

struct image_batch {
    ht::const_view<float, 4> images;         // (batch, channels, height, width)
    ht::const_view<std::int32_t, 1> labels;  // (batch)

    template <class Function>
    image_batch with_views(const Function& f) const {
        return {f(images), f(labels)};
    }
};

/// Bytes as numbers with a mean near 0 and a deviation near 1, as Fashion-MNIST's pixels have them.
struct collate_images {
    ht::extent channels, height, width;

    image_batch operator()(std::span<const ht::labelled_image> rows, ht::batch_memory& memory) const {
        const auto count = static_cast<ht::extent>(rows.size());
        const auto images = memory.make<float>(ht::shape<4>{count, channels, height, width});
        const auto labels = memory.make<std::int32_t>(ht::shape<1>{count});
        float* to = images.data();
        for (std::size_t i = 0; i < rows.size(); ++i) {
            for (ht::extent channel = 0; channel < channels; ++channel) {
                for (ht::extent pixel = 0; pixel < height * width; ++pixel) {
                    const auto byte = rows[i].pixels[static_cast<std::size_t>(pixel * channels + channel)];
                    *to++ = (static_cast<float>(byte) - 73.0f) / 90.0f;
                }
            }
            labels.data()[i] = rows[i].label;
        }
        return {images, labels};
    }
};

}  // namespace

template <class P, memory_use Use, class Device>
classifier_result run(Device& device, const std::string& name, const image_data& data, const run_options& o) {
    o.seen->view.watch(device.memory());
    const ht::labelled_images& images = data.training;
    small_conv_net<P> model{device, images.channels(), images.height(), images.width(), data.classes, o.seed};
    const collate_images collate{images.channels(), images.height(), images.width()};
    ht::data_loader training{device, images, {.batch_size = o.batch, .num_workers = o.workers, .seed = o.seed}, collate};
    ht::data_loader test{
        device, data.test, {.batch_size = 256, .order = ht::row_order::in_order, .num_workers = o.workers}, collate};
    const auto logits = [&model](auto& eval, const image_batch& batch) { return model.logits(eval, batch.images); };
    if constexpr (Use == memory_use::small) {
        model.checkpoint_every(1);
        ht::adamw_8bit optimizer{device, model, {.lr = o.learning_rate, .weight_decay = 0.01}};
        return train(name, device, model, optimizer, training, test, logits, o);
    } else {
        ht::adamw optimizer{device, model, {.lr = o.learning_rate, .weight_decay = 0.01}};
        return train(name, device, model, optimizer, training, test, logits, o);
    }
}
