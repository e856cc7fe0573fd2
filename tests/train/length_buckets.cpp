// SPDX-License-Identifier: MIT
/// \file
/// Sequences padded to buckets: what the batches are, that padding changes nothing, that the warm-up leaves no trace, and that
/// the memory for all lengths is there from the first step on.
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/memory/arena_plans.hpp>

#include "train/length_buckets.hpp"
#include "train/small_gpt.hpp"

namespace train_length_buckets_tests {

namespace ht = halftone;
using ht::extent;

TEST_CASE("length_buckets: the next length") {
    const ht::length_buckets b({4, 8, 32});
    CHECK(b.padded(1) == 4);
    CHECK(b.padded(4) == 4);
    CHECK(b.padded(5) == 8);
    CHECK(b.padded(9) == 32);
    CHECK(b.bucket_of(32) == 2);
    CHECK(b.largest() == 32);
    CHECK(ht::length_buckets::multiples_of(3, 10).lengths() == std::vector<extent>{3, 6, 9, 12});
    CHECK(ht::length_buckets::powers_of_two(32, 1024).lengths() == std::vector<extent>{32, 64, 128, 256, 512, 1024});
    CHECK(ht::length_buckets::powers_of_two(3, 4).lengths() == std::vector<extent>{3, 6});
    CHECK_THROWS_WITH_AS(b.padded(33), "length_buckets: a length of 33; the largest bucket has 32", ht::argument_error);
    CHECK_THROWS_AS(b.padded(0), ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::length_buckets({}), "length_buckets: no lengths; expected one or more", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::length_buckets({4, 4}),
                         "length_buckets: 4 behind 4; expected lengths of 1 or more, in ascending order", ht::argument_error);
    CHECK_THROWS_AS(ht::length_buckets({0, 4}), ht::argument_error);
    CHECK_THROWS_AS(ht::length_buckets::multiples_of(0, 4), ht::argument_error);
    CHECK_THROWS_AS(ht::length_buckets::powers_of_two(4, 0), ht::argument_error);
}

/// Sequences of 2 to 19 tokens.
struct sequences {
    std::vector<std::vector<std::int32_t>> ids;
    std::vector<ht::token_view> views;

