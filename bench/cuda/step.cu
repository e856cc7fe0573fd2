// SPDX-License-Identifier: MIT
/// \file
/// A whole training step of a small GPT and of GPT-2 124M, launched kernel by kernel and as one captured graph, in
/// turn: the difference is the cost of the host's part. Timed from one step to the next, as in a training loop, with
/// other tokens each time. If cuBLASLt is available, also with its products where they are faster. Compiled with
/// BENCH_NARROW_STREAM, the residual stream is bf16 in place of the preset's fp32, as in `peers/torch_gpu.py --stream
/// narrow`.
// compile: with --full, at most 150 kernels.
#include <chrono>

#include <halftone/amp.hpp>
#include <halftone/cuda.cuh>
#include <halftone/data/batches.hpp>
#include <halftone/train/captured_step.hpp>

#include "measure.cuh"

#if defined(BENCH_CUBLASLT)
#include <halftone/exec/cuda/cublaslt.cuh>
#endif

namespace bench {

namespace {

#if defined(BENCH_NARROW_STREAM)
using model_type = ht::nn::gpt<ht::with_stream<ht::amp_bf16, ht::bfloat16>>;
constexpr const char* policy_name = "amp_bf16, bf16 stream";
#else
using model_type = ht::nn::gpt<ht::amp_bf16>;
constexpr const char* policy_name = "amp_bf16";
#endif

/// A model with everything that its steps need.
struct training {
    ht::cuda& gpu;
    model_type model;
    ht::adamw<ht::cuda, model_type> optimizer{gpu, model, {.lr = 3e-4}};
    ht::grad_scaler<ht::cuda> scaler{gpu, {.enabled = ht::model_needs_scaling<model_type>}};
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc{model};
    ht::tape<ht::cuda> tape{gpu};

    training(ht::cuda& device, const ht::nn::gpt_config& config) : gpu(device), model(device, config) {}

    ht::variable<float, 0> body(const ht::language_batch& batch) {
        auto loss = model.loss(tape, batch);
        tape.backward(scaler.scale(loss), acc);
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
        return loss;
    }
};

/// A model's configuration, and how long it is trained.
struct step_case {
    std::string kernel, shape;
    ht::nn::gpt_config config;
    ht::extent rows;
    int steps, rounds;
};

timing timing_of(std::vector<double>& samples) {
    std::sort(samples.begin(), samples.end());
    const auto at = [&](double share) {
        return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1))];
    };
    return {at(0.5), at(0.1), at(0.9)};
}

void bench_case(const step_case& c, listener& to, const std::string& engine = "halftone",
                const ht::cuda_options& options = {}) {
    ht::cuda gpu{options};
    // Each variant has its own model, with the same weights.
    training one(gpu, c.config), two(gpu, c.config);
    ht::captured_step captured{gpu, [&](const ht::language_batch& b) { return two.body(b); }};
    std::string corpus;
    for (int i = 0; i < 100000; ++i) corpus += static_cast<char>((i * i + i / 7) % 251);
    ht::language_data data{ht::token_view{corpus}, {.context = c.config.context}};
    std::uint32_t number = 0;
    const auto seconds_of = [&](const auto& step) {
        gpu.synchronize();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < c.steps; ++i) step(data.sample(number++, c.rows));
        gpu.synchronize();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / c.steps;
    };
    const auto as_it_is = [&](const ht::language_batch& b) { static_cast<void>(one.body(b)); };
    const auto replayed = [&](const ht::language_batch& b) { captured(b); };
    seconds_of(as_it_is), seconds_of(replayed);
    std::vector<double> plain, graph;
    for (int round = 0; round < c.rounds; ++round)
        plain.push_back(seconds_of(as_it_is)), graph.push_back(seconds_of(replayed));
    const timing of_plain = timing_of(plain), of_graph = timing_of(graph);
    const auto row_of = [&](const std::string& kernel, const timing& t) {
        row r{kernel, c.shape, policy_name, engine, t.median, t.p10, t.p90};
        r.rate = static_cast<double>(c.rows * c.config.context) / t.median;
        r.unit = "tokens/s";
        return r;
    };
    to.on_row(row_of(c.kernel, of_plain));
    row r = row_of(c.kernel + ", captured", of_graph);
    r.ratio_to.emplace_back("the uncaptured step's speed", of_plain.median / of_graph.median);
    // Both have taken the same number of steps, on other batches: losses that differ much mean that a replay did
    // something else.
    const double untrained = std::log(static_cast<double>(c.config.vocabulary));
    if (captured.captures() != 1 || !(captured.loss() < untrained + 0.5)) r.engine = "WRONG: " + captured.reason();
    to.on_row(r);
}

/// With halftone's kernels, then with the products for which cuBLASLt is faster.
void bench_both(const settings& s, const step_case& c, listener& to) {
    bench_case(c, to);
#if defined(BENCH_CUBLASLT)
    if (s.has_peers()) bench_case(c, to, "with cublaslt", {.engine = ht::cublaslt{}});
#else
    static_cast<void>(s);
#endif
}

}  // namespace

void bench_step(const settings& s, listener& to) {
    if (s.is_once()) return;
    if (is_wanted(s, "training step")) {
        const ht::nn::gpt_config small{.vocabulary = 256,
                                       .context = s.pick(128, 128, 16),
                                       .layers = s.pick(4, 4, 1),
                                       .heads = s.pick(4, 4, 1),
                                       .width = s.pick(256, 256, 64)};
        bench_both(s, {"training step", s.is_tiny() ? "GPT 1 x 64, 16 tokens" : "GPT 4 x 256, 4 x 128 tokens", small,
                    s.pick(4, 4, 1), s.pick(100, 20, 2), s.is_thin() ? 5 : s.pick(15, 3, 1)},
                   to);
    }
    // The same as in bench/peers/torch_gpu.py.
    if ((s.is_all() || s.is_thin()) && is_wanted(s, "GPT-2 step")) {
        const ht::nn::gpt_config gpt2{.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768};
        bench_both(s, {"GPT-2 step", "GPT 12 x 768, 8 x 1024 tokens, 50304 classes", gpt2, 8, 8, s.is_thin() ? 3 : 7}, to);
    }
}

}  // namespace bench
