// SPDX-License-Identifier: MIT
/// \file
/// Times a step of tuning a Qwen2 of half a billion parameters on the CPU, by adapters of rank 16 on all linear layers (LoRA) and as
/// a whole: forward, loss, backward, AdamW.
///
///     bench_finetune --json finetune.json --torch python3        // compared with transformers, and with PEFT, where they are installed
///     bench_finetune --tiny                                      // a small model: a second
///
/// The base is in bf16 on both sides, adapters in fp32; PEFT's compute in fp32 and halftone's in bf16. Moments are fp32 in halftone, and in the
/// parameters' type in PyTorch. Logits are not stored here, and are there. A step's operations are 4 N a token with adapters, 6 N for the whole model, N
/// parameters with the head's table once.
#include <optional>
#include <random>
#include <vector>

#include <support/program.hpp>
#include <support/regions.hpp>

#include <halftone/amp.hpp>
#include <halftone/nn/llama.hpp>
#include <halftone/policy/lora.hpp>

namespace {

namespace ht = halftone;
using ht::extent;

struct shape {
    const char* name;
    ht::nn::llama_config model;
    extent batch, length, rank;

    double parameters() const {
        const auto w = static_cast<double>(model.hidden_size), inner = static_cast<double>(model.intermediate_size);
        const double kv = w * static_cast<double>(model.num_key_value_heads) / static_cast<double>(model.num_attention_heads);
        return static_cast<double>(model.vocab_size) * w + model.num_hidden_layers * (2 * w * (w + kv) + 3 * w * inner);
    }
    double tokens() const { return static_cast<double>(batch * length); }
    std::string text() const {
        return std::string(name) + " B=" + std::to_string(batch) + " T=" + std::to_string(length);
    }
};

shape shape_of(bool tiny) {
    ht::nn::llama_config c{.vocab_size = 151936,
                           .hidden_size = 896,
                           .intermediate_size = 4864,
                           .num_hidden_layers = 24,
                           .num_attention_heads = 14,
                           .num_key_value_heads = 2,
                           .max_position_embeddings = 512,
                           .rope_theta = 1e6,
                           .tie_word_embeddings = true,
                           .attention_bias = true,
                           .logits = ht::keep_logits::never};
    if (!tiny) return {"Qwen2-0.5B", c, 4, 512, 16};
    c.vocab_size = 256, c.hidden_size = 64, c.intermediate_size = 192, c.num_hidden_layers = 2,
    c.num_attention_heads = 4;
    c.max_position_embeddings = 32;
    return {"Qwen2 2x64", c, 2, 32, 4};
}

/// A model with everything that its steps need, on one batch of random tokens.
template <class P>
class tuning {
    struct batch_view {
        ht::const_view<std::int32_t, 2> tokens, targets;
    };

  public:
    tuning(ht::cpu& device, const shape& s) : device_(device), model_(device, s.model) {
        std::mt19937 engine(1);
        std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(s.model.vocab_size - 1));
        for (auto* ids : {&tokens_, &targets_}) {
            ids->resize(static_cast<std::size_t>(s.batch * s.length));
            for (auto& id : *ids) id = any(engine);
        }
        batch_ = {{tokens_.data(), {s.batch, s.length}}, {targets_.data(), {s.batch, s.length}}};
    }
    void step(ht::range_listener* listener = nullptr) {
        tape_.listen(listener);
        tape_.backward(model_.loss(tape_, batch_), acc_);
        auto grads = acc_.take();
        const ht::range here(listener, "adamw", ht::pass::update);
        optimizer_.step(grads);
    }
    std::size_t peak_bytes() const { return device_.memory().usage().peak(); }

  private:
    using model_type = ht::nn::llama<P>;
    ht::cpu& device_;
    model_type model_;
    ht::adamw<ht::cpu, model_type> optimizer_{device_, model_, {.lr = 1e-4}};
    ht::accumulator<ht::unscaled_t, ht::types<model_type>> acc_{model_, ht::unscaled};
    ht::tape<ht::cpu> tape_{device_};
    std::vector<std::int32_t> tokens_, targets_;
    batch_view batch_;
};

template <class P>
void run_case(const bench::session& with, const shape& s, const char* method, double flops) {
    const bench::case_name name{method, s.text(), "bf16"};
    if (!with.report.wants(name)) return;
    bench::regions executor(with.o.threads);
    ht::cpu device{{.executor = &executor}};
    std::optional<ht::add_adapters> added;
    if (std::string(method).starts_with("lora"))
        added.emplace(device, ht::adapter_options{.rank = s.rank, .alpha = 2 * static_cast<double>(s.rank)});
    tuning<P> ours(device, s);
    const auto& m = s.model;
    std::vector<bench::contender> all;
    all.push_back(bench::local("halftone", [&] { ours.step(); }));
    if (std::string(method) != "lora_nf4")
        with.add_torch_if_installed(all,
                                    {{"op", "tune_qwen2"},
                                     {"method", method},
                                     {"rank", s.rank},
                                     {"layers", m.num_hidden_layers},
                                     {"heads", m.num_attention_heads},
                                     {"kv_heads", m.num_key_value_heads},
                                     {"width", m.hidden_size},
                                     {"intermediate", m.intermediate_size},
                                     {"vocabulary", m.vocab_size},
                                     {"context", m.max_position_embeddings},
                                     {"batch", s.batch},
                                     {"length", s.length}},
                                    std::string(method) == "lora" ? "peft" : "transformers");
    const auto timings = bench::compare(all, with.o);
    with.report.add(name, timings, flops * s.parameters() * s.tokens(), "GFLOP/s", with.peaks.bf16, "peak_bf16_flops");
    with.report.add_row({{"kernel", std::string(method) + " peak bytes"}, {"shape", name.shape}, {"policy", "bf16"}, {"halftone", ours.peak_bytes()}});
    for (const auto& t : timings) std::printf("  %8.0f tokens/s: %s\n", s.tokens() / t.seconds, t.engine.c_str());
    std::printf("  %.0f MiB at most\n", static_cast<double>(ours.peak_bytes()) / (1 << 20));
    std::fflush(stdout);
    if (with.torch != nullptr) with.torch->clear();
    bench::breakdown parts(executor);
    executor.watch(true);
    const auto begin = std::chrono::steady_clock::now();
    ours.step(&parts);
    const double seconds = bench::seconds_since(begin);
    executor.watch(false);
    auto row = parts.print(1, seconds);
    row["kernel"] = std::string(method) + " parts", row["shape"] = name.shape, row["policy"] = "bf16";
    with.report.add_row(row);
}

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    o.rounds = 3;
    bool tiny = false;
    CLI::App app{"Times steps of tuning on the CPU, compared with PEFT's and transformers'."};
    app.add_flag("--tiny", tiny, "a model of 2 layers of width 64 in place of Qwen2-0.5B");
    return bench::run_program("bench_finetune", app, o, argc, argv, [&](const bench::session& with) {
        const shape s = shape_of(tiny);
        run_case<ht::lora<ht::amp_bf16, ht::pure_bf16>>(with, s, "lora", 4);
        run_case<ht::lora<ht::amp_bf16, ht::with_copy<ht::pure_bf16, ht::nf4>>>(with, s, "lora_nf4", 4);
        run_case<ht::pure_bf16>(with, s, "full", 6);
    });
}
