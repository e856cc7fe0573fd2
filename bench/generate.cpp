// SPDX-License-Identifier: MIT
/// \file
/// Times greedy generation with a key-value cache on the CPU, of GPT-2 and of a Qwen2 of half a billion parameters: tokens a second of
/// one text, and of eight at once.
///
///     bench_generate --json generate.json --torch python3        // compared with PyTorch, and with transformers where it is installed
///     bench_generate --tiny                                      // small models: seconds
///
/// One run takes prompts of various lengths, around `prompt` tokens, and makes `new` tokens of each; weights are random.
/// PyTorch's contenders have their own caches and the weights in the type of the row. The rate counts the weights, which each
/// step reads once in the policy's type, the prompts' step as well; the peak is that of a copy.
#include <random>
#include <utility>
#include <variant>

#include <support/program.hpp>

#include <halftone/amp.hpp>
#include <halftone/nn/llama.hpp>

namespace {

namespace ht = halftone;
using ht::extent;
using ids = std::vector<std::int32_t>;

struct shape {
    const char* name;
    std::variant<ht::nn::gpt_config, ht::nn::llama_config> model;
    extent batch, prompt, made;

    double tokens() const { return static_cast<double>(batch * made); }
    std::string text() const {
        return std::string(name) + " B=" + std::to_string(batch) + " P=" + std::to_string(prompt) + " N=" + std::to_string(made);
    }
};

double parameters_of(const ht::nn::gpt_config& m) {
    const auto w = static_cast<double>(m.width);
    return static_cast<double>(m.vocabulary) * w + m.layers * (12 * w * w + 13 * w) + 2 * w;
}
double parameters_of(const ht::nn::llama_config& m) {
    const auto w = static_cast<double>(m.hidden_size), inner = static_cast<double>(m.intermediate_size);
    const double qkv =
        w + 2 * w * static_cast<double>(m.num_key_value_heads) / static_cast<double>(m.num_attention_heads);
    return static_cast<double>(m.vocab_size) * w +
           m.num_hidden_layers * (qkv * w + qkv + w * w + 3 * w * inner + 2 * w) + w;
}

/// GPT-2 with its 50,257 tokens padded to 50,304, and Qwen2-0.5B; or models of bytes.
std::vector<shape> shapes(bool tiny) {
    const ht::nn::gpt_config small{.vocabulary = 256, .context = 64, .layers = 2, .heads = 2, .width = 64},
        gpt2{.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768};
    const ht::nn::llama_config small_qwen{.vocab_size = 256,
                                          .hidden_size = 64,
                                          .intermediate_size = 160,
                                          .num_hidden_layers = 2,
                                          .num_attention_heads = 4,
                                          .num_key_value_heads = 2,
                                          .rope_theta = 1e6,
                                          .tie_word_embeddings = true,
                                          .attention_bias = true},
        qwen2{.vocab_size = 151936,
              .hidden_size = 896,
              .intermediate_size = 4864,
              .num_hidden_layers = 24,
              .num_attention_heads = 14,
              .num_key_value_heads = 2,
              .max_position_embeddings = 1024,
              .rope_theta = 1e6,
              .tie_word_embeddings = true,
              .attention_bias = true};
    std::vector<shape> all;
    for (const extent batch : {1, 8}) {
        if (tiny) {
            all.push_back({"2x64", small, batch, 8, 16});
            all.push_back({"Qwen2 2x64", small_qwen, batch, 8, 16});
        } else {
            all.push_back({"GPT-2 124M", gpt2, batch, 64, 64});
            all.push_back({"Qwen2-0.5B", qwen2, batch, 64, 64});
        }
    }
    return all;
}

/// Prompts of `prompt` tokens, less up to a quarter of them.
std::vector<ids> prompts_of(const shape& s, extent vocabulary) {
    std::mt19937 engine(1);
    std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(vocabulary - 1));
    std::vector<ids> all;
    for (extent i = 0; i < s.batch; ++i) {
        all.emplace_back(static_cast<std::size_t>(s.prompt - i * s.prompt / (4 * s.batch)));
        for (auto& id : all.back()) id = any(engine);
    }
    return all;
}

bench::json described(const ht::nn::gpt_config& m) {
    return {{"layers", m.layers},
            {"heads", m.heads},
            {"width", m.width},
            {"vocabulary", m.vocabulary},
            {"context", m.context}};
}
bench::json described(const ht::nn::llama_config& m) {
    return {{"layers", m.num_hidden_layers},       {"heads", m.num_attention_heads},      {"width", m.hidden_size},
            {"kv_heads", m.num_key_value_heads},   {"intermediate", m.intermediate_size}, {"vocabulary", m.vocab_size},
            {"context", m.max_position_embeddings}};
}
/// What PyTorch's side calls the model: its own code exists for GPTs alone.
std::vector<std::pair<const char*, const char*>> peers(const ht::nn::gpt_config&) {
    return {{"generate", "torch"}, {"generate_gpt2", "transformers"}};
}
std::vector<std::pair<const char*, const char*>> peers(const ht::nn::llama_config&) {
    return {{"generate_qwen2", "transformers"}};
}

template <class Model, class Config>
void run_case(const bench::session& with, const shape& s, const Config& c, const char* policy, const char* dtype,
              double bytes) {
    const bench::case_name name{"generate", s.text(), policy};
    if (!with.report.wants(name)) return;
    const Model model{with.device, c};
    bench::json question = described(c);
    const auto prompts = prompts_of(s, question["vocabulary"]);
    ht::inference eval{with.device};
    std::vector<bench::contender> all;
    all.push_back(bench::local("halftone", [&] { model.generate(eval, prompts, {.max_new_tokens = s.made}); }));
    question.update(bench::json{{"dtype", dtype}, {"new", s.made}, {"prompts", prompts}});
    for (const auto& [op, engine] : peers(c)) {
        question["op"] = op;
        with.add_torch_if_installed(all, question, engine);
    }
    const auto timings = bench::compare(all, with.o);
    with.report.add(name, timings, static_cast<double>(s.made) * parameters_of(c) * bytes, "GB/s",
                    with.peaks.copy_bytes, "copy_bytes_per_second");
    for (const auto& t : timings) std::printf("  %8.1f tokens/s: %s\n", s.tokens() / t.seconds, t.engine.c_str());
    std::fflush(stdout);
    if (with.torch != nullptr) with.torch->clear();
}

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    o.rounds = 5;
    bool tiny = false;
    CLI::App app{"Times generation with a key-value cache on the CPU, compared with PyTorch's."};
    app.add_flag("--tiny", tiny, "models of 2 layers of width 64 in place of GPT-2 and Qwen2");
    return bench::run_program("bench_generate", app, o, argc, argv, [&](const bench::session& with) {
        with.report.note("work", "bytes: the parameters in the policy's type, once for each step of new tokens");
        for (const shape& s : shapes(tiny)) {
            if (const auto* const gpt = std::get_if<ht::nn::gpt_config>(&s.model)) {
                run_case<ht::nn::gpt<ht::amp_bf16>>(with, s, *gpt, "bf16", "bfloat16", 2);
                run_case<ht::nn::gpt<ht::full_fp32>>(with, s, *gpt, "fp32", "float32", 4);
            } else {
                const auto& qwen2 = std::get<ht::nn::llama_config>(s.model);
                run_case<ht::nn::llama<ht::pure_bf16>>(with, s, qwen2, "bf16", "bfloat16", 2);
            }
        }
    });
}
