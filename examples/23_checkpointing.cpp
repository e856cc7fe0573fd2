// SPDX-License-Identifier: MIT
/// \file
/// Lesson 23: gradient checkpointing by hand, and what it costs.
///
/// A backward pass needs what the forward pass computed. A program can keep the input of each block instead, and compute the
/// block again when its gradient is due. Here that is written out, then left to ht::checkpoint, then nested.
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>

#include "with_device.hpp"

namespace ht = halftone;
using P = ht::full_fp32;
using variable = ht::variable<float, 2>;

constexpr ht::extent rows = 256, width = 32;
constexpr int depth = 16;

int calls = 0;  // of blocks: the forward passes that a step takes

/// x + down(gelu(up(x))): keeps 32 + 4 x 32 + 4 x 32 elements a row for the backward pass, its input has 32.
template <class Policy>
struct block {
    ht::nn::linear<ht::at<Policy, "up">> up;
    ht::nn::linear<ht::at<Policy, "down">> down;

    explicit block(ht::store& s) : up{s, width, 4 * width}, down{s, 4 * width, width} {}
    template <class Context, class X>
    X operator()(Context&& ctx, const X& x) const {
        ++calls;
        return ht::add(ctx, x, down(ctx, ht::gelu(ctx, up(ctx, x))));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

struct network : ht::nn::model {
    using policy = P;
    ht::nn::stack<block, P, "h"> h;

    explicit network(auto& device) : model{device}, h{parameters(), depth} { commit(*this, 7); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.h); }
};

auto loss_of(auto& ctx, const variable& y) { return ht::mean(ctx, ht::mul(ctx, y, y)); }

/// Checkpointing by hand. The forward pass, in a context that records nothing, keeps the input of each block.
void by_hand(auto& device, const network& model, auto& tape, auto& acc, const variable& x) {
    ht::inference forward{device};
    std::vector<variable> inputs{forward.constant(x.view())};
    for (int i = 0; i < depth; ++i) inputs.push_back(model.h[i](forward, inputs.back()));

    // Leaves take gradients. That of the last result is where the backward pass begins.
    const auto gradient_of = [&](const variable& leaf) { return ht::to_host(device, tape.gradient(leaf)); };
    auto dy = [&] {
        const variable y = tape.leaf(inputs.back().view());
        tape.backward(loss_of(tape, y));
        return gradient_of(y);
    }();
    for (int i = depth - 1; i >= 0; --i) {
        inputs.pop_back();
        const variable in = tape.leaf(inputs.back().view());
        const variable y = model.h[i](tape, in);  // once more, and now recorded
        // The gradient of sum(y * dy) by y is dy, so that it goes through the block as the chain rule wants it.
        tape.backward(ht::sum(tape, ht::mul(tape, y, tape.to_device(dy.view()))), acc);
        dy = gradient_of(in);
    }
}

/// The blocks from `first` on in two halves, each a checkpoint, whose own halves are checkpoints, and so on.
template <class Context>
variable halves(Context& ctx, const network& model, const variable& x, int first, int count) {
    if (count == 1) return model.h[first](ctx, x);
    const auto half = [&](int from, const variable& in) {
        return ht::checkpoint(
            ctx, [&model, from, count](auto& c, const variable& v) { return halves(c, model, v, from, count / 2); }, in);
    };
    return half(first + count / 2, half(first, x));
}

struct result {
    std::size_t bytes = 0;  ///< of activations, at the peak
    int calls = 0;
    float after = 0;        ///< the loss behind an update by the gradients
};

/// One step by `pass(model, tape, acc, x)`, which adds the gradients to acc.
result step(auto& device, const auto& pass) {
    std::vector<float> data(static_cast<std::size_t>(rows * width));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = 2 * ht::uniform(ht::random_bits(1, 0, 0, i)) - 1;
    network model{device};
    ht::sgd optimizer{device, model, {.lr = 1e-3}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const variable x = tape.to_device(ht::const_view<float, 2>(data.data(), {rows, width}));
    result r;
    device.memory().usage().reset_peaks();
    calls = 0;
    pass(model, tape, acc, x);
    r.calls = calls;
    r.bytes = device.memory().usage().peak(ht::memory_kind::activation);
    auto grads = acc.take();
    optimizer.step(grads);
    r.after = loss_of(tape, model.h(tape, x)).item();
    return r;
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    const auto with_stack = [&](int checkpoint_every) {
        return step(device, [checkpoint_every](auto& model, auto& tape, auto& acc, const variable& x) {
            model.h.checkpoint_every(checkpoint_every);
            tape.backward(loss_of(tape, model.h(tape, x)), acc);
        });
    };
    const result plain = with_stack(0);
    const auto tell = [&](const char* name, const result& r) {
        std::printf("%s: %d forward passes of a block, %.0f%% of the activations, %s\n", name, r.calls,
                    100.0 * static_cast<double>(r.bytes) / static_cast<double>(plain.bytes),
                    r.after == plain.after ? "the same bits" : "other bits");
    };
    tell("nothing computed again", plain);
    // Prints: nothing computed again: 16 forward passes of a block, 100% of the activations, the same bits

    tell("by hand", step(device, [&](auto& model, auto& tape, auto& acc, const variable& x) {
             by_hand(device, model, tape, acc, x);
         }));
    // Prints: by hand: 32 forward passes of a block

    // The same with ht::checkpoint. It can do more: random draws are repeated, too, and any part of a model will do.
    tell("each block", with_stack(1));
    // Prints: each block: 32 forward passes of a block

    // Blocks that are not computed again keep all: half of the second forward passes buy less than half of the memory.
    tell("every other block", with_stack(2));
    // Prints: every other block: 24 forward passes of a block

    // Of 16 inputs only those on the way from the whole to one block are there at a time: 4 of 16, not all.
    tell("halves of halves", step(device, [](auto& model, auto& tape, auto& acc, const variable& x) {
             tape.backward(loss_of(tape, halves(tape, model, x, 0, depth)), acc);
         }));
    // Prints: halves of halves: 80 forward passes of a block
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