    sequences() {
        for (int n = 2; n <= 19; ++n) ids.push_back(support::random(static_cast<std::uint64_t>(n)).indices(static_cast<std::size_t>(n), 28));
        for (const auto& each : ids) views.emplace_back(std::span<const std::int32_t>(each));
    }
};

TEST_CASE("bucketed_data: rows of one bucket, with padding that no loss counts") {
    const sequences all;
    ht::bucketed_data data(all.views, buckets::nine(), {.vocabulary = 29, .padding = 28, .seed = 3});
    CHECK(data.shapes() == 9);
    std::vector<int> seen(9);
    for (std::uint32_t step = 0; step < 60; ++step) {
        const ht::language_batch b = data.sample(step, 3);
        REQUIRE(b.rows() == 3);
        const extent time = b.tokens.extent_of(1);
        const std::size_t bucket = data.buckets().bucket_of(time);
        ++seen[bucket];
        CHECK(data.buckets().lengths()[bucket] == time);
        for (extent row = 0; row < 3; ++row) {
            const std::int32_t* const tokens = b.tokens.data() + row * time;
            const std::int32_t* const targets = b.targets.data() + row * time;
            extent length = time;
            while (length > 0 && targets[length - 1] == -100) --length;
            CHECK(length > time - 2);  // buckets are two apart
            for (extent t = length; t < time; ++t) CHECK(tokens[t] == 28);
            const auto& ids = all.ids[static_cast<std::size_t>(length - 1)];  // that with length + 1 tokens
            for (extent t = 0; t < length; ++t) {
                CHECK(tokens[t] == ids[static_cast<std::size_t>(t)]);
                CHECK(targets[t] == ids[static_cast<std::size_t>(t + 1)]);
            }
        }
    }
    for (const int times : seen) CHECK(times > 0);
    CHECK(data.largest(2).tokens.extent_of(1) == 18);
    // A batch depends on the seed and the step alone.
    ht::bucketed_data again(all.views, buckets::nine(), {.vocabulary = 29, .padding = 28, .seed = 3});
    const ht::language_batch one = data.sample(7, 2), other = again.sample(7, 2);
    REQUIRE(one.size() == other.size());
    CHECK(std::equal(one.tokens.data(), one.tokens.data() + one.size(), other.tokens.data()));

    CHECK_THROWS_WITH_AS(ht::bucketed_data({}, buckets::nine(), {.vocabulary = 29}), "data: no sequences", ht::data_error);
    CHECK_THROWS_WITH_AS(ht::bucketed_data(all.views, ht::length_buckets({4, 8}), {.vocabulary = 29}),
                         "data: sequence 8 has 10 tokens; expected 2 to 9, one more than the largest bucket", ht::data_error);
    CHECK_THROWS_AS(ht::bucketed_data(all.views, buckets::nine(), {.vocabulary = 5}), ht::data_error);
    CHECK_THROWS_WITH_AS(ht::bucketed_data(all.views, buckets::nine(), {.vocabulary = 29, .padding = 29}),
                         "data: a padding of 29; the vocabulary has 0 to 28", ht::argument_error);
    CHECK_THROWS_AS(data.sample(0, 0), ht::argument_error);
}

TEST_CASE("bucketed_data: padding changes neither loss nor gradients") {
    const std::vector<std::int32_t> ids = support::random(5).indices(12, 28);
    const std::span<const std::int32_t> tokens(ids);
    ht::bucketed_data padded({ht::token_view(tokens)}, ht::length_buckets({18}), {.vocabulary = 29, .padding = 28});
    const std::vector<std::int32_t> targets(ids.begin() + 1, ids.end());
    const ht::language_batch plain{{ids.data(), {1, 11}}, {targets.data(), {1, 11}}};
    ht::cpu device{{.threads = 1}};
    const auto loss_and_masters = [&](const ht::language_batch& b, double lr = 1) {
        ht::nn::gpt<ht::full_fp32> model{device, buckets::config, 1};
        ht::sgd<ht::cpu, decltype(model)> optimizer{device, model, {.lr = lr}};
        ht::accumulator acc{model};
        ht::tape tape{device};
        ht::grad_scaler scaler{device, {.enabled = false}};
        const auto loss = model.loss(tape, b);
        tape.backward(scaler.scale(loss), acc);
        auto gradients = scaler.unscale(acc.take());
        optimizer.step(gradients);
        const std::vector<std::byte> bytes = small::masters(model.parameters());
        std::vector<float> values(bytes.size() / sizeof(float));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return std::pair(loss.item(), values);
    };
    const auto initial = loss_and_masters(plain, 0).second;
    const auto [loss, masters] = loss_and_masters(plain);
    const auto [loss_padded, masters_padded] = loss_and_masters(padded.sample(0, 1));
    CHECK(loss > 1);
    // The mean of the same 11 losses, maybe summed in another order: n roundings each.
    CHECK(std::fabs(loss - loss_padded) <= 2 * 11 * 0x1p-24f * loss);
    // What the padding adds to sums over rows is zero; only their order may change, in at most 16 operations one behind
    // another, of up to 128 products.
    REQUIRE(masters.size() == masters_padded.size());
    double distance = 0, size = 0;
    for (std::size_t i = 0; i < masters.size(); ++i) {
        distance += std::pow(masters[i] - masters_padded[i], 2);
        size += std::pow(masters[i] - initial[i], 2);
    }
    CHECK(size > 0);
    CHECK(std::sqrt(distance) <= 16 * 128 * 0x1p-24 * std::sqrt(size));
}

/// The same data without its largest batch, for which no trainer warms up.
struct without_warm_up {
    buckets::in_turn data;
    ht::language_batch sample(std::uint32_t step, extent rows) { return data.sample(step, rows); }
};
static_assert(ht::bucketed_training_data<buckets::in_turn>);
static_assert(ht::bucketed_training_data<ht::bucketed_data>);
static_assert(!ht::bucketed_training_data<without_warm_up>);

template <class P, class Data>
std::vector<std::byte> trained_on(Data data, ht::arena_kind kind) {
    ht::cpu device{{.threads = 2, .arenas = kind}};
    ht::nn::gpt_config config = buckets::config;
    config.dropout = 0.25f;
    ht::nn::gpt<P> model{device, config, 1};
    ht::trainer trainer{device, model,
                        {.per_device_train_batch_size = 2, .gradient_accumulation_steps = 2, .max_steps = 20, .learning_rate = 1e-3}};
    trainer.train(data);
    return small::masters(model.parameters());
}

TEST_CASE_TEMPLATE("trainer: the warm-up at the largest length leaves no trace", P, ht::amp_fp16, ht::amp_bf16) {
    const auto plain = trained_on<P>(without_warm_up{}, ht::arena_kind::segments);
    for (const ht::arena_kind kind : {ht::arena_kind::segments, ht::arena_kind::planned, ht::arena_kind::growable})
        CHECK((trained_on<P>(buckets::in_turn{}, kind) == plain));
}

TEST_CASE("trainer: nine lengths take nothing from the system behind the first step, and nine plans are made, once") {
    for (const ht::arena_kind kind :
         {ht::arena_kind::segments, ht::arena_kind::planned, ht::arena_kind::growable, ht::arena_kind::caching}) {
        CAPTURE(ht::name(kind));
        ht::cpu device{{.threads = 2, .arenas = kind}};
        ht::nn::gpt<ht::amp_bf16> model{device, buckets::config, 1};
        struct watcher final : ht::trainer_callback {
            ht::memory_resource* memory = nullptr;
            std::vector<std::uint64_t> allocations;
            std::vector<std::size_t> plans, held;
            void on_step(const ht::trainer_state&) override {
                allocations.push_back(memory->usage().allocations());
                plans.push_back(memory->plans().size());
                held.push_back(memory->usage().held());
            }
        } watch;
        watch.memory = &device.memory();
        buckets::in_turn data;
        ht::trainer trainer{device, model, {.per_device_train_batch_size = 2, .max_steps = 45, .learning_rate = 1e-3}};
        trainer.add_callback(watch);
        trainer.train(data);
        CHECK(trainer.captured().most_graphs() == 9);
        CHECK(watch.allocations.back() == watch.allocations[1]);
        CHECK(watch.held.back() == watch.held[1]);
        CHECK(watch.plans.back() == (kind == ht::arena_kind::planned ? 9u : 0u));
        if (kind == ht::arena_kind::planned) CHECK(watch.plans[10] == 9);
    }
}

}  // namespace train_length_buckets_tests
