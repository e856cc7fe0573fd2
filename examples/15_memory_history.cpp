// SPDX-License-Identifier: MIT
/// \file
/// Lesson 15: where the memory of a run goes, and a leak.
///
/// A plan tells how much a run needs; a history tells what each byte was for: which operation of which layer, in which pass
/// and step, and how long it was in use. Here a training loop keeps a tensor of each step, as a program does that collects
/// results to plot them. The history finds it.
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/observe/memory/history.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

#include "with_device.hpp"

namespace ht = halftone;
using P = ht::amp_bf16;

constexpr ht::extent rows = 256, width = 32;

struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    explicit network(auto& device)
        : model{device}, up{parameters(), width, 4 * width}, down{parameters(), 4 * width, width} {
        commit(*this, 7);
    }
    template <class Context, class X>
    auto operator()(Context&& ctx, const X& x) const {
        return down(ctx, ht::gelu(ctx, up(ctx, x)));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

/// Six training steps on a tape; `keep` is given what the model made of each batch.
template <class Tape, class Keep>
void train(auto& device, network& model, Tape& tape, ht::memory_history& history, const Keep& keep) {
    std::vector<ht::bfloat16> data(static_cast<std::size_t>(rows * width));
    for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = ht::bfloat16(2 * ht::uniform(ht::random_bits(1, 0, 0, i)) - 1);
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::accumulator acc{model, ht::unscaled};
    for (int step = 1; step <= 6; ++step) {
        history.begin_step(step);  // a trainer says this by itself
        const auto x = tape.to_device(ht::const_view<ht::bfloat16, 2>(data.data(), {rows, width}));
        const auto y = model(tape, x);
        keep(y);
        tape.backward(ht::mean(tape, ht::mul(tape, y, y)), acc);
        auto grads = acc.take();
        optimizer.step(grads);
    }
    history.end_step();
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    ht::memory_history history{device};  // records from here on
    network model{device};
    {
        // A watched tape knows in which layer it is; any other tape tells operations and passes alone.
        ht::tape tape{device, ht::watched};
        tape.listen(&history);

        train(device, model, tape, history, [](const auto&) {});
        const ht::memory_snapshot all = history.snapshot();
        std::printf("the counters have the same peak: %s\n",
                    all.peak_bytes == device.memory().usage().peak() ? "yes" : "no");
        // Prints: the counters have the same peak: yes
        std::printf("outliving their step: %d\n", static_cast<int>(all.outliving().size()));
        // Prints: outliving their step: 0
        for (const ht::memory_allocation& a : all.allocations_at(all.peak_event)) {  // the largest first
            if (a.kind != ht::memory_kind::activation) continue;
            std::printf("at the peak: %s\n", a.text().c_str());
            break;
        }
        // Prints: at the peak: 65536 bytes, activation, linear (forward) of up in step
    }

    // Now with the leak: what a step made is kept by a variable, and a variable keeps its memory.
    ht::tape tape{device, ht::watched};
    tape.listen(&history);
    history.start();  // forgets what was recorded
    using result = ht::variable<ht::bfloat16, 2>;
    std::vector<result> kept;
    train(device, model, tape, history, [&](const result& y) { kept.push_back(y); });
    const ht::memory_snapshot leaking = history.snapshot();
    const auto leaks = leaking.outliving();  // of the steps after the first one
    std::printf("outliving their step: %d, of %d bytes each\n", static_cast<int>(leaks.size()),
                static_cast<int>(leaks[0].bytes));
    // Prints: outliving their step: 5, of 16384 bytes each
    std::printf("the first of them: %s\n", leaks[0].text().c_str());
    // Prints: linear (forward) of down in step 2
    kept.clear();

    // The page shows the same at a glance: a red wedge. history.dump("memory.html"); memory_pickle.py makes of it a file for memory_viz.
    const std::string page = ht::memory_snapshot_html(leaking, "a leak");
    std::printf("the page says so: %s\n", page.find("5 blocks outlive their step") != std::string::npos ? "yes" : "no");
    // Prints: the page says so: yes
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
