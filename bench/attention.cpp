// SPDX-License-Identifier: MIT
/// \file
/// Times attention on the CPU, compared with PyTorch's scaled_dot_product_attention, forward and backward, in GFLOP/s and as a
/// fraction of the peak from registers.
///
///     bench_attention --json attention.json --torch python3 --filter causal
///     bench_attention --plan 1x1024x12x64 --device sm_90a      which kernels a GPU takes, and why; times nothing, needs no GPU
///
/// q, k and v are slices of one (batch, time, 3, heads, head_size) buffer, as a model's projection writes them; o and
/// its gradient are (batch, time, heads, head_size). PyTorch gets the same layout. The forward pass also computes the
/// logsumexp, as training needs it; the backward pass is timed without the forward pass.
///
/// Operations are counted as 4 batch heads head_size for each pair of a query and a key that it sees on average
/// (causal: half of queries x keys) forward, and 2.5 times as many backward; recomputing the scores there is not
/// counted.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <support/plans.hpp>
#include <support/program.hpp>
#include <support/random.hpp>

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/kernel/attention/device/explain.hpp>
#include <halftone/number.hpp>
#include <halftone/policy.hpp>

namespace {

namespace ht = halftone;
using ht::extent;

struct shape {
    extent batch, length, heads, groups, size;
    bool causal;
    std::vector<extent> sequences{};  ///< packed, in a batch of 1; `length` is their sum

    std::string name() const {
        std::string all = std::to_string(batch) + "x" + std::to_string(length) + " " + std::to_string(heads) +
                          (groups == heads ? "" : "/" + std::to_string(groups)) + "x" + std::to_string(size);
        if (!sequences.empty()) all += " packed " + std::to_string(sequences.size());
        return all + (causal ? " causal" : " full");
    }
    /// The operations of the forward pass.
    double operations() const {
        double pairs = 0;
        for (const extent n : sequences) pairs += static_cast<double>(n) * static_cast<double>(n);
        if (sequences.empty())
            pairs = static_cast<double>(batch) * static_cast<double>(length) * static_cast<double>(length);
        return 4 * pairs * static_cast<double>(heads * size) * (causal ? 0.5 : 1);
    }
};

/// The shapes that have targets; those of GPT-2's training at short lengths; other numbers of heads.
std::vector<shape> shapes() {
    std::vector<shape> all;
    for (const bool causal : {true, false}) {
        for (const extent length : {256, 1024, 4096}) all.push_back({1, length, 12, 12, 64, causal});
    }
    all.push_back({4, 64, 12, 12, 64, true});
    all.push_back({16, 128, 12, 12, 64, true});
    all.push_back({16, 256, 6, 6, 64, true});
    for (const extent size : {32, 96, 128}) all.push_back({1, 1024, 12, 12, size, true});
    all.push_back({1, 1024, 12, 2, 64, true});
    all.push_back({1, 1000, 12, 12, 64, true});
    all.push_back({1, 2048, 12, 12, 64, true, {700, 30, 400, 250, 1, 150, 100, 300, 117}});
    return all;
}
std::vector<shape> few_shapes() {
    std::vector<shape> all;
    for (const bool causal : {true, false}) {
        for (const extent length : {256, 1024}) all.push_back({1, length, 12, 12, 64, causal});
    }
    return all;
}

/// The memory of one problem, and the code that runs on it.
template <class T>
struct problem {
    explicit problem(const shape& s)
        : row((s.heads + 2 * s.groups) * s.size),
          qkv(bench::random_values<T>(s.batch * s.length * row, 1)),
          d_qkv(qkv.size()),
          o(static_cast<std::size_t>(s.batch * s.length * s.heads * s.size)),
          d_o(bench::random_values<T>(s.batch * s.length * s.heads * s.size, 2)),
          logsumexp(static_cast<std::size_t>(2 * s.batch * s.heads * s.length)),
          offsets(1) {
        extent longest = 0;
        for (const extent n : s.sequences) {
            offsets.push_back(offsets.back() + static_cast<std::int32_t>(n));
            longest = std::max(longest, n);
        }
        const auto slice = [&](T* from, extent first, extent heads) {
            return ht::view<T, 4>(from + first * s.size, {s.batch, s.length, heads, s.size},
                                  {s.length * row, row, s.size, 1});
        };
        const auto three = [&](T* from) {
            return std::array{slice(from, 0, s.heads), slice(from, s.heads, s.groups),
                              slice(from, s.heads + s.groups, s.groups)};
        };
        const ht::view<T, 4> result(o.data(), {s.batch, s.length, s.heads, s.size}), slope(d_o.data(), result.shape());
        const ht::view<float, 4> sums(logsumexp.data(), {s.batch, s.heads, s.length, 2});
        const ht::attention_options options{.mask = s.causal ? ht::attention_mask::causal : ht::attention_mask::full};
        ht::packed_sequences sequences;
        if (longest > 0)
            sequences = ht::packed_sequences::of({offsets.data(), {static_cast<extent>(offsets.size())}}, longest);
        const auto x = three(qkv.data()), dx = three(d_qkv.data());
        forward = {x[0], x[1], x[2], result, sums, options, sequences};
        backward = {x[0], x[1], x[2], result, sums, slope, dx[0], dx[1], dx[2], options, sequences};
    }
    problem(const problem&) = delete;
    problem& operator=(const problem&) = delete;

