// SPDX-License-Identifier: MIT
/// \file
/// Lesson 10: find the overflow.
///
/// In float16 a step is skipped from time to time, and the loss scale is halved: that is normal. If every step is
/// skipped, the scale falls forever and the model does not learn; then the question is which operation causes it. A
/// watched tape finds out: it reports the first operation of a step that gave an infinity or a NaN, by the path of its
/// layer. Counts of the values in a step's tensors then tell which layer should have another type.
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>

#include "with_device.hpp"

namespace ht = halftone;

constexpr ht::extent samples = 64, features = 8, hidden = 32;

/// Its inputs are large, of the order of 1,000, like prices or pixels that were not normalised. The layer `square`
/// turns them into numbers of the order of 1,000,000; float16's largest number is 65,504.
template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "mix">> mix;
    ht::nn::linear<ht::at<P, "square">> square;
    ht::nn::linear<ht::at<P, "out">> out;

    explicit network(auto& device)
        : model{device},
          mix{parameters(), features, features},
          square{parameters(), features, hidden, {.deviation = 300.0f}},
          out{parameters(), hidden, 1, {.deviation = 1e-7f}} {
        commit(*this, 3);
    }
    auto operator()(auto& tape, const auto& x) const { return out(tape, square(tape, mix(tape, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.mix, self.square, self.out); }
};

struct data_set {
    std::vector<float> inputs, targets;
    data_set() : inputs(samples * features), targets(samples) {
        for (std::size_t i = 0; i < inputs.size(); ++i)
            inputs[i] = 2000 * ht::uniform(ht::random_bits(1, 0, 0, i)) - 1000;
        for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = inputs[features * i] / 1000;
    }
};

template <class P>
void train(auto& device, const char* name) {
    const data_set data;
    network<P> model{device};
    ht::adamw optimizer{device, model, {.lr = 1e-8, .weight_decay = 0}};
    ht::grad_scaler scaler{device, {.init_scale = 16}};
    ht::accumulator acc{model};
    ht::tape tape{device, ht::watched};                  // in place of tape{device}: the only change in the loop
    ht::overflow_finder finder{device, tape};

    const auto step = [&] {
        const auto x = tape.to_device(ht::const_view<float, 2>(data.inputs.data(), {samples, features}));
        const auto loss =
            ht::mean_squared_error(tape, model(tape, x), ht::const_view<float, 2>(data.targets.data(), {samples, 1}));
        tape.backward(scaler.scale(loss), acc);
        auto grads = scaler.unscale(acc.take());
        const auto outcome = optimizer.step(grads);
        scaler.update();
        finder.end_step(outcome);                        // on the device; nothing waits
    };
    for (int i = 0; i < 5; ++i) step();
    std::printf("%s: %d of 5 steps are skipped\n", name, static_cast<int>(optimizer.skipped_steps()));

    // Here the host waits. A training loop calls this when it logs; the reports of all steps since then are kept.
    const auto overflows = finder.take();
    if (!overflows.empty()) {
        const ht::overflow& o = overflows.front();
        std::printf("%s: step %d: %s, %s, %s: %s in %s\n", name, static_cast<int>(o.step), o.by.layer.c_str(),
                    o.by.operation.c_str(), ht::name(o.pass), o.kind(), ht::name(o.format));
        std::printf("%s: before it %s gave %.0f at most\n", name, o.before.layer.c_str(),
                    static_cast<double>(o.before_largest));
    }

    // Counts the values in the tensors of one more step, and proposes other types. It waits for each tensor, so use it
    // in occasional steps.
    ht::numerics_collector numerics{device, tape};
    step();
    for (const auto& p : numerics.take(model, scaler.get_scale()).proposals()) {
        if (!p.layer.empty()) std::printf("%s: %s\n", name, p.text.c_str());
    }
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    train<ht::amp_fp16>(device, "fp16");
    // Prints: fp16: 5 of 5 steps are skipped
    // Prints: fp16: step 1: square, linear, forward: +inf in float16
    // Prints: fp16: square:
    // Prints: fp16: out: 10 of 32 (31%) of out.weight are zeros in float16 and not in the master

    // With a rule for `square` its results are right; but `out` reads them in float16, and is the next to overflow.
    train<ht::recipe<ht::amp_fp16, ht::rule<"square", ht::amp_bf16>>>(device, "half mended");
    // Prints: half mended: 5 of 5 steps are skipped
    // Prints: half mended: step 1: out, linear, forward:

    using mended = ht::recipe<ht::amp_fp16, ht::rule<"square", ht::amp_bf16>, ht::rule<"out", ht::amp_bf16>>;
    train<mended>(device, "mended");
    // Prints: mended: 0 of 5 steps are skipped
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
