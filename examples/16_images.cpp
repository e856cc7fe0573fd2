// SPDX-License-Identifier: MIT
/// \file
/// Lesson 16: images, by a ResNet and a vision transformer.
///
/// Both learn which of four shapes is in an image of 16 x 16. A ResNet slides small windows over the image, so that what it
/// learns at one position it knows at all of them. Its batch norms normalise each channel by the batch's statistics on a tape,
/// and by running statistics in an inference context, so that the logits of an image there do not depend on the other images of
/// its batch. A vision transformer cuts the image into patches of 4 x 4 and treats them as a text of 16 tokens: it has to learn
/// where these are in the image, which takes more steps. The images are drawn by formula; accuracy is measured on new ones.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/nn/resnet.hpp>
#include <halftone/nn/vit.hpp>

#include "with_device.hpp"

namespace ht = halftone;

constexpr int count = 32, side = 16, kinds = 4;

/// A batch of discs, squares, crosses and rings of random position, size and colour, on noise. It depends on its number alone.
struct batch_of_images {
    std::vector<float> pixels = std::vector<float>(count * 3 * side * side);
    std::vector<std::int32_t> kind = std::vector<std::int32_t>(count);
    ht::const_view<float, 4> images{pixels.data(), {count, 3, side, side}};
    ht::const_view<std::int32_t, 1> labels{kind.data(), {count}};

    explicit batch_of_images(int number) : number_(static_cast<std::uint32_t>(number)) {
        for (float& pixel : pixels) pixel = between(-0.2f, 0.2f);
        for (int i = 0; i < count; ++i) draw(i);
    }
    batch_of_images(const batch_of_images&) = delete;

  private:
    float& at(int i, int channel, int row, int column) {
        return pixels[static_cast<std::size_t>(((i * 3 + channel) * side + row) * side + column)];
    }
    float between(float low, float high) {
        return low + (high - low) * ht::uniform(ht::random_bits(1, number_, 0, index_++));
    }
    static bool inside(int kind, float x, float y, float radius) {
        const float wide = std::max(std::fabs(x), std::fabs(y)), narrow = std::min(std::fabs(x), std::fabs(y));
        const float distance = std::sqrt(x * x + y * y);
        if (kind == 0) return distance <= radius;
        if (kind == 1) return wide <= 0.85f * radius;
        if (kind == 2) return wide <= radius && narrow <= 0.3f * radius;
        return distance <= radius && distance >= 0.6f * radius;
    }
    void draw(int i) {
        const int k = kind[static_cast<std::size_t>(i)] = std::min(kinds - 1, static_cast<int>(between(0, kinds)));
        const float radius = between(4, 6), x = between(radius, side - radius), y = between(radius, side - radius);
        for (int channel = 0; channel < 3; ++channel) {
            const float colour = between(0.5f, 2);
            for (int row = 0; row < side; ++row) {
                for (int column = 0; column < side; ++column) {
                    const float right = static_cast<float>(column) + 0.5f - x, down = static_cast<float>(row) + 0.5f - y;
                    if (inside(k, right, down, radius)) at(i, channel, row, column) += colour;
                }
            }
        }
    }
    std::uint32_t number_, index_ = 0;
};

/// The batches for training, which are repeated, and those for the accuracy.
struct data {
    std::deque<batch_of_images> seen, unseen;
    data() {
        for (int i = 0; i < 32; ++i) seen.emplace_back(i);
        for (int i = 32; i < 40; ++i) unseen.emplace_back(i);
    }
};

/// The fraction of new images whose largest logit is that of the label.
template <class Model>
double accuracy(auto& device, const data& batches, const Model& model) {
    ht::inference eval{device};
    double right = 0, all = 0;
    for (const batch_of_images& batch : batches.unseen) {
        const auto best = ht::to_host(device, ht::argmax(eval, model.logits(eval, batch.images), ht::axes<1>));
        for (int i = 0; i < count; ++i) right += best(i) == batch.labels(i) ? 1 : 0, all += 1;
    }
    return right / all;
}

template <class Model>
void train(auto& device, const data& batches, const char* name, const char* precision, Model& model, int steps) {
    ht::adamw optimizer{device, model, {.lr = 3e-3}};
    ht::grad_scaler scaler{device, {.enabled = ht::model_needs_scaling<Model>}};
    ht::accumulator acc{model};
    ht::tape tape{device};
    double first = 0, last = 0;
    for (int step = 0; step < steps; ++step) {
        const auto loss = model.loss(tape, batches.seen[static_cast<std::size_t>(step) % batches.seen.size()]);
        if (step < 5) first += static_cast<double>(loss.item()) / 5;
        if (step >= steps - 5) last += static_cast<double>(loss.item()) / 5;
        tape.backward(scaler.scale(loss), acc);
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
    }
    const double share = accuracy(device, batches, model);
    std::printf("%s, %s: %s the loss, %s 70 in 100 new images recognised (%.2f to %.2f, %.1f)\n", name, precision,
                last < first / 2 ? "less than half" : "[more than half]", share > 0.7 ? "more than" : "[less than]", first,
                last, 100 * share);
}

template <class P>
void learn(auto& device, const data& batches, const char* precision) {
    ht::nn::resnet<P> resnet{device, {.layers = {1, 1, 1, 1}, .num_classes = kinds, .width = 8}};
    train(device, batches, "ResNet", precision, resnet, 60);
    ht::nn::vit<P> vit{device, {.image_size = side, .patch_size = 4, .num_layers = 2, .num_heads = 4, .hidden_dim = 32,
                                .mlp_dim = 96, .num_classes = kinds}};
    train(device, batches, "ViT", precision, vit, 240);
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    const data batches;
    learn<ht::full_fp32>(device, batches, "fp32");
    // Prints: ResNet, fp32: less than half the loss, more than 70 in 100 new images recognised
    // Prints: ViT, fp32: less than half the loss, more than 70 in 100 new images recognised
    learn<ht::amp_bf16>(device, batches, "bf16");
    // Prints: ResNet, bf16: less than half the loss, more than 70 in 100 new images recognised
    // Prints: ViT, bf16: less than half the loss, more than 70 in 100 new images recognised
    learn<ht::amp_fp16>(device, batches, "fp16");
    // Prints: ResNet, fp16: less than half the loss, more than 70 in 100 new images recognised
    // Prints: ViT, fp16: less than half the loss, more than 70 in 100 new images recognised
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
