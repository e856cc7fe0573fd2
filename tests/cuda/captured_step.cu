// SPDX-License-Identifier: MIT
/// \file
/// Captured steps as CUDA graphs: they have the bits of uncaptured steps; why each is captured; calls that cannot be captured, and
/// the stream, which can be used afterwards.
// compile: with --full, at most 150 kernels. Steps of a small model like those of steps.cu.
#include <halftone/amp.hpp>
#include <halftone/cuda.cuh>
#include <halftone/data/batches.hpp>
#include <halftone/train/trainer.hpp>

#include "train/captured.hpp"

namespace {

namespace ht = halftone;
static_assert(ht::capturing_device<ht::cuda>);

TEST_CASE("cuda: a captured step has the bits of an uncaptured one, whatever changes on the device meanwhile") {
    ht::cuda one, two;
    captured::check_same_bits(one, two);
}

TEST_CASE("cuda: a captured step says why it was captured again or ran uncaptured") {
    ht::cuda device;
    captured::check_reasons(device);
}

TEST_CASE("cuda: a host value stays that of the capture") {
    ht::cuda one, two;
    captured::check_host_values(one, two);
}

TEST_CASE("cuda: nothing inside a captured step waits, uploads or allocates") {
    ht::cuda device;
    captured::check_refusals(device);
}

TEST_CASE("cuda: a call that a capture does not allow drops the capture, and the stream works afterwards") {
    ht::cuda device;
    const ht::tensor<float, 1> x(device.memory(), {4});
    device.fill(x.data(), 4, 1.0f);
    struct stop {};
    CHECK_THROWS_AS(static_cast<void>(device.capture([&] {
                        device.fill(x.data(), 4, 2.0f);
                        throw stop{};
                    })),
                    stop);
    // A call that CUDA refuses, made without the context: the end of the capture reports it.
    CHECK_THROWS_AS(static_cast<void>(device.capture([&] {
                        device.fill(x.data(), 4, 3.0f);
                        static_cast<void>(cudaStreamSynchronize(device.stream()));
                    })),
                    ht::cuda_error);
    const auto value = [&] {
        float first;
        device.memory().read(&first, x.data(), sizeof first);
        return first;
    };
    CHECK(value() == 1);
    ht::cuda_graph work = device.capture([&] {
        device.fill(x.data(), 4, 4.0f);
        device.memory().clear(x.data() + 1, sizeof(float));
        device.copy(x.data(), x.data() + 1, sizeof(float));
    });
    CHECK(work.nodes() == 3);
    CHECK(value() == 1);
    for (int time = 0; time < 2; ++time) {
        device.fill(x.data(), 4, 5.0f);
        device.replay(work);
        CHECK(value() == 0);
    }
}

TEST_CASE("cuda: a trainer's steps have the same bits captured and uncaptured") {
    const std::string corpus = [] {
        std::string t;
        for (int i = 0; i < 400; ++i) t += static_cast<char>((i * i + i / 7) % 16);
        return t;
    }();
    std::vector<float> losses;
    for (const auto capture : {ht::step_capture::automatic, ht::step_capture::off}) {
        ht::cuda device;
        ht::nn::gpt<ht::amp_fp16> model{device, captured::config, 1};
        ht::language_data data{ht::token_view{corpus}, {.context = 8, .vocabulary = 23}};
        ht::trainer trainer{device, model, {.per_device_train_batch_size = 2, .gradient_accumulation_steps = 2, .max_steps = 8, .learning_rate = 1e-2, .capture_steps = capture}};
        losses.push_back(static_cast<float>(trainer.train(data).train_loss));
        losses.push_back(static_cast<float>(trainer.evaluate(data).loss));
        CHECK(trainer.captured().captures() == (capture == ht::step_capture::off ? 0 : 1));
    }
    CHECK(losses[0] == losses[2]);
    CHECK(losses[1] == losses[3]);
}

}  // namespace
