// SPDX-License-Identifier: MIT
/// \file
/// Lesson 14: planning memory to the byte before the run, and reducing it.
///
/// A training step stores parameters, gradients, moments, and activations: results of the forward pass that the
/// backward pass needs. Only activations grow with the batch. A plan computes the bytes of every kind before anything is
/// allocated. With checkpoints the backward pass computes the activations of each block again, instead of storing them.
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/observe/memory/plan.hpp>

#include "with_device.hpp"

namespace ht = halftone;
using P = ht::amp_bf16;

constexpr ht::extent width = 32;
constexpr int depth = 8;

/// x + down(gelu(up(x))): for each row it keeps the 4 x 32 results of `up` and of gelu; its result has 32 elements.
template <class Policy>
struct block {
    ht::nn::linear<ht::at<Policy, "up">> up;
    ht::nn::linear<ht::at<Policy, "down">> down;

    explicit block(ht::store& s) : up{s, width, 4 * width}, down{s, 4 * width, width} {}
    template <class Context, class X>
    X operator()(Context&& ctx, const X& x) const {
        return ht::add(ctx, x, down(ctx, ht::gelu(ctx, up(ctx, x))));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

struct network : ht::nn::model {
    using policy = P;
    ht::nn::stack<block, P, "h"> h;

    network(auto& device, int checkpoint_every) : model{device}, h{parameters(), depth} {
        h.checkpoint_every(checkpoint_every);  // 0: none
        commit(*this, 7);
    }
    template <class Context, class X>
    X operator()(Context&& ctx, const X& x) const {
        return h(ctx, x);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.h); }
};

/// Two training steps on any device; returns the loss of the second.
float train(auto& device, ht::extent rows, int checkpoint_every) {
    std::vector<ht::bfloat16> data(static_cast<std::size_t>(rows * width));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = ht::bfloat16(2 * ht::uniform(ht::random_bits(1, 0, 0, i)) - 1);
    network model{device, checkpoint_every};
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    float last = 0;
    for (int step = 0; step < 2; ++step) {
        const auto x = tape.to_device(ht::const_view<ht::bfloat16, 2>(data.data(), {rows, width}));
        const auto y = model(tape, x);
        const auto loss = ht::mean(tape, ht::mul(tape, y, y));
        last = loss.item();
        tape.backward(loss, acc);
        auto grads = acc.take();
        optimizer.step(grads);
    }
    return last;
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    // The plan runs the same code on a stand-in for the device that computes nothing and has no memory.
    const auto plan_of = [&](ht::extent rows, int checkpoint_every) {
        return ht::plan(device, [=](auto& twin) { train(twin, rows, checkpoint_every); });
    };
    const ht::memory_plan plan = plan_of(1024, 0);
    const auto kib = [](std::size_t bytes) { return static_cast<int>(bytes / 1024); };
    std::printf("planned: %d KiB of masters, %d of copies, %d of gradients, %d of moments\n",
                kib(plan.peak_of(ht::memory_kind::master)), kib(plan.peak_of(ht::memory_kind::copy)),
                kib(plan.peak_of(ht::memory_kind::gradient)), kib(plan.peak_of(ht::memory_kind::moment)));
    // A block has 2 x 32 x 128 weights and 160 biases, of 4 bytes as masters and gradients, 2 as copies, 8 as moments.
    // Prints: planned: 262 KiB of masters, 131 of copies, 262 of gradients, 524 of moments

    const float loss = train(device, 1024, 0);
    const ht::memory_usage& usage = device.memory().usage();
    std::printf("the run took what was planned: %s\n", usage.peak() == plan.peak_bytes ? "yes" : "no");
    // Prints: the run took what was planned: yes

    // Where memory use peaks, and by which kind: activations, all of which are stored when the backward pass begins.
    std::printf("at the peak: %s, %s; activations are %s of it\n", plan.operation.c_str(), name(plan.of_pass),
                2 * plan.at_peak(ht::memory_kind::activation) > plan.peak_bytes ? "more than half" : "less than half");
    // Prints: activations are more than half of it

    // With a checkpoint at each block, only the block's input is kept. The loss has the same bits.
    const ht::memory_plan less = plan_of(1024, 1);
    std::printf("with checkpoints less than a third of the activations: %s\n",
                3 * less.peak_of(ht::memory_kind::activation) < plan.peak_of(ht::memory_kind::activation) ? "yes" : "no");
    // Prints: with checkpoints less than a third of the activations: yes
    std::printf("the same loss: %s\n", train(device, 1024, 1) == loss ? "yes" : "no");
    // Prints: the same loss: yes

    // More rows fit into the same budget.
    const auto most_rows = [&](int checkpoint_every) {
        return ht::largest_within(plan.peak_bytes, 1 << 20, [&](ht::extent rows) { return plan_of(rows, checkpoint_every); });
    };
    std::printf("rows in the same memory: 1024 without checkpoints: %s, over 2000 with them: %s\n",
                most_rows(0) >= 1024 ? "yes" : "no", most_rows(1) > 2000 ? "yes" : "no");
    // Prints: rows in the same memory: 1024 without checkpoints: yes, over 2000 with them: yes
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
