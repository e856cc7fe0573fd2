// SPDX-License-Identifier: MIT
/// \file
/// Lesson 19: a data set of your own.
///
/// A data set is any type with size() and [index]. The loader calls [index] on threads of its own while the model trains,
/// then your transform, then your collate function, which makes a batch of some samples. Nothing of this may depend on
/// which thread is faster: the order is a function of seed and epoch, and random numbers of a transform are a function of
/// the sample's place. So a run can be stopped anywhere, and go on with another number of threads or processes, with the
/// same samples. The data here are three spirals that wind around each other.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/data_loader.hpp>

#include "with_device.hpp"

namespace ht = halftone;

struct point {
    float x, y;
    std::int32_t spiral;
};

/// The data set: sample i is computed when it is asked for, as another one is read from a file.
struct spirals {
    ht::extent size() const { return 600; }
    point operator[](ht::extent i) const {
        const float along = static_cast<float>(i / 3) / 200, angle = 4 * along + 2.0944f * static_cast<float>(i % 3);
        return {along * std::cos(angle), along * std::sin(angle), static_cast<std::int32_t>(i % 3)};
    }
};

/// The transform: moves a point a little, in each epoch elsewhere. Random numbers are a function of the place.
point shaken(point p, const ht::sample_place& place) {
    const auto draw = [&](std::uint32_t axis) {
        return ht::uniform(ht::random_bits(place.seed, place.epoch, axis, static_cast<std::uint64_t>(place.index))) - 0.5f;
    };
    return {p.x + 0.05f * draw(0), p.y + 0.05f * draw(1), p.spiral};
}

/// A batch: views, and with_views so that a loader can copy it to a GPU.
struct batch_of_points {
    ht::const_view<float, 2> points;         // (batch, 2)
    ht::const_view<std::int32_t, 1> labels;  // (batch)

    batch_of_points with_views(const auto& f) const { return {f(points), f(labels)}; }
};

/// The collate function: writes to memory of the loader, which is pinned for a GPU, and is used again.
batch_of_points collate(std::span<const point> samples, ht::batch_memory& memory) {
    const auto count = static_cast<ht::extent>(samples.size());
    const auto points = memory.make<float>(ht::shape<2>{count, 2});
    const auto labels = memory.make<std::int32_t>(ht::shape<1>{count});
    for (ht::extent i = 0; i < count; ++i) {
        const point& p = samples[static_cast<std::size_t>(i)];
        points(i, 0) = p.x, points(i, 1) = p.y, labels(i) = p.spiral;
    }
    return {points, labels};
}

/// Two layers.
template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    explicit network(auto& device) : model{device}, up{parameters(), 2, 64}, down{parameters(), 64, 3} { commit(*this, 1); }
    auto logits(auto&& ctx, const batch_of_points& b) const {
        return down(ctx, ht::tanh(ctx, up(ctx, ctx.root().to_device(b.points))));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

/// The x of all points that a loader still gives in this epoch.
std::vector<float> rest_of(auto& device, auto& loader) {
    std::vector<float> all;
    for (const batch_of_points& batch : loader) {
        const auto points = ht::to_host(device, batch.points);
        for (ht::extent i = 0; i < points.shape()[0]; ++i) all.push_back(points(i, 0));
    }
    return all;
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    const spirals data;
    const ht::loader_options alone{.batch_size = 50, .seed = 7}, with_help{.batch_size = 50, .num_workers = 3, .seed = 7};

    // The same order with any number of workers.
    ht::data_loader loader{device, data, with_help, shaken, collate}, other{device, data, alone, shaken, collate};
    const bool same = rest_of(device, loader) == rest_of(device, other);
    std::printf("an epoch: %lld batches, %s with 3 workers as with none\n", static_cast<long long>(loader.batches()),
                same ? "the same" : "[others]");
    // Prints: an epoch: 12 batches, the same with 3 workers as with none

    // Training: a loop over the loader is an epoch, the next loop the next one.
    network<ht::amp_bf16> model{device};
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    double right = 0;
    for (int epoch = 1; epoch <= 60; ++epoch) {
        right = 0;
        for (const batch_of_points& batch : loader) {
            const auto logits = model.logits(tape, batch);
            const auto best = ht::to_host(device, ht::argmax(tape, logits, ht::axes<1>));
            const auto labels = ht::to_host(device, batch.labels);
            for (ht::extent i = 0; i < best.size(); ++i) right += best(i) == labels(i) ? 1 : 0;
            tape.backward(ht::cross_entropy(tape, logits, batch.labels), acc);
            auto grads = acc.take();
            optimizer.step(grads);
        }
    }
    std::printf("after 60 epochs %s 9 in 10 points are on the right spiral (%.0f of 600)\n", right > 540 ? "more than" : "[less than]", right);
    // Prints: after 60 epochs more than 9 in 10 points are on the right spiral

    // Stopped in the middle of an epoch: the position is a few numbers. Another loader goes on from there.
    for (int i = 0; i < 5; ++i) loader.next();
    const ht::loader_position at = loader.position();
    const std::vector<float> rest = rest_of(device, loader);
    other.resume(at);
    std::printf("epoch %u after %lld samples: a loader without workers goes on with %s %zu samples\n", at.epoch,
                static_cast<long long>(at.rows), rest_of(device, other) == rest ? "the same" : "[other]", rest.size());
    // Prints: epoch 61 after 250 samples: a loader without workers goes on with the same 350 samples

    // What goes wrong in a worker is told in its place, with the sample's number.
    const auto strict = [](point p) {
        if (p.x == 0 && p.y == 0) throw std::runtime_error("the point is where all spirals begin");
        return p;
    };
    ht::data_loader checked{data, {.batch_size = 50, .order = ht::row_order::in_order, .num_workers = 2}, strict, collate};
    try {
        checked.next();
    } catch (const ht::sample_error& e) {
        std::printf("%s\n", e.what());
    }
    // Prints: data_loader: sample 0 of epoch 0: the point is where all spirals begin
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
