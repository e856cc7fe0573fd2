// SPDX-License-Identifier: MIT
/// \file
/// Lesson 21: data parallel training by hand.
///
/// Several ranks train one model: each has a copy of it and its own rows of the batch, and before each step they add their
/// gradients. If they begin with the same weights and all add the same numbers in the same order, they take the same
/// steps and stay equal to the bit, without ever sending a weight again. Here ranks are threads; with MPI they would be
/// processes, and the function `train` would be the same.
#include <cstdio>
#include <vector>

#include <halftone/number.hpp>
#include <halftone/ranks/reduce.hpp>
#include <halftone/ranks/threads.hpp>

namespace ht = halftone;

constexpr int rows = 12, inputs = 4;

/// Row `r` of the data: whole numbers, and the y that the weights 1, 2, 3, 4 give.
float x_of(int r, int i) { return static_cast<float>((3 * r + 5 * i) % 7 - 3); }
float y_of(int r) {
    float y = 0;
    for (int i = 0; i < inputs; ++i) y += static_cast<float>(i + 1) * x_of(r, i);
    return y;
}

/// The sum of squared errors of rows [first, end), and its gradient with respect to the weights.
float loss_and_gradient(const std::vector<float>& w, int first, int end, std::vector<float>& gradient) {
    float loss = 0;
    gradient.assign(inputs, 0.0f);
    for (int r = first; r < end; ++r) {
        float error = -y_of(r);
        for (int i = 0; i < inputs; ++i) error += w[static_cast<std::size_t>(i)] * x_of(r, i);
        loss += error * error;
        for (int i = 0; i < inputs; ++i) gradient[static_cast<std::size_t>(i)] += 2 * error * x_of(r, i);
    }
    return loss;
}

struct result {
    std::vector<float> first_gradient, w, losses;
};

/// What a rank does. Wire: the number type in which gradients travel.
template <class Wire>
result train(ht::communicator& comm, int steps) {
    ht::cpu device{{.threads = 1}};  // each rank has a device of its own
    result out;

    // 1. The same weights on all ranks: those of rank 0, whatever the others had.
    out.w.assign(inputs, comm.rank() == 0 ? 0.0f : 99.0f);
    comm.broadcast("weights", out.w.data(), inputs * sizeof(float), 0);

    // 2. Each rank has its own rows.
    const int each = rows / comm.size(), first = comm.rank() * each;
    std::vector<float> gradient;
    for (int step = 0; step < steps; ++step) {
        const float loss = loss_and_gradient(out.w, first, first + each, gradient);

        // 3. The sum over ranks. all_reduce rounds to Wire, sends, and adds in one order, by the ranks' numbers: the bits
        // are the same on all ranks.
        ht::all_reduce<Wire>(device, comm, "gradient", ht::view<float, 1>(gradient.data(), {inputs}));
        if (step == 0) out.first_gradient = gradient;
        out.losses.push_back(ht::all_reduce_sum(comm, "loss", loss) / rows);

        // 4. The same step on all ranks: of the mean over all rows, as one rank with all rows would take it.
        for (std::size_t i = 0; i < inputs; ++i) out.w[i] -= 0.02f / rows * gradient[i];
    }
    return out;
}

/// The results of all ranks.
template <class Wire>
std::vector<result> run(int ranks, int steps) {
    std::vector<result> all(static_cast<std::size_t>(ranks));
    ht::run_ranks(ranks, [&](ht::communicator& comm) { all[static_cast<std::size_t>(comm.rank())] = train<Wire>(comm, steps); });
    return all;
}

int main() {
    const std::vector<result> one = run<float>(1, 300), four = run<float>(4, 300);
    std::printf("loss of 4 ranks: %.2f at first, %s after 300 steps\n", four[0].losses[0], four[0].losses.back() < 0.01f ? "less than 0.01" : "more than 0.01");
    // Prints: loss of 4 ranks: 50.25 at first, less than 0.01 after 300 steps

    bool same = true;
    for (const result& r : four) same = same && r.w == four[0].w && r.losses == four[0].losses;
    std::printf("all ranks have the same bits: %s\n", same ? "yes" : "no");
    // Prints: all ranks have the same bits: yes

    // Sums of whole numbers are exact in any order: the first gradient is that of one rank, to the bit. Later ones are
    // rounded, and four ranks add in another order than one.
    std::printf("the first gradient is that of one rank: %s\n", four[0].first_gradient == one[0].first_gradient ? "yes" : "no");
    // Prints: the first gradient is that of one rank: yes
    std::printf("weights after 300 steps: %.1f %.1f %.1f %.1f\n", four[0].w[0], four[0].w[1], four[0].w[2], four[0].w[3]);
    // Prints: weights after 300 steps: 1.0 2.0 3.0 4.0

    // Gradients may travel in half the bytes: each rank's is rounded once to bfloat16, and so is the sum.
    const std::vector<result> narrow = run<ht::bfloat16>(4, 300);
    same = true;
    for (const result& r : narrow) same = same && r.w == narrow[0].w;
    std::printf("in bfloat16: all ranks have the same bits: %s, the loss is %s\n", same ? "yes" : "no",
                narrow[0].losses.back() < 0.01f ? "less than 0.01" : "more than 0.01");
    // Prints: in bfloat16: all ranks have the same bits: yes, the loss is less than 0.01
}
