// SPDX-License-Identifier: MIT
/// \file
/// Times products on the CPU, compared with oneDNN, OpenBLAS and PyTorch, in GFLOP/s and as a fraction of the peak from
/// registers.
///
///     bench_matmul --json matmul.json --torch python3 --filter bf16
///     bench_matmul --shape 256x2304x768 --shape 1x768x768       only these, in all types
///     bench_matmul --plan 256x2304x768              how that product is cut, by each instruction set here; times nothing
///     bench_matmul --plan 256x2304x768 --device sm_90a --types bf16 --layout nt      the same on a GPU, without one
///
/// Operands are row-major, and packing is part of each run, as in a step whose activations are new. Peers are linked if
/// they are found (oneDNN, OpenBLAS); PyTorch is run if --torch names a Python that has it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <support/plans.hpp>
#include <support/program.hpp>
#include <support/random.hpp>

#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/matmul/cpu/explain.hpp>
#include <halftone/kernel/matmul/device/explain.hpp>
#include <halftone/number.hpp>
#include <halftone/policy.hpp>

#if defined(BENCH_ONEDNN)
#include <dlfcn.h>

#include <dnnl.hpp>
#endif
#if defined(BENCH_OPENBLAS)
#include <cblas.h>
#endif

namespace {

namespace ht = halftone;
using ht::extent;

struct shape {
    extent m, n, k;
    bool ta = false, tb = false;  ///< that operand is stored transposed
    std::string what = {};
    extent offset = 0;  ///< distance of operands and result from a cache line, in bytes
};

/// The squares and GPT-2's layers with their two gradients: y = x w, dx = dy w^T, dw = x^T dy.
std::vector<shape> shapes(bool quick) {
    std::vector<shape> all;
    for (extent n : {256, 512, 1024, 2048, 4096}) {
        if (quick && n > 2048) continue;
        all.push_back({n, n, n});
    }
    for (extent rows : {256, 1024, 8192}) {
        if (quick && rows != 1024) continue;
        for (const auto& [k, n] :
             {std::pair<extent, extent>{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50304}}) {
            if (rows == 8192 && n == 50304) continue;  // the logits take 0.8 GB, for each contender
            all.push_back({rows, n, k});
            all.push_back({rows, k, n, false, true, " dx"});
            all.push_back({k, n, rows, true, false, " dw"});
        }
    }
    return all;
}
/// Extents that are multiples of no block size.
std::vector<shape> odd_shapes() {
    return {{256, 50304, 768},  {256, 50257, 768}, {1024, 1024, 1024}, {1024, 1024, 1023},
            {1021, 1019, 1013}, {1, 768, 768},     {4, 768, 768},      {16, 3072, 768},
            {1, 2304, 768, false, true, " w^T"}, {4, 2304, 768, false, true, " w^T"},
            {1, 50257, 768, false, true, " w^T"},
            {1024, 64, 1024},   {64, 1024, 64},    {1024, 1024, 16},  {1024, 16, 768},   {256, 16, 3072}};
}
/// Operands and results that are not aligned to a cache line: off by one element, and by the alignment of operator new,
/// 16 or 32 bytes. In these rows `halftone_aligned` is the same product with aligned operands.
std::vector<shape> offset_shapes(extent element) {
    std::vector<shape> all;
    for (const auto& [m, n, k] : {std::array<extent, 3>{512, 512, 512}, {1024, 3072, 768}, {256, 50304, 768}, {4, 3072, 768}}) {
        for (extent offset : {element, extent{16}, extent{32}}) {
            const std::string off = " off by " + std::to_string(offset) + " bytes";
            all.push_back({m, n, k, false, false, off, offset});
            all.push_back({m, n, k, false, true, " dx" + off, offset});
            all.push_back({m, n, k, true, false, " dw" + off, offset});
        }
    }
    return all;
}

/// Prints the plan of a product of row-major operands of T under P.
template <class P, class T>
void print_plan(const ht::cpu& device, const char* policy, const shape& s) {
    using compute = ht::unscaled_compute<ht::resolve<P>>;
    using namespace ht::detail;
    // What plans look at has no values.
    const untyped_a a(ht::view<const T, 2>(nullptr, {s.m, s.k}), matmul_packing_of_a<compute, T>(device));
    const untyped_b b(ht::view<const T, 2>(nullptr, {s.k, s.n}), matmul_packing_of_b<compute, T>(device));
    const std::string set(ht::name(device.instruction_set()));
    std::printf("%s, %s, %lld x %lld x %lld, %d threads\n%s", policy, set.c_str(), static_cast<long long>(s.m),
                static_cast<long long>(s.n), static_cast<long long>(s.k), device.threads(),
                explain_plan(problem_of(matmul_unit_for<compute>(device), device, a, b)).c_str());
}
/// For every instruction set of this processor.
void print_plans(const shape& s, int threads) {
    for (const ht::isa set : ht::every_isa) {
        if (!ht::supports(set)) continue;
        const ht::cpu device{{.threads = threads, .instruction_set = set}};
        print_plan<ht::full_fp32, float>(device, "fp32", s);
        print_plan<ht::amp_bf16, ht::bfloat16>(device, "bf16", s);
        print_plan<ht::amp_fp16, ht::float16>(device, "fp16", s);
        if (set == ht::isa::amx) print_plan<ht::split_fp32, float>(device, "split_fp32", s);
    }
}

/// The GPU's plans that --plan and --device ask for.
void print_gpu_plans(const bench::gpu_options& gpu, const shape& s, const std::string& layout) {
    using namespace ht::kernel::on_device;
    for (const matmul_types& t : named_types) {
        if (!gpu.wants(t.name)) continue;
        const matmul_problem p = dense_problem(s.m, s.n, s.k, t, gpu.target(), {layout[0] == 't', layout[1] == 't'});
        std::printf("%s, %s, %lld x %lld x %lld %s, %d multiprocessors\n%s", t.name, gpu.device.c_str(),
                    static_cast<long long>(s.m), static_cast<long long>(s.n), static_cast<long long>(s.k),
                    layout.c_str(), p.gpu.multiprocessors, explain_plan(p).c_str());
    }
}

/// The shape that "256x2304x768" names.
std::optional<shape> shape_named(const std::string& text) {
    const std::vector<extent> n = bench::numbers_named(text, 3, 1 << 20);  // products of three are int64
    if (n.empty()) return std::nullopt;
    return shape{n[0], n[1], n[2]};
}

#if defined(BENCH_ONEDNN)
/// Sets the number of threads of the OpenMP runtime with which oneDNN was built.
void set_openmp_threads(int threads) {
    if (void* const function = dlsym(RTLD_DEFAULT, "omp_set_num_threads"))
        reinterpret_cast<void (*)(int)>(function)(threads);
}

/// oneDNN's matmul primitive over the same row-major memory; empty if oneDNN has no such product on this processor,
/// such as bfloat16 without AVX-512.
template <class T>
std::optional<bench::contender> onednn(const shape& s, const T* a, const T* b) {
    using tag = dnnl::memory::format_tag;
    constexpr auto type = std::is_same_v<T, float> ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
    struct state {
        dnnl::engine engine{dnnl::engine::kind::cpu, 0};
        dnnl::stream stream{engine};
        bench::values<T> c;
        dnnl::memory from_a, from_b, to;
        dnnl::matmul product;
    };
    auto one = std::make_shared<state>();
    one->c.resize(static_cast<std::size_t>(s.m * s.n));
    const dnnl::memory::desc da({s.m, s.k}, type, s.ta ? tag::ba : tag::ab),
        db({s.k, s.n}, type, s.tb ? tag::ba : tag::ab), dc({s.m, s.n}, type, tag::ab);
    one->from_a = dnnl::memory(da, one->engine, const_cast<T*>(a));
    one->from_b = dnnl::memory(db, one->engine, const_cast<T*>(b));
    one->to = dnnl::memory(dc, one->engine, one->c.data());
    try {
        one->product = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(da, db, dc), one->engine));
    } catch (const dnnl::error& e) {
        if (e.status != dnnl_unimplemented) throw;
        return std::nullopt;
    }
    return bench::local("onednn", [one] {
        one->product.execute(one->stream,
                             {{DNNL_ARG_SRC, one->from_a}, {DNNL_ARG_WEIGHTS, one->from_b}, {DNNL_ARG_DST, one->to}});
        one->stream.wait();
    });
}
#endif

