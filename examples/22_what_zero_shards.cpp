// SPDX-License-Identifier: MIT
/// \file
/// Lesson 22: what ZeRO shards.
///
/// In data parallel training every rank keeps the same moments, the same summed gradients and the same weights: n times the
/// same bytes. ZeRO (Rajbhandari et al. 2020) keeps each of them once, a range on each rank, and sends what is needed when
/// it is needed. Stage 1 divides the optimizer's state, stage 2 gradients as well, stage 3 weights as well. Here is each of
/// them by hand, with Adam: the bytes that a rank holds, those that it receives in a step, and losses with the same bits.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include <halftone/ranks/counted.hpp>
#include <halftone/ranks/reduce.hpp>
#include <halftone/ranks/threads.hpp>

namespace ht = halftone;

constexpr int ranks = 4, units = 3, unit = 256, all = units * unit;  // three layers of 256 weights
constexpr int range = all / ranks, piece = unit / ranks;              // what a rank holds of all, and of a layer

/// Adam on some weights; returns nothing but the changed arrays.
void adam(int step, float* w, const float* g, float* m, float* v, int count) {
    for (int i = 0; i < count; ++i) {
        m[i] = 0.9f * m[i] + 0.1f * g[i];
        v[i] = 0.99f * v[i] + 0.01f * g[i] * g[i];
        const float mean = m[i] / (1 - std::pow(0.9f, static_cast<float>(step))), square = v[i] / (1 - std::pow(0.99f, static_cast<float>(step)));
        w[i] -= 0.01f * mean / (std::sqrt(square) + 1e-8f);
    }
}

/// A layer's loss, a sum of squared distances to this rank's data, and its gradient.
float layer(int rank, int number, const float* w, float* gradient) {
    float loss = 0;
    for (int i = 0; i < unit; ++i) {
        const float distance = w[i] - static_cast<float>((number * unit + i + 3 * rank) % 5);
        loss += distance * distance;
        gradient[i] = 2 * distance;
    }
    return loss;
}

ht::view<float, 1> view_of(std::vector<float>& v, int first, int count) { return {v.data() + first, {count}}; }

struct result {
    std::size_t bytes = 0;      ///< of weights, gradients and moments that the rank keeps
    std::uint64_t received = 0; ///< bytes in a step
    std::vector<float> losses;
};

result train(ht::communicator& world, int stage) {
    ht::counted_communicator comm{world};
    ht::cpu device{{.threads = 1}};
    const int rank = comm.rank();
    // What a rank keeps. A range of stage 3 consists of a piece of each layer.
    std::vector<float> w(stage == 3 ? range : all, 1.0f), g(stage >= 2 ? range : all), m(stage >= 1 ? range : all), v(m);
    result out{(w.size() + g.size() + m.size() + v.size()) * sizeof(float), 0, {}};
    std::vector<float> whole(unit), gradient(unit);  // of one layer, for a while
    for (int step = 1; step <= 5; ++step) {
        comm.clear();
        float loss = 0;
        for (int u = 0; u < units; ++u) {
            if (stage == 3) {  // gathered before the layer computes, and given up after it
                comm.all_gather("weights", w.data() + u * piece, whole.data(), piece * sizeof(float));
            } else {
                std::memcpy(whole.data(), w.data() + u * unit, unit * sizeof(float));
            }
            loss += layer(rank, u, whole.data(), gradient.data());
            if (stage >= 2) {  // each rank gets the sum of its piece, and nobody keeps the others
                ht::reduce_scatter<float>(device, comm, "gradients", view_of(gradient, 0, unit), view_of(g, u * piece, piece));
            } else {
                ht::all_reduce<float>(device, comm, "gradients", view_of(gradient, 0, unit));
                std::memcpy(g.data() + u * unit, gradient.data(), unit * sizeof(float));
            }
        }
        if (stage == 0) {
            adam(step, w.data(), g.data(), m.data(), v.data(), all);
        } else {
            for (int u = 0; u < units; ++u) {  // a rank updates its piece of each layer ...
                float* const mine = w.data() + u * (stage == 3 ? piece : unit) + (stage == 3 ? 0 : rank * piece);
                const float* const sum = g.data() + (stage >= 2 ? u * piece : u * unit + rank * piece);
                adam(step, mine, sum, m.data() + u * piece, v.data() + u * piece, piece);
                // ... and, as long as all keep all weights, tells the others.
                if (stage < 3) comm.all_gather("weights", mine, w.data() + u * unit, piece * sizeof(float));
            }
        }
        out.received = comm.bytes();
        out.losses.push_back(ht::all_reduce_sum(world, "loss", loss));
    }
    return out;
}

int main() {
    std::vector<result> of(4);
    for (int stage = 0; stage < 4; ++stage) {
        ht::run_ranks(ranks, [&](ht::communicator& comm) {
            const result r = train(comm, stage);
            if (comm.rank() == 0) of[static_cast<std::size_t>(stage)] = r;
        });
        const result& r = of[static_cast<std::size_t>(stage)];
        std::printf("stage %d: a rank keeps %5zu bytes and receives %4llu in a step; the same losses: %s\n", stage, r.bytes,
                    static_cast<unsigned long long>(r.received), r.losses == of[0].losses ? "yes" : "no");
    }
    // 768 weights have 3,072 bytes; a rank that receives what the three others have of them receives 2,304. An all-reduce
    // is a reduce-scatter and a gather.
    // Prints: stage 0: a rank keeps 12288 bytes and receives 4608 in a step; the same losses: yes
    // Prints: stage 1: a rank keeps  7680 bytes and receives 6912 in a step; the same losses: yes
    // Prints: stage 2: a rank keeps  5376 bytes and receives 4608 in a step; the same losses: yes
    // Prints: stage 3: a rank keeps  3072 bytes and receives 4608 in a step; the same losses: yes

    std::printf("the loss falls: %s\n", of[3].losses.back() < of[3].losses.front() ? "yes" : "no");
    // Prints: the loss falls: yes
}