    extent row;
    bench::values<T> qkv, d_qkv, o, d_o;
    bench::values<float> logsumexp;
    std::vector<std::int32_t> offsets;
    ht::kernel::attention_forward<T> forward;
    ht::kernel::attention_backward<T> backward;
};

template <class P, class T>
class runner {
  public:
    runner(const bench::session& with, const char* policy, const char* dtype)
        : with_(with), policy_(policy), dtype_(dtype) {}

    /// With a function of the scores, causal: PyTorch has it as flex_attention, compiled, and as a mask that is stored.
    template <class... F>
    void run_with(const char* function, const shape& s, const F&... f) {
        problem<T> p(s);
        const auto& x = p.forward;
        const auto forward = [&](auto& d) {
            ht::attention<P>(d, x.q, x.k, x.v, x.o, x.logsumexp, x.options, f...);
        };
        const auto backward = [&](auto& d) { ht::attention_gradients<P>(d, p.backward, f...); };
        forward(with_.device);
        const double seen = std::string(function) == "window" ? 2.0 * window / static_cast<double>(s.length) : 1;
        for (const bool is_forward : {true, false}) {
            const bench::case_name name{std::string("attention ") + (is_forward ? "forward " : "backward ") + function, s.name(),
                                        policy_};
            if (!with_.report.wants(name)) continue;
            std::vector<bench::contender> all{bench::local("halftone", [&] {
                if (is_forward) {
                    forward(with_.device);
                } else {
                    backward(with_.device);
                }
            })};
            for (const char* peer : {"flex_attention", "masked_attention"}) {
                if (with_.torch == nullptr || (!is_forward && std::string(peer) == "flex_attention")) continue;
                try {
                    with_.add_torch(all, {{"op", peer}, {"dtype", dtype_}, {"pass", is_forward ? "forward" : "backward"},
                                          {"batch", s.batch}, {"length", s.length}, {"heads", s.heads}, {"size", s.size},
                                          {"function", function}, {"window", window}},
                                    peer);
                } catch (const std::runtime_error& e) {
                    std::printf("  left out: %s: %s\n", peer, e.what());
                }
            }
            with_.tell_operations<T>(name, all, (is_forward ? 1 : 2.5) * seen * s.operations());
        }
    }
    static constexpr int window = 256;

    void run(const shape& s) {
        problem<T> p(s);
        const auto forward = [&](auto& d) {
            ht::attention<P>(d, p.forward.q, p.forward.k, p.forward.v, p.forward.o, p.forward.logsumexp,
                             p.forward.options, p.forward.sequences);
        };
        const auto backward = [&](auto& d) { ht::attention_gradients<P>(d, p.backward); };
        forward(with_.device);  // results that backward reads
        time("attention forward", s, "forward", s.operations(), forward);
        time("attention backward", s, "backward", 2.5 * s.operations(), backward);
    }

  private:
    template <class Run>
    void time(const char* kernel, const shape& s, const char* pass, double operations, const Run& run) {
        const bench::case_name name{kernel, s.name(), policy_};
        if (!with_.report.wants(name)) return;
        std::vector<bench::contender> all{bench::local("halftone", [&] { run(with_.device); })};
        if (with_.torch != nullptr) {
            all.push_back(with_.torch->contender("torch", {{"op", "attention"},
                                                      {"dtype", dtype_},
                                                      {"pass", pass},
                                                      {"batch", s.batch},
                                                      {"length", s.length},
                                                      {"heads", s.heads},
                                                      {"groups", s.groups},
                                                      {"size", s.size},
                                                      {"causal", s.causal},
                                                      {"sequences", s.sequences}}));
        }
        with_.tell_operations<T>(name, all, operations);
    }

