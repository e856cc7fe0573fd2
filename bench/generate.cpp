// SPDX-License-Identifier: MIT
/// \file
/// Times greedy generation of GPTs with a key-value cache on the CPU: tokens a second of one text, and of eight at once.
///
///     bench_generate --json generate.json --torch python3        // compared with PyTorch, and with transformers where it is installed
///     bench_generate --tiny                                      // a small model: seconds
///
/// One run takes prompts of various lengths, around `prompt` tokens, and makes `new` tokens of each; weights are random.
/// PyTorch's contenders have their own caches and the weights in the type of the row. The rate counts the weights, which each
/// step reads once in the policy's type, the prompts' step as well; the peak is that of a copy.
#include <random>

#include <halftone/amp.hpp>

#include <support/program.hpp>

namespace {

namespace ht = halftone;
using ht::extent;
using ids = std::vector<std::int32_t>;

struct shape {
    const char* name;
    ht::nn::gpt_config model;
    extent batch, prompt, made;

    double parameters() const {
        const auto w = static_cast<double>(model.width);
        return static_cast<double>(model.vocabulary) * w + model.layers * (12 * w * w + 13 * w) + 2 * w;
    }
    double tokens() const { return static_cast<double>(batch * made); }
    std::string text() const {
        return std::string(name) + " B=" + std::to_string(batch) + " P=" + std::to_string(prompt) + " N=" + std::to_string(made);
    }
};

/// GPT-2 with its 50,257 tokens padded to 50,304; or a model of bytes.
std::vector<shape> shapes(bool tiny) {
    const ht::nn::gpt_config small{.vocabulary = 256, .context = 64, .layers = 2, .heads = 2, .width = 64},
        gpt2{.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768};
    if (tiny) return {{"2x64", small, 1, 8, 16}, {"2x64", small, 8, 8, 16}};
    return {{"GPT-2 124M", gpt2, 1, 64, 64}, {"GPT-2 124M", gpt2, 8, 64, 64}};
}

/// Prompts of `prompt` tokens, less up to a quarter of them.
std::vector<ids> prompts_of(const shape& s) {
    std::mt19937 engine(1);
    std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(s.model.vocabulary - 1));
    std::vector<ids> all;
    for (extent i = 0; i < s.batch; ++i) {
        all.emplace_back(static_cast<std::size_t>(s.prompt - i * s.prompt / (4 * s.batch)));
        for (auto& id : all.back()) id = any(engine);
    }
    return all;
}

template <class P>
void run_case(const bench::session& with, const shape& s, const char* policy, const char* dtype, double bytes) {
    const bench::case_name name{"generate", s.text(), policy};
    if (!with.report.wants(name)) return;
    const ht::nn::gpt<P> model{with.device, s.model};
    const auto prompts = prompts_of(s);
    ht::inference eval{with.device};
    std::vector<bench::contender> all;
    all.push_back(bench::local("halftone", [&] { model.generate(eval, prompts, {.max_new_tokens = s.made}); }));
    const auto& m = s.model;
    const bench::json work{{"layers", m.layers},   {"heads", m.heads}, {"width", m.width}, {"vocabulary", m.vocabulary},
                           {"context", m.context}, {"dtype", dtype},   {"new", s.made},    {"prompts", prompts}};
    for (const char* op : {"generate", "generate_transformers"}) {
        bench::json question = work;
        question["op"] = op;
        try {
            with.add_torch(all, question, std::string(op) == "generate" ? "torch" : "transformers");
        } catch (const std::runtime_error& e) {
            std::printf("  left out: %s\n", e.what());
        }
    }
    const auto timings = bench::compare(all, with.o);
    with.report.add(name, timings, static_cast<double>(s.made) * s.parameters() * bytes, "GB/s", with.peaks.copy_bytes,
                    "copy_bytes_per_second");
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
    app.add_flag("--tiny", tiny, "a model of 2 layers of width 64 in place of GPT-2");
    return bench::run_program("bench_generate", app, o, argc, argv, [&](const bench::session& with) {
        with.report.note("work", "bytes: the parameters in the policy's type, once for each step of new tokens");
        for (const shape& s : shapes(tiny)) {
            run_case<ht::amp_bf16>(with, s, "bf16", "bfloat16", 2);
            run_case<ht::full_fp32>(with, s, "fp32", "float32", 4);
        }
    });
}
