// SPDX-License-Identifier: MIT
/// \file
/// Times the whole training step of a GPT on the CPU: forward, loss, backward, clipping by norm, AdamW with fp32
/// masters.
///
///     bench_train_step --json step.json --torch python3 --llmc ./llmc_step        // compared with PyTorch and llm.c
///     bench_train_step --growth --json growth.json                                // seconds a step for various sizes,
///     bench/growth_plot.py growth.json -o growth.svg                           // and a plot of them
///     bench_train_step --stream narrow                                            // the stream in bf16, here and in PyTorch
///     bench_train_step --stream both                                              // both streams in turn, here and in PyTorch
///     bench_train_step --tiny                                                     // a small model: seconds
///
/// A step's operations are counted as 6 N + 6 L C T a token: N parameters without the position table, L layers, width
/// C, length T; attention is causal, and what the backward pass recomputes does not count. The fraction is of the peak
/// from registers in the same run. After each case it prints where halftone's step spends its time.
#include <cmath>
#include <optional>
#include <random>

#include <halftone/amp.hpp>

#include <support/program.hpp>
#include <support/child.hpp>
#include <support/regions.hpp>

namespace {

namespace ht = halftone;
using ht::extent;

struct shape {
    const char* name;
    ht::nn::gpt_config model;
    extent batch, length;

    double parameters() const {
        const auto w = static_cast<double>(model.width);
        return static_cast<double>(model.vocabulary) * w + model.layers * (12 * w * w + 13 * w) + 2 * w;
    }
    double tokens() const { return static_cast<double>(batch * length); }
    double operations() const {
        return tokens() * (6 * parameters() + 6.0 * model.layers * static_cast<double>(model.width * length));
    }
    std::string text() const { return std::string(name) + " B=" + std::to_string(batch) + " T=" + std::to_string(length); }
};

ht::nn::gpt_config gpt(int layers, extent heads, extent width, extent vocabulary, extent context) {
    return {.vocabulary = vocabulary, .context = context, .layers = layers, .heads = heads, .width = width};
}

/// GPT-2 with its 50,257 tokens padded to 50,304, and a small model of bytes; or a tiny one.
std::vector<shape> shapes(bool tiny) {
    if (tiny) return {{"2x64", gpt(2, 2, 64, 256, 64), 2, 32}};
    return {{"GPT-2 124M", gpt(12, 12, 768, 50304, 1024), 4, 64},
            {"GPT-2 124M", gpt(12, 12, 768, 50304, 1024), 1, 1024},
            {"6x384", gpt(6, 6, 384, 256, 256), 16, 256}};
}

/// A model with everything that its steps need, on one batch of random tokens.
template <class P>
class training {
    struct batch_view {
        ht::const_view<std::int32_t, 2> tokens, targets;
    };

  public:
    training(ht::cpu& device, const shape& s) : device_(device), model_(device, s.model) {
        std::mt19937 engine(1);
        std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(s.model.vocabulary - 1));
        for (auto* ids : {&tokens_, &targets_}) {
            ids->resize(static_cast<std::size_t>(s.batch * s.length));
            for (auto& id : *ids) id = any(engine);
        }
        batch_ = {{tokens_.data(), {s.batch, s.length}}, {targets_.data(), {s.batch, s.length}}};
    }

    float step(ht::range_listener* listener = nullptr) {
        tape_.listen(listener);
        float value;
        {
            const auto loss = model_.loss(tape_, batch_);
            tape_.backward(loss, acc_);
            value = loss.item();
        }
        auto grads = acc_.take();
        {
            const ht::range here(listener, "gradient norm", ht::pass::update);
            ht::clip_grad_norm(device_, grads, 1.0f);
        }
        const ht::range here(listener, "adamw", ht::pass::update);
        optimizer_.step(grads);
        return value;
    }
    const ht::memory_usage& usage() const { return device_.memory().usage(); }

  private:
    using model_type = ht::nn::gpt<P>;
    ht::cpu& device_;
    model_type model_;
    ht::adamw<ht::cpu, model_type> optimizer_{device_, model_, {.lr = 3e-4, .weight_decay = 0.1}};
    ht::accumulator<ht::unscaled_t, ht::types<model_type>> acc_{model_, ht::unscaled};
    ht::tape<ht::cpu> tape_{device_};
    std::vector<std::int32_t> tokens_, targets_;
    batch_view batch_;
};

/// amp_bf16 with its residual stream in bf16, as it was before presets had the role `stream`.
using narrow_bf16 = ht::with_stream<ht::amp_bf16, ht::bfloat16>;

struct settings : bench::options {
    std::string llmc, growth, stream = "preset";
    int profiled = 3;

    bool is_narrow() const { return stream == "narrow"; }
    bool has_both() const { return stream == "both"; }
};