template <class P, class T>
class runner {
  public:
    runner(const bench::session& with, const char* policy, const char* dtype)
        : with_(with), policy_(policy), dtype_(dtype) {}

    void run(const shape& s) {
        const bench::case_name name{
            "matmul", std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + s.what, policy_};
        if (!with_.report.wants(name)) return;
        const extent skipped = s.offset / static_cast<extent>(sizeof(T));
        const auto all_of_a = bench::random_values<T>(s.m * s.k + skipped, 1),
                   all_of_b = bench::random_values<T>(s.k * s.n + skipped, 2);
        bench::values<T> all_of_c(static_cast<std::size_t>(s.m * s.n + skipped));
        const T *const a = all_of_a.data() + skipped, *const b = all_of_b.data() + skipped;
        T* const c = all_of_c.data() + skipped;
        std::vector<bench::contender> all;
        all.push_back(bench::local("halftone", [&] { multiply<P>(s, a, b, c); }));
        if (s.offset != 0) {
            all.push_back(bench::local("halftone_aligned", [&] {
                multiply<P>(s, all_of_a.data(), all_of_b.data(), all_of_c.data());
            }));
        }
#if defined(BENCH_ONEDNN)
        if constexpr (std::is_same_v<T, float> || std::is_same_v<T, ht::bfloat16>) {
            if (auto peer = onednn(s, a, b)) all.push_back(*std::move(peer));
        }
#endif
#if defined(BENCH_OPENBLAS)
        bench::values<float> blas(std::is_same_v<T, float> ? all_of_c.size() : 0);
        if constexpr (std::is_same_v<T, float>) {
            all.push_back(bench::local("openblas", [&] {
                cblas_sgemm(CblasRowMajor, s.ta ? CblasTrans : CblasNoTrans, s.tb ? CblasTrans : CblasNoTrans,
                            static_cast<int>(s.m), static_cast<int>(s.n), static_cast<int>(s.k), 1.0f, a,
                            static_cast<int>(s.ta ? s.m : s.k), b, static_cast<int>(s.tb ? s.k : s.n), 0.0f,
                            blas.data(), static_cast<int>(s.n));
            }));
        }
#endif
        // PyTorch takes seconds for a large float16 product if the processor has no instructions for it.
        const bool slow_there = std::is_same_v<T, ht::float16> && s.m * s.n * s.k > extent{512} * 512 * 512;
        // Types that are converted to float are compared with PyTorch's float products.
        bench::values<float> a32, b32, c32;
        if (std::is_same_v<T, ht::float16> || (std::is_same_v<T, ht::bfloat16> && !with_.peers_have_bf16())) {
            a32 = bench::random_values<float>(s.m * s.k, 1), b32 = bench::random_values<float>(s.k * s.n, 2), c32.resize(all_of_c.size());
            all.push_back(bench::local("halftone_fp32", [&] {
                multiply<ht::full_fp32>(s, a32.data(), b32.data(), c32.data());
            }));
        }
        if (!slow_there && s.offset == 0) {
            with_.add_torch(all, {{"op", "matmul"}, {"dtype", dtype_}, {"m", s.m}, {"n", s.n}, {"k", s.k}, {"ta", s.ta}, {"tb", s.tb}});
        }
        with_.tell_operations<T>(
            name, all, 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k));
    }

  private:
    template <class Policy, class X>
    void multiply(const shape& s, const X* a, const X* b, X* c) const {
        ht::matmul<Policy>(with_.device,
                           ht::view<const X, 2>(a, {s.m, s.k}, s.ta ? ht::shape<2>{1, s.m} : ht::shape<2>{s.k, 1}),
                           ht::view<const X, 2>(b, {s.k, s.n}, s.tb ? ht::shape<2>{1, s.k} : ht::shape<2>{s.n, 1}),
                           ht::view<X, 2>(c, {s.m, s.n}));
    }

    const bench::session& with_;
    const char *policy_, *dtype_;
};

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    bool quick = false;
    CLI::App app{"Times matrix products on the CPU, compared with oneDNN, OpenBLAS and PyTorch."};
    app.add_flag("--quick", quick, "few shapes");
    const auto names_a_shape = [](const std::string& text) {
        return shape_named(text) ? std::string() : "expected m, n and k, as 256x2304x768, not " + text;
    };
    std::vector<std::string> own;
    app.add_option("--shape", own, "measures this product m x n x k in place of the usual ones, given as 256x2304x768; repeatable")
        ->check(names_a_shape);
    bench::gpu_options gpu;
    std::string layout = "nn";
    CLI::Option* const plan =
        app.add_option(
               "--plan", gpu.shape,
               "measures nothing, but prints strategy and block sizes of a product m x n x k, given as 256x2304x768")
            ->check(names_a_shape);
    CLI::Option* const device = gpu.add(app, plan, ht::kernel::on_device::named_types);
    app.add_option("--layout", layout, "with --device: a and b row-major (n) or stored transposed (t), nn unless given")
        ->check(CLI::IsMember({"nn", "nt", "tn", "tt"}))
        ->needs(device);
    // Known before the peaks are measured, which takes seconds.
    app.final_callback([&] {
        if (gpu.shape.empty()) return;
        if (gpu.device.empty()) {
            bench::refuse_beside_plan(app, {"--plan", "--threads"});
            print_plans(*shape_named(gpu.shape), o.threads);
        } else {
            bench::refuse_beside_plan(app, {"--plan", "--device", "--types", "--layout"});
            print_gpu_plans(gpu, *shape_named(gpu.shape), layout);
        }
        throw CLI::Success();
    });
    return bench::run_program("bench_matmul", app, o, argc, argv, [&](const bench::session& s) {
#if defined(BENCH_OPENBLAS)
        openblas_set_num_threads(o.threads);
        s.report.note("openblas", OPENBLAS_VERSION);
#endif
#if defined(BENCH_ONEDNN)
        set_openmp_threads(o.threads);
        const auto* version = dnnl::version();
        s.report.note("onednn", std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
                                    std::to_string(version->patch));
#endif
        runner<ht::amp_bf16, ht::bfloat16> bf16(s, "bf16", "bfloat16");
        runner<ht::full_fp32, float> fp32(s, "fp32", "float32");
        runner<ht::amp_fp16, ht::float16> fp16(s, "fp16", "float16");
        for (const std::string& text : own) {
            const shape each = *shape_named(text);
            bf16.run(each), fp32.run(each), fp16.run(each);
        }
        if (!own.empty()) return;
        for (const shape& each : shapes(quick)) bf16.run(each);
        for (const shape& each : odd_shapes()) bf16.run(each);
        for (const shape& each : offset_shapes(2)) bf16.run(each);
        for (const shape& each : shapes(quick)) fp32.run(each);
        for (const shape& each : odd_shapes()) fp32.run(each);
        for (const shape& each : offset_shapes(4)) fp32.run(each);
        for (const shape& each : shapes(true)) fp16.run(each);
        // On other sets these are products of floats.
        if (s.device.instruction_set() == ht::isa::amx) {
            runner<ht::split_fp32, float> split(s, "split_fp32", "float32");
            for (const shape& each : shapes(true)) split.run(each);
        }
    });
}
