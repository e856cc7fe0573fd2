// SPDX-License-Identifier: MIT
/// \file
/// A user-defined model: a mixture of two experts (Jacobs et al. 1991) with a learned gate.
///
/// It shows: the layers of a list called on the same input, a softmax that weights their results, and, in evaluation, the
/// choice of one expert for each row. The data follow two rules that the model has to discover: if the first element is
/// negative the target is the sum of the others, otherwise a difference.
#include <algorithm>
#include <vector>

#include "train.hpp"

constexpr ht::extent features = 4, hidden = 16, experts = 2;
constexpr ht::extent rows = 64;  // of a batch

template <class P>
struct expert {
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    explicit expert(ht::store& s) : up{s, features, hidden}, down{s, hidden, 1} {}
    auto operator()(auto&& ctx, const auto& x) const { return down(ctx, ht::gelu(ctx, up(ctx, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

template <class P>
struct mixture : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "gate">> gate;
    ht::nn::stack<expert, P, "experts"> asked;

    explicit mixture(auto& device)
        : model{device}, gate{parameters(), features, experts}, asked{parameters(), static_cast<int>(experts)} {
        commit(*this, 7);
    }
    // The sum of all experts' results, weighted by the gate: (rows, features) to (rows, 1).
    auto operator()(auto&& ctx, const auto& x) const {
        const auto weights = ht::softmax(ctx, gate(ctx, x));                               // (rows, experts)
        const auto answers = ht::cat(ctx, ht::axes<1>, asked[0](ctx, x), asked[1](ctx, x));  // (rows, experts)
        return ht::sum(ctx, ht::mul(ctx, weights, answers), ht::axes<1>, ht::keepdim);
    }
    // The expert with the largest weight: (rows).
    auto chosen(auto&& ctx, const auto& x) const { return ht::argmax(ctx, gate(ctx, x), ht::axes<1>); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.gate, self.asked); }
};

struct samples {
    std::vector<float> inputs = std::vector<float>(rows * features), targets = std::vector<float>(rows);

    explicit samples(int step) {
        draws random(step);
        for (float& x : inputs) x = random.between(-1, 1);
        for (std::size_t i = 0; i < targets.size(); ++i) {
            float* const x = &inputs[i * features];
            x[0] += x[0] < 0 ? -0.3f : 0.3f;  // nowhere near the border
            targets[i] = x[0] < 0 ? x[1] + x[2] + x[3] : x[1] - x[2] - x[3];
        }
    }
    ht::const_view<float, 2> x() const { return {inputs.data(), {rows, features}}; }
    ht::const_view<float, 2> y() const { return {targets.data(), {rows, 1}}; }
};

template <class P>
void learn(auto& device, const char* name) {
    mixture<P> model{device};
    train<samples>(device, name, model, 400, 2e-2, [&](auto& tape, const auto& batch) {
        return ht::mean_squared_error(tape, model(tape, tape.to_device(batch.x())), batch.y());
    });
    // The gate should send all rows of one rule to the same expert.
    const samples fresh(1000);
    ht::inference eval{device};
    const auto who = ht::to_host(device, model.chosen(eval, eval.to_device(fresh.x())).view());
    int to_first = 0;
    for (ht::extent i = 0; i < rows; ++i) to_first += (fresh.x()(i, 0) < 0) == (who(i) == 0) ? 1 : 0;
    const int most = std::max<int>(to_first, rows - to_first);
    std::printf("%s: an expert has its rule: %s of the rows agree\n", name, 10 * most >= 9 * rows ? "nine tenths" : "few");
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) {
        learn<ht::amp_bf16>(device, "bf16");
        // Prints: bf16: loss 0.
        // Prints: less than a tenth of that
        // Prints: bf16: an expert has its rule: nine tenths of the rows agree
        learn<ht::amp_fp16>(device, "fp16");
        // Prints: fp16: loss 0.
        // Prints: less than a tenth of that
        // Prints: fp16: an expert has its rule: nine tenths of the rows agree
    });
}