double in_mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// Adds PyTorch's step, eager and compiled, in a dtype and with the embeddings cast to bf16 or not.
void add_torch_steps(const bench::session& with, std::vector<bench::contender>& all, const shape& s, const char* dtype, bool narrow,
                     const char* suffix) {
    const auto& m = s.model;
    for (const bool compiled : {false, true}) {
        with.add_torch(all,
                       {{"op", "train_step"}, {"layers", m.layers}, {"heads", m.heads}, {"width", m.width}, {"vocabulary", m.vocabulary},
                        {"context", m.context}, {"batch", s.batch}, {"length", s.length}, {"dtype", dtype}, {"compiled", compiled},
                        {"narrow_stream", narrow}},
                       std::string(compiled ? "torch compiled" : "torch eager") + suffix);
        if (with.torch != nullptr) all.back().run(2);  // compiles
    }
}

template <class P>
void run_case(const settings& o, const bench::session& with, bench::plain_peer* llmc, const shape& s, const char* policy,
              const char* dtype) {
    bench::report& report = with.report;
    const bench::peaks& peaks = with.peaks;
    const bench::case_name name{"train_step", s.text(), policy};
    if (!report.wants(name)) return;
    bench::regions executor(o.threads);
    ht::cpu device{{.executor = &executor}};
    training<P> ours(device, s);
    std::vector<bench::contender> all;
    all.push_back(bench::local("halftone", [&] { ours.step(); }));
    const bool pairs = std::string(dtype) == "bfloat16", both = o.has_both() && pairs;
    ht::cpu narrow_device{{.executor = &executor}};
    std::optional<training<narrow_bf16>> narrow;
    if (both) {
        narrow.emplace(narrow_device, s);
        all.push_back(bench::local("halftone, bf16 stream", [&] { narrow->step(); }));
    }
    add_torch_steps(with, all, s, dtype, std::is_same_v<P, narrow_bf16>, "");
    if (both && with.peers_have_bf16()) add_torch_steps(with, all, s, dtype, true, ", bf16 stream");
    if (llmc != nullptr) {
        const auto& m = s.model;
        all.push_back(llmc->contender("llm.c", {{"layers", m.layers}, {"heads", m.heads}, {"width", m.width}, {"vocabulary", m.vocabulary},
                                                {"context", m.context}, {"batch", s.batch}, {"length", s.length}}));
    }
    const auto timings = bench::compare(all, o);
    report.add(name, timings, s.operations(), "GFLOP/s", pairs ? peaks.bf16 : peaks.fp32, pairs ? "peak_bf16_flops" : "peak_fp32_flops");
    bench::json peaks_of_memory = {{"kernel", "train_step peak bytes"}, {"shape", name.shape}, {"policy", policy}, {"halftone", ours.usage().peak()}};
    if (both) peaks_of_memory["halftone, bf16 stream"] = narrow->usage().peak();
    report.add_row(peaks_of_memory);
    std::printf("  %.1f ms a step, %.0f tokens/s, %.0f MiB at most%s\n", timings[0].seconds * 1e3, s.tokens() / timings[0].seconds, in_mib(ours.usage().peak()),
                both ? (" (" + std::to_string(std::lround(in_mib(narrow->usage().peak()))) + " with a bf16 stream)").c_str() : "");
    for (std::size_t c = 1; c < timings.size(); ++c)
        std::printf("  %.1f ms: %s\n", timings[c].seconds * 1e3, timings[c].engine.c_str());
    std::fflush(stdout);
    if (with.torch != nullptr) with.torch->clear();
    if (o.profiled <= 0) return;

    bench::breakdown parts(executor);
    ours.step(&parts);
    parts.clear();
    executor.watch(true);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < o.profiled; ++i) ours.step(&parts);
    const double seconds = bench::seconds_since(begin);
    executor.watch(false);
    auto row = parts.print(o.profiled, seconds);
    row["kernel"] = "train_step parts";
    row["shape"] = name.shape;
    row["policy"] = policy;
    report.add_row(row);
}

/// The exponent of a power law of seconds over sizes: the slope of the least-squares line through their logarithms.
double slope(const std::vector<double>& sizes, const std::vector<double>& seconds) {
    double n = static_cast<double>(sizes.size()), x = 0, y = 0, xx = 0, xy = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const double a = std::log(sizes[i]), b = std::log(seconds[i]);
        x += a, y += b, xx += a * a, xy += a * b;
    }
    return (n * xy - x * y) / (n * xx - x * x);
}

/// Seconds per step as a function of one size at a time, compared with the time that the peaks allow: operations at the peak from registers,
/// then 34 bytes a parameter (gradients read for their norm, and 30 in the update) at the rate of a copy.
class growth {
  public:
    growth(const settings& o, bench::report& report, const bench::peaks& peaks) : options_(o), report_(report), peaks_(peaks) {}

