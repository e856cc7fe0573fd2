// SPDX-License-Identifier: MIT
/// \file
/// Lesson 7: a large table of which a step looks up few rows, and its sparse gradient.
///
/// A model of words or of a shop's items learns a vector for each id, and a step sees few of them. The gradient of the
/// table is zero everywhere else. Stored densely it has the table's size, is written, and is read by the norm and the
/// optimizer in every step, and nearly all of it is zeros. `ht::nn::sparse_embedding` stores the rows that were looked
/// up: their indices, each once, and the sums of their gradients. The training loop stays the same.
#include <cstdio>
#include <cstring>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/nn/sparse_embedding.hpp>

#include "with_device.hpp"

namespace ht = halftone;

constexpr ht::extent items = 3000, width = 16, kinds = 4, lookups = 48;

/// The same layer with a dense gradient. The operation for which the table is stored, here `op::embedding`, decides
/// which of the two it is.
template <class P>
struct dense_embedding {
    using policy = P;
    using operation = ht::op::embedding;
    static constexpr bool owns_parameters = true;
    ht::parameter<ht::storage_signature<P, operation>, 2> table;

    dense_embedding(ht::store& s, ht::extent rows, ht::extent columns)
        : table{s.add<P, operation>("table", ht::shape<2>{rows, columns}, {.deviation = 0.02f})} {}
    auto operator()(auto& tape, const ht::const_view<std::int32_t, 2>& ids) const {
        return ht::embedding<ht::stream_roles<P, operation, decltype(tape)>>(tape, ids, table, ht::absent{});
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

/// Classifies an item by its vector.
template <class P, template <class> class Embedding>
struct classifier : ht::nn::model {
    using policy = P;
    Embedding<ht::at<P, "items">> embed;
    ht::nn::linear<ht::at<P, "head">> head;

    explicit classifier(auto& device)
        : model{device}, embed{parameters(), items, width}, head{parameters(), width, kinds} {
        commit(*this, 7);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed, self.head); }
};

/// The ids of a step: popular items often, others rarely.
struct batch {
    std::vector<std::int32_t> ids, labels;

    explicit batch(int step) {
        for (int i = 0; i < lookups; ++i) {
            const float u =
                ht::uniform(ht::random_bits(1, static_cast<std::uint32_t>(step), 0, static_cast<std::uint64_t>(i)));
            ids.push_back(static_cast<std::int32_t>(static_cast<float>(items) * u * u * u));
            labels.push_back(ids.back() % kinds);
        }
    }
    ht::const_view<std::int32_t, 2> tokens() const { return {ids.data(), {1, lookups}}; }
    ht::const_view<std::int32_t, 2> targets() const { return {labels.data(), {1, lookups}}; }
};

/// Trains for some steps under a loss scale, and returns the table.
template <template <class> class Embedding, template <class, class> class Optimizer>
auto train(auto& device, const char* name, const auto& options) {
    using P = ht::amp_fp16;
    classifier<P, Embedding> model{device};
    Optimizer optimizer{device, model, options};
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
    ht::tape tape{device};
    const auto before = ht::to_host(device, ht::as_const(ht::flatten(model.embed.table.master())));

    for (int step = 0; step < 12; ++step) {
        const batch b(step);
        const auto loss = ht::cross_entropy(tape, model.head(tape, model.embed(tape, b.tokens())), b.targets());
        tape.backward(scaler.scale(loss), acc);
        auto grads =
            scaler.unscale(acc.take());  // checks the rows that were looked up, duplicates summed
        optimizer.step(grads);                    // changes only these rows
        scaler.update();
    }
    auto after = ht::to_host(device, ht::as_const(ht::flatten(model.embed.table.master())));
    int changed = 0;
    for (std::size_t row = 0; row < static_cast<std::size_t>(items); ++row) {
        changed +=
            std::memcmp(before.data() + row * width, after.data() + row * width, width * sizeof(float)) != 0 ? 1 : 0;
    }
    std::printf("%s: gradients take %d bytes; %d of %d rows have changed\n", name,
                static_cast<int>(acc.find(model.parameters())->bytes()), changed, static_cast<int>(items));
    return after;
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    // Plain SGD changes a row by its gradient only. Where that is zero nothing happens, and both tables end with the
    // same bits.
    const auto dense = train<dense_embedding, ht::sgd>(device, "sgd, dense", ht::sgd_options{.lr = 0.5});
    const auto sparse = train<ht::nn::sparse_embedding, ht::sgd>(device, "sgd, sparse", ht::sgd_options{.lr = 0.5});
    std::printf("the tables are %s\n",
                std::memcmp(dense.data(), sparse.data(), items * width * sizeof(float)) == 0 ? "equal" : "different");
    // Prints: sgd, dense: gradients take 192512 bytes; 415 of 3000 rows have changed
    // Prints: sgd, sparse: gradients take 3840 bytes; 415 of 3000 rows have changed
    // Prints: the tables are equal

    // AdamW decays every row in every step, and its moments go on changing a row long after it was looked up. With a
    // sparse gradient it is lazy, as torch.optim.SparseAdam: a row that is not looked up is unchanged, and so are its
    // moments.
    train<dense_embedding, ht::adamw>(device, "adamw, dense", ht::adamw_options{.lr = 0.01});
    train<ht::nn::sparse_embedding, ht::adamw>(device, "adamw, sparse", ht::adamw_options{.lr = 0.01});
    // Prints: adamw, dense: gradients take 192512 bytes; 3000 of 3000 rows have changed
    // Prints: adamw, sparse: gradients take 3840 bytes; 415 of 3000 rows have changed
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
