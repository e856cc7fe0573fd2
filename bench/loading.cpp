// SPDX-License-Identifier: MIT
/// \file
/// Loading a folder of transformers in bf16, a Llama of 1.24 billion parameters, into ht::nn::llama on the CPU: 2.5 GB.
///
///     bench_loading --json loading.json                                // some minutes, 2.5 GB of disk, 10 GB of memory
///     bench_loading --layers 2 --width 256 --vocabulary 1000           // small
///
/// The model has random weights, in one file. Timed, in turn: one thread that reads the file into new memory; constructing a model
/// that waits for weights (ht::defer_parameters) and loading these; and loading into a model that has values already. Files come from
/// the page cache, so that a disk has no part in it. Reported are the medians, and the medians of the rounds' ratios to reading.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <support/program.hpp>

#include <halftone/amp.hpp>
#include <halftone/io/pretrained/llama.hpp>

namespace {

namespace ht = halftone;
namespace fs = std::filesystem;
using bench::json;

struct settings : bench::options {
    int layers = 16;
    ht::extent width = 2048, intermediate = 8192, heads = 32, key_value_heads = 8, vocabulary = 128256;
    fs::path folder = "bench_loading_out";

    ht::nn::llama_config sizes() const {
        return {.vocab_size = vocabulary,
                .hidden_size = width,
                .intermediate_size = intermediate,
                .num_hidden_layers = layers,
                .num_attention_heads = heads,
                .num_key_value_heads = key_value_heads,
                .max_position_embeddings = 128,
                .tie_word_embeddings = true};
    }
    bench::case_name named(const char* kernel, const char* policy) const {
        return {kernel, std::to_string(layers) + "x" + std::to_string(width), policy};
    }
};

template <class F>
double milliseconds(const F& f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}
double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void read_file(const fs::path& file) {
    const ht::detail::input_file in(file);
    const auto size = static_cast<std::size_t>(in.size());
    const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
    in.read(bytes.get(), 0, size);
}

/// Times load() beside reading, as a row of the report.
template <class Load>
void tell(const bench::case_name& name, const settings& o, bench::report& report, const Load& load) {
    if (!report.wants(name)) return;
    const fs::path file = o.folder / "model.safetensors";
    read_file(file), load();
    std::vector<double> reading, loading, ratios;
    for (int i = 0; i < 2 * o.rounds + 1; ++i) {
        reading.push_back(milliseconds([&] { read_file(file); }));
        loading.push_back(milliseconds(load));
        ratios.push_back(loading.back() / reading.back());
    }
    std::printf("%s, %s: %.0f ms, reading the file %.0f ms: %.3f times as long\n", name.kernel.c_str(),
                name.policy.c_str(), median(loading), median(reading), median(ratios));
    std::fflush(stdout);
    report.add_row({{"kernel", name.kernel},
                    {"shape", name.shape},
                    {"policy", name.policy},
                    {"bytes", fs::file_size(file)},
                    {"load_ms", loading},
                    {"read_ms", reading},
                    {"times_reading", median(ratios)}});
}

template <class P>
void tell_policy(const char* policy, const settings& o, ht::cpu& device, bench::report& report) {
    tell(o.named("constructing and loading", policy), o, report, [&] {
        const ht::defer_parameters until_loaded{device};
        ht::nn::llama<P> model{device, o.sizes()};
        ht::load_pretrained(model, o.folder);
    });
    const bench::case_name again = o.named("loading again", policy);
    if (!report.wants(again)) return;
    const ht::defer_parameters until_loaded{device};
    ht::nn::llama<P> model{device, o.sizes()};
    tell(again, o, report, [&] { ht::load_pretrained(model, o.folder); });
}

void run(const settings& o, ht::cpu& device, bench::report& report) {
    report.note("protocol",
                "loading and reading the same file from the page cache in turn; a time of several is their median, and "
                "a ratio the "
                "median of the rounds' ratios");
    bool wants_any = false;
    for (const char* const kernel : {"constructing and loading", "loading again"}) {
        for (const char* const policy : {"pure_bf16", "amp_bf16"}) wants_any |= report.wants(o.named(kernel, policy));
    }
    if (!wants_any) return;
    if (fs::exists(o.folder))
        throw ht::error(o.folder.string() + " exists; name another --folder, which is removed at the end");
    struct removed {
        fs::path folder;
        ~removed() {
            std::error_code ignored;
            fs::remove_all(folder, ignored);
        }
    } const at_the_end{o.folder};
    {
        const ht::nn::llama<ht::pure_bf16> random{device, o.sizes(), 1};
        ht::save_pretrained(random, o.folder);
        std::printf("%zu parameters\n", random.parameters().size());
        report.note("parameters", random.parameters().size());
    }
    tell_policy<ht::pure_bf16>("pure_bf16", o, device, report);
    tell_policy<ht::amp_bf16>("amp_bf16", o, device, report);
}

}  // namespace

int main(int argc, char** argv) {
    settings o;
    o.rounds = 3;
    CLI::App app{"Times loading a Llama's folder, beside reading its file."};
    app.option_defaults()->always_capture_default();
    app.add_option("--layers", o.layers)->check(CLI::Range(1, 1000));
    app.add_option("--width", o.width);
    app.add_option("--intermediate", o.intermediate);
    app.add_option("--heads", o.heads);
    app.add_option("--key-value-heads", o.key_value_heads);
    app.add_option("--vocabulary", o.vocabulary);
    app.add_option("--folder", o.folder, "a folder for the model, which must not exist and is removed at the end");
    return bench::run_cases("bench_loading", app, o, argc, argv,
                            [&](ht::cpu& device, bench::report& report) { run(o, device, report); });
}