    const bench::session& with_;
    const char *policy_, *dtype_;
};

/// Functions of scores: ALiBi, a sliding window, a soft cap.
template <class P, class T>
void run_functions(runner<P, T>& with) {
    constexpr int heads = 12;
    float slopes[heads];
    for (int head = 0; head < heads; ++head) slopes[head] = std::exp2(-8.0f * static_cast<float>(head + 1) / heads);
    const auto slope = ht::lookup(ht::const_view<float, 1>(slopes, {heads}));
    for (const extent length : {1024, 4096}) {
        const shape s{1, length, heads, heads, 64, true};
        with.run_with("alibi", s, [slope](auto score, auto head, auto query, auto key) {
            return score + slope(head) * (key - query);
        });
        with.run_with("window", s, ht::sliding_window{runner<P, T>::window});
        with.run_with("cap", s, ht::soft_cap{30});
    }
}

/// The batch, the length, the heads and their size that "1x1024x12x64" names; empty if `text` names none.
std::vector<extent> numbers_of(const std::string& text) {
    const std::vector<extent> n = bench::numbers_named(text, 4, 999999999);
    if (n.empty()) return n;
    // The number of scores is an int64.
    const double scores =
        static_cast<double>(n[0]) * static_cast<double>(n[1]) * static_cast<double>(n[1]) * static_cast<double>(n[2]);
    return scores > 0x1p60 ? std::vector<extent>{} : n;
}
/// The GPU's plans that --plan and --device ask for.
void print_gpu_plans(const bench::gpu_options& gpu) {
    using namespace ht::kernel::on_device;
    const std::vector<extent> n = numbers_of(gpu.shape);
    for (const attention_types& t : named_attention_types) {
        if (!gpu.wants(t.name)) continue;
        for (const attention_pass pass : {attention_pass::forward, attention_pass::backward}) {
            std::printf("%s, %s, %s, %s\n%s", t.name, gpu.device.c_str(), gpu.shape.c_str(),
                        pass == attention_pass::forward ? "forward" : "backward",
                        explain_plan(dense_case(n[0], n[1], n[2], n[3], t, gpu.target(), pass)).c_str());
        }
    }
}
/// --plan, --device and --types.
void add_gpu_options(CLI::App& app, bench::gpu_options& gpu) {
    CLI::Option* const plan =
        app.add_option("--plan", gpu.shape,
                       "measures nothing, but prints which kernels a GPU takes for batch x time x heads x head_size, "
                       "given as 1x1024x12x64")
            ->check([](const std::string& text) {
                return numbers_of(text).empty()
                           ? "expected batch, time, heads and head_size, as 1x1024x12x64, not " + text
                           : std::string();
            });
    plan->needs(gpu.add(app, plan, ht::kernel::on_device::named_attention_types));
}

/// Prints scratch memory against length, which shows that it is linear.
void tell_memory(ht::cpu& device, bench::report& report) {
    bench::json rows = bench::json::array();
    for (extent length = 256; length <= 65536; length *= 4) {
        const ht::shape<4> of_x{1, length, 12, 64};
        const ht::view<ht::bfloat16, 4> x(nullptr, of_x);
        const ht::view<float, 4> sums(nullptr, {1, 12, length, 2});
        const ht::attention_options options{.mask = ht::attention_mask::causal};
        const auto forward =
            ht::workspace_bytes(device, [&](auto& d) { ht::attention<ht::amp_bf16>(d, x, x, x, x, sums, options); });
        const auto backward = ht::workspace_bytes(device, [&](auto& d) {
            ht::attention_gradients<ht::amp_bf16>(
                d, ht::kernel::attention_backward<ht::bfloat16>{x, x, x, x, sums, x, x, x, x, options});
        });
        rows.push_back({{"length", length},
                        {"forward_bytes", forward},
                        {"backward_bytes", backward},
                        {"stored_scores_bytes", 12 * length * length * 2}});
        std::printf(
            "scratch at length %5lld: forward %8.2f MB, backward %8.2f MB; 12 heads of scores in bf16 %9.2f MB\n",
            static_cast<long long>(length), static_cast<double>(forward) / 1e6, static_cast<double>(backward) / 1e6,
            static_cast<double>(12 * length * length * 2) / 1e6);
    }
    report.note("scratch_bytes", rows);
}

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    CLI::App app{"Times attention on the CPU, compared with PyTorch."};
    bench::gpu_options gpu;
    add_gpu_options(app, gpu);
    app.final_callback([&] {  // known before the peaks are measured, which takes seconds
        if (gpu.shape.empty()) return;
        bench::refuse_beside_plan(app, {"--plan", "--device", "--types"});
        print_gpu_plans(gpu);
        throw CLI::Success();
    });
    return bench::run_program("bench_attention", app, o, argc, argv, [&](const bench::session& s) {
        s.report.note(
            "operations",
            "4 batch heads head_size queries keys forward, half of it under a causal mask; 2.5 times as many backward");
        tell_memory(s.device, s.report);
        runner<ht::amp_bf16, ht::bfloat16> bf16(s, "bf16", "bfloat16");
        runner<ht::full_fp32, float> fp32(s, "fp32", "float32");
        runner<ht::amp_fp16, ht::float16> fp16(s, "fp16", "float16");
        for (const shape& each : shapes()) bf16.run(each);
        for (const shape& each : few_shapes()) fp32.run(each);
        for (const shape& each : few_shapes()) fp16.run(each);
        run_functions(bf16);
        run_functions(fp32);
    });
}