    void run() {
        std::vector<point> all;
        for (const auto& [layers, width] : std::vector<std::pair<int, extent>>{{4, 128}, {4, 256}, {6, 384}, {10, 512}, {12, 768}, {24, 768}, {24, 1088}})
            all.push_back({{"", gpt(layers, width / 64, width, 256, 128), 4, 128}, options_.threads, 0});
        for (auto& p : all) p.size = p.model.parameters();
        series("parameters", "parameters, B=4 T=128", all);
        all.clear();
        for (extent length = 128; length <= 8192; length *= 2)
            all.push_back({{"", gpt(6, 6, 384, 256, length), 1, length}, options_.threads, static_cast<double>(length)});
        series("length", "length, 6x384, B=1", all);
        all.clear();
        for (extent batch = 1; batch <= 64; batch *= 2)
            all.push_back({{"", gpt(6, 6, 384, 256, 128), batch, 128}, options_.threads, static_cast<double>(batch)});
        series("micro-batch", "micro-batch, 6x384, T=128", all);
        all.clear();
        for (int threads = 1; threads <= options_.threads; threads *= 2)
            all.push_back({{"", gpt(6, 6, 384, 256, 256), 16, 256}, threads, static_cast<double>(threads)});
        series("threads", "threads, 6x384, B=16 T=256", all);
    }

  private:
    struct point {
        shape model;
        int threads;
        double size;
    };

    /// The median time of some steps after the first.
    template <class P>
    double seconds_under(const point& p) const {
        ht::cpu device{{.threads = p.threads}};
        training<P> ours(device, p.model);
        ours.step();
        std::vector<double> samples;
        double spent = 0;
        while (samples.size() < 5 || (spent < options_.seconds && samples.size() < 100)) {
            const auto begin = std::chrono::steady_clock::now();
            ours.step();
            samples.push_back(bench::seconds_since(begin));
            spent += samples.back();
        }
        return bench::quantile(samples, 0.5);
    }
    double seconds_of(const point& p) const {
        return options_.is_narrow() ? seconds_under<narrow_bf16>(p) : seconds_under<ht::amp_bf16>(p);
    }
    void series(const char* name, const char* title, const std::vector<point>& points) {
        if (!report_.wants({"growth", name, "bf16"})) return;
        std::vector<double> sizes, seconds, allowed;
        std::printf("%s\n%14s %12s %12s %9s\n", title, name, "s a step", "peaks allow", "share");
        for (const point& p : points) {
            const double share = static_cast<double>(p.threads) / options_.threads;
            sizes.push_back(p.size);
            allowed.push_back(p.model.operations() / (peaks_.bf16 * share) + 34 * p.model.parameters() / peaks_.copy_bytes);
            seconds.push_back(seconds_of(p));
            std::printf("%14.6g %12.4g %12.4g %8.0f%%\n", p.size, seconds.back(), allowed.back(), 100 * allowed.back() / seconds.back());
            std::fflush(stdout);
        }
        const double measured = sizes.size() > 1 ? slope(sizes, seconds) : 0, expected = sizes.size() > 1 ? slope(sizes, allowed) : 0;
        std::printf("exponent %.2f, expected %.2f\n\n", measured, expected);
        report_.add_row({{"kernel", "growth"}, {"shape", name}, {"policy", "bf16"}, {"title", title}, {"sizes", sizes}, {"seconds", seconds},
                         {"allowed", allowed}, {"exponent", measured}, {"expected_exponent", expected}});
    }

    const settings& options_;
    bench::report& report_;
    const bench::peaks& peaks_;
};

}  // namespace

int main(int argc, char** argv) {
    settings o;
    o.rounds = 5;
    bool grows = false, tiny = false;
    CLI::App app{"Times whole training steps of GPTs on the CPU, compared with PyTorch and llm.c."};
    app.add_option("--llmc", o.llmc, "the program built from bench/peers/llmc_step.c, for a comparison in the first case");
    app.add_option("--profile", o.profiled, "number of steps whose time is divided among their parts")->check(CLI::Range(0, 1000))->capture_default_str();
    app.add_option("--stream", o.stream,
                   "the residual stream of bf16 cases: preset, that of amp_bf16, fp32; narrow, bf16, with PyTorch's embeddings cast to bf16; both in turn")
        ->check(CLI::IsMember({"preset", "narrow", "both"}))
        ->capture_default_str();
    app.add_flag("--growth", grows, "instead: seconds per step as a function of parameters, length, micro-batch and threads");
    app.add_flag("--tiny", tiny, "a model of 2 layers of width 64 in place of the others");
    return bench::run_program("bench_train_step", app, o, argc, argv, [&](const bench::session& with) {
        with.report.note("operations", "a token: 6 N + 6 L C T; N parameters without the position table, L layers, C width, T length");
        with.report.note("stream", o.is_narrow() ? "bf16" : o.has_both() ? "fp32, and bf16 where a contender's name says so" : "fp32");
        if (grows) {
            growth(o, with.report, with.peaks).run();
            return;
        }
        std::unique_ptr<bench::plain_peer> llmc;
        if (!o.llmc.empty()) llmc = std::make_unique<bench::plain_peer>(o.llmc, o.threads);
        for (const shape& s : shapes(tiny)) {
            const bool first = s.length == 64;
            auto* const peer = first ? llmc.get() : nullptr;
            if (o.is_narrow()) {
                run_case<narrow_bf16>(o, with, peer, s, "bf16", "bfloat16");
            } else {
                run_case<ht::amp_bf16>(o, with, peer, s, "bf16", "bfloat16");
            }
        }
        for (const shape& s : shapes(tiny)) run_case<ht::full_fp32>(o, with, nullptr, s, "fp32", "float32");
    });
}
