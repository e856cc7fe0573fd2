// SPDX-License-Identifier: MIT
/// \file
/// The matrix product, compared with cuBLASLt's, if available: the fastest algorithm that its heuristic proposes, on the same
/// operands; and cuBLASLt as the engine of halftone's own call, from which a matmul_table is made.
// compile: with --full, at most 40 kernels.
#include <limits>
#include <memory>
#include <random>

#include "measure.cuh"

#if defined(BENCH_CUBLASLT)
#include <halftone/exec/cuda/cublaslt.cuh>
#endif

namespace bench {

double measure_copy(const settings& s);

namespace {

using bf16 = ht::bfloat16;

/// The layouts of a and b that a linear layer's forward pass and its two gradients need.
enum class layout {
    nt,  ///< a: (m, k), b: (n, k) transposed; y = x w'
    nn,  ///< a: (m, k), b: (k, n); dx = dy w
    tn,  ///< a: (k, m) transposed, b: (k, n); dw = dy' x
};
const char* name(layout l) { return l == layout::nt ? "nt" : l == layout::nn ? "nn" : "tn"; }

struct problem {
    ht::extent m, n, k;
    layout way = layout::nt;
    ht::extent offset = 0;  ///< distance of the operands from an aligned address, in elements
};

template <class T>
struct operands {
    ht::tensor<T, 1> a, b, c;

    operands(ht::cuda& gpu, const problem& p, std::uint32_t seed)
        : a(random_tensor<T, 1>(gpu, {p.m * p.k + 8}, seed)),
          b(random_tensor<T, 1>(gpu, {p.n * p.k + 8}, seed + 1)),
          c(random_tensor<T, 1>(gpu, {p.m * p.n + 8}, seed + 2)) {}
};

template <class T>
ht::view<T, 2> view_a(const problem& p, const operands<T>& x) {
    if (p.way == layout::tn) return ht::transpose(ht::view<T, 2>(x.a.data() + p.offset, {p.k, p.m}));
    return {x.a.data() + p.offset, {p.m, p.k}};
}
template <class T>
ht::view<T, 2> view_b(const problem& p, const operands<T>& x) {
    if (p.way == layout::nt) return ht::transpose(ht::view<T, 2>(x.b.data() + p.offset, {p.n, p.k}));
    return {x.b.data() + p.offset, {p.k, p.n}};
}
template <class T>
ht::view<T, 2> view_c(const problem& p, const operands<T>& x) {
    return {x.c.data() + p.offset, {p.m, p.n}};
}

#if defined(BENCH_CUBLASLT)

void check(cublasStatus_t code, const char* call) {
    if (code != CUBLAS_STATUS_SUCCESS) ht::fail<ht::cuda_error>("cublasLt: ", call, " gave ", static_cast<int>(code));
}

/// cuBLASLt's product with sums in float, by the algorithm that was fastest.
template <class T, class Compute = T>
class peer {
  public:
    // cuBLASLt is column-major: c' = b' a', so that its a is our b.
    peer(ht::cuda& gpu, const problem& p, const operands<T>& x)
        : gpu_(gpu), workspace_(gpu.memory(), {ht::extent{64} << 20}) {
        const cudaDataType type = std::is_same_v<T, bf16>          ? CUDA_R_16BF
                                  : std::is_same_v<T, ht::float16> ? CUDA_R_16F
                                                                   : CUDA_R_32F;
        check(cublasLtCreate(&handle_), "cublasLtCreate");
        constexpr cublasComputeType_t multiplied =
            std::is_same_v<Compute, ht::tfloat32> ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
        check(cublasLtMatmulDescCreate(&operation_, multiplied, CUDA_R_32F), "cublasLtMatmulDescCreate");
        const cublasOperation_t of_b = p.way == layout::nt ? CUBLAS_OP_T : CUBLAS_OP_N,
                                of_a = p.way == layout::tn ? CUBLAS_OP_T : CUBLAS_OP_N;
        check(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof of_b),
              "cublasLtMatmulDescSetAttribute");
        check(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof of_a),
              "cublasLtMatmulDescSetAttribute");
        const auto make = [&](cublasLtMatrixLayout_t& l, ht::extent rows, ht::extent columns) {
            check(cublasLtMatrixLayoutCreate(&l, type, static_cast<std::uint64_t>(rows),
                                             static_cast<std::uint64_t>(columns), rows),
                  "cublasLtMatrixLayoutCreate");
        };
        p.way == layout::nt ? make(b_, p.k, p.n) : make(b_, p.n, p.k);
        p.way == layout::tn ? make(a_, p.m, p.k) : make(a_, p.k, p.m);
        make(c_, p.n, p.m);
        cublasLtMatmulPreference_t preference = nullptr;
        check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
        const std::size_t bytes = static_cast<std::size_t>(workspace_.size());
        check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                   sizeof bytes),
              "cublasLtMatmulPreferenceSetAttribute");
        const auto alignment = static_cast<std::uint32_t>(p.offset == 0 ? 256 : sizeof(T));
        for (const auto attribute :
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
            check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment),
                  "cublasLtMatmulPreferenceSetAttribute");
        }
        constexpr int most = 8;
        cublasLtMatmulHeuristicResult_t found[most];
        int count = 0;
        const cublasStatus_t code =
            cublasLtMatmulAlgoGetHeuristic(handle_, operation_, b_, a_, c_, c_, preference, most, found, &count);
        cublasLtMatmulPreferenceDestroy(preference);
        if (code != CUBLAS_STATUS_SUCCESS || count == 0) return;
        double best = std::numeric_limits<double>::infinity();
        for (int i = 0; i < count; ++i) {
            algorithm_ = found[i].algo;
            is_there_ = true;
            const timing t = measure(gpu, settings{.seconds_each = 0.01}, 1, [&](int) { run(p, x); });
            if (t.median < best) best = t.median, chosen_ = algorithm_;
        }
        algorithm_ = chosen_;
    }
    peer(const peer&) = delete;
    peer& operator=(const peer&) = delete;
    ~peer() {
        for (cublasLtMatrixLayout_t l : {a_, b_, c_}) {
            if (l != nullptr) cublasLtMatrixLayoutDestroy(l);
        }
        if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
        if (handle_ != nullptr) cublasLtDestroy(handle_);
    }

    bool is_there() const { return is_there_; }
    void run(const problem& p, const operands<T>& x) {
        const float one = 1, zero = 0;
        T* const c = x.c.data() + p.offset;
        check(cublasLtMatmul(handle_, operation_, &one, x.b.data() + p.offset, b_, x.a.data() + p.offset, a_, &zero, c,
                             c_, c, c_, &algorithm_, workspace_.data(), static_cast<std::size_t>(workspace_.size()),
                             gpu_.stream()),
              "cublasLtMatmul");
    }

  private:
    ht::cuda& gpu_;
    ht::tensor<std::uint8_t, 1> workspace_;
    cublasLtHandle_t handle_ = nullptr;
    cublasLtMatmulDesc_t operation_ = nullptr;
    cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
    cublasLtMatmulAlgo_t algorithm_{}, chosen_{};
    bool is_there_ = false;
};
#endif

/// Compares some elements of c with products in double, since a fast result must also be right. Returns the largest
/// error, relative to the sum of magnitudes.
template <class Compute, class T>
double largest_error(ht::cuda& gpu, const problem& p, const operands<T>& x) {
    const auto a = view_a(p, x), b = view_b(p, x), c = view_c(p, x);
    std::mt19937 random(1);
    const auto length = static_cast<std::size_t>(p.k);
    const auto fetch = [&](std::vector<T>& to, const T* from, ht::extent stride) {
        to.resize(length);
        ht::detail::cuda_check(
            cudaMemcpy2DAsync(to.data(), sizeof(T), from, static_cast<std::size_t>(stride) * sizeof(T), sizeof(T),
                              length, cudaMemcpyDeviceToHost, gpu.stream()),
            "cudaMemcpy2DAsync");
        gpu.synchronize();
    };
    double worst = 0;
    for (int i = 0; i < 12; ++i) {
        const ht::extent row = i == 0 ? p.m - 1 : static_cast<ht::extent>(random() % static_cast<std::uint32_t>(p.m));
        const ht::extent column =
            i == 0 ? p.n - 1 : static_cast<ht::extent>(random() % static_cast<std::uint32_t>(p.n));
        std::vector<T> left, right;
        fetch(left, &a(row, 0), a.stride_of(1));
        fetch(right, &b(0, column), b.stride_of(0));
        T got;
        gpu.memory().read(&got, &c(row, column), sizeof got);
        double sum = 0, magnitude = 0;
        for (std::size_t j = 0; j < length; ++j) {
            const auto multiplied = [](T x) {
                return static_cast<double>(static_cast<float>(Compute(static_cast<float>(x))));
            };
            const double term = multiplied(left[j]) * multiplied(right[j]);
            sum += term;
            magnitude += std::fabs(term);
        }
        // The bound: one rounding of the result, and float sums.
        const double error =
            std::fabs(static_cast<double>(static_cast<float>(got)) - sum) / (magnitude * 1e-5 + std::fabs(sum));
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

template <class Policy, class T>
void bench_problem(const settings& s, const peaks& p, listener& to, const char* policy, const problem& of) {
    ht::cuda gpu;
    const double flops = 2.0 * static_cast<double>(of.m) * static_cast<double>(of.n) * static_cast<double>(of.k);
    const int sets = sets_for(gpu, s, sizeof(T) * static_cast<double>(of.m * of.k + of.n * of.k + of.m * of.n));
    std::vector<operands<T>> all;
    for (int i = 0; i < sets; ++i) all.emplace_back(gpu, of, static_cast<std::uint32_t>(3 * i));
    const std::string shape = std::to_string(of.m) + "x" + std::to_string(of.n) + "x" + std::to_string(of.k) + " " +
                              name(of.way) + (of.offset == 0 ? "" : " off by " + std::to_string(of.offset));
    const auto set = [&](int i) -> const operands<T>& { return all[static_cast<std::size_t>(i % sets)]; };

    const timing ours = measure(gpu, s, sets, [&](int i) {
        ht::matmul<Policy>(gpu, view_a(of, set(i)), view_b(of, set(i)), view_c(of, set(i)));
    });
    const double error = largest_error<typename Policy::compute>(gpu, of, set(0));
    row r = make_row("matmul", shape, policy, ours, flops, p.bf16_flops, true);
    if (!(error <= 0x1p-7)) r.engine += ", WRONG";
#if defined(BENCH_CUBLASLT)
    const auto by_engine = [&](row own, ht::product_end end, const auto& call) {
        ht::cuda other{{.engine = ht::cublaslt{}, .engine_is_used = ht::engine_use::always}};
        const timing theirs = measure(other, s, sets, [&](int i) { call(other, set(i)); });
        to.on_product({ht::element_type_of<typename Policy::compute>(), end,
                       of.way == layout::tn ? ht::matrix_order::columns : ht::matrix_order::rows,
                       of.way == layout::nt ? ht::matrix_order::columns : ht::matrix_order::rows, of.m, of.n, of.k,
                       own.seconds / theirs.median});
        row r = make_row(own.kernel, own.shape, policy, theirs, flops, p.bf16_flops, true);
        r.engine = "by cublaslt";
        r.ratio_to.emplace_back("halftone", own.seconds / theirs.median);
        to.on_row(r);
    };
    if (!s.has_peers()) return to.on_row(r);
    // Only for aligned operands, which are all that the table covers.
    if (of.offset == 0) {
        by_engine(r, ht::product_end::result, [&](ht::cuda& device, const operands<T>& x) {
            ht::matmul<Policy>(device, view_a(of, x), view_b(of, x), view_c(of, x));
        });
        if constexpr (std::is_same_v<T, bf16>) {
            if (of.way == layout::nt) {
                const auto bias = random_tensor<T, 1>(gpu, {of.n}, 7);
                const auto fused = [&](ht::cuda& device, const operands<T>& x) {
                    ht::matmul<Policy>(device, view_a(of, x), view_b(of, x), view_c(of, x), ht::bias_gelu{bias.view()});
                };
                const row own =
                    make_row("matmul, bias_gelu", shape, policy,
                             measure(gpu, s, sets, [&](int i) { fused(gpu, set(i)); }), flops, p.bf16_flops, true);
                to.on_row(own);
                by_engine(own, ht::product_end::kernel, fused);
            }
        }
    }
    peer<T, typename Policy::compute> lt(gpu, of, set(0));
    if (lt.is_there()) {
        const timing theirs = measure(gpu, s, sets, [&](int i) { lt.run(of, set(i)); });
        r.ratio_to.emplace_back("cublaslt", theirs.median / ours.median);
        to.on_row(r);
        row other = make_row("matmul", shape, policy, theirs, flops, p.bf16_flops, true);
        other.engine = "cublaslt";
        to.on_row(other);
        return;
    }
#endif
    to.on_row(r);
}

}  // namespace

peaks measure_peaks(const settings& s) {
    if (s.is_once()) return {};
    peaks p{measure_copy(s), 0};
#if defined(BENCH_CUBLASLT)
    if (s.has_peers() && (is_wanted(s, "matmul") || is_wanted(s, "attention") || is_wanted(s, "ceilings"))) {
        ht::cuda gpu;
        const problem of{8192, 8192, 8192};
        const operands<bf16> x(gpu, of, 1);
        peer<bf16> lt(gpu, of, x);
        if (lt.is_there())
            p.bf16_flops =
                2.0 * 8192 * 8192 * 8192 / measure(gpu, {.seconds_each = 1}, 1, [&](int) { lt.run(of, x); }).median;
    }
#endif
    return p;
}

void bench_matmul(const settings& s, const peaks& p, listener& to) {
    if (!is_wanted(s, "matmul")) return;
    using ht::amp_bf16;
    const auto bf16_problem = [&](const problem& of) { bench_problem<amp_bf16, bf16>(s, p, to, "amp_bf16", of); };
    const auto tf32_problem = [&](const problem& of) { bench_problem<ht::tf32, float>(s, p, to, "tf32", of); };
    if (s.is_tiny()) {
        for (const layout way : {layout::nt, layout::nn, layout::tn}) bf16_problem({64, 96, 80, way});
        bf16_problem({64, 96, 80, layout::nt, 1});
        bench_problem<ht::amp_fp16, ht::float16>(s, p, to, "amp_fp16", {64, 64, 64});
        bench_problem<ht::full_fp32, float>(s, p, to, "full_fp32", {64, 64, 64});
        tf32_problem({64, 64, 64});
        return;
    }
    constexpr ht::extent tokens = 8192, width = 768;
    if (s.is_once()) return bf16_problem({4096, 4096, 4096});
    if (s.is_thin()) {
        for (const ht::extent n : {4096, 8192}) bf16_problem({n, n, n});
        bf16_problem({tokens, 3 * width, width});
        bf16_problem({tokens, width, 4 * width, layout::nn});
        bf16_problem({4 * width, width, tokens, layout::tn});
        for (const ht::extent classes : {50304, 50257}) bf16_problem({tokens, classes, width});
        bf16_problem({4096, 4096, 4096, layout::nt, 1});
        bench_problem<ht::full_fp32, float>(s, p, to, "full_fp32", {2048, 2048, 2048});
        tf32_problem({4096, 4096, 4096});
        return;
    }
    if (!s.is_all()) {
        bf16_problem({1024, 1024, 1024});
        bf16_problem({1024, 768, 768, layout::nn});
        bf16_problem({768, 1000, 1024, layout::tn});
        return;
    }
    for (const ht::extent n : {512, 1024, 2048, 4096, 8192}) bf16_problem({n, n, n});
    // GPT-2 with 124M parameters for 8,192 tokens: the products of a block and of the head, forward and backward.
    for (const ht::extent out : {3 * width, width, 4 * width}) {
        bf16_problem({tokens, out, width});
        bf16_problem({tokens, width, out, layout::nn});
        bf16_problem({out, width, tokens, layout::tn});
    }
    bf16_problem({tokens, width, 4 * width});
    for (const ht::extent classes : {50304, 50257}) {
        bf16_problem({tokens, classes, width});
        bf16_problem({tokens, width, classes, layout::nn});
        bf16_problem({classes, width, tokens, layout::tn});
    }
    // Few rows, short sums, odd extents, unaligned pointers.
    bf16_problem({64, 4096, 4096});
    bf16_problem({4096, 4096, 512});
    bf16_problem({4096, 4096, 4095});
    bf16_problem({4096, 4096, 4096, layout::nt, 1});
    for (const ht::extent n : {2048, 4096}) bench_problem<ht::amp_fp16, ht::float16>(s, p, to, "amp_fp16", {n, n, n});
    bench_problem<ht::full_fp32, float>(s, p, to, "full_fp32", {2048, 2048, 2048});
    for (const ht::extent n : {2048, 4096}) tf32_problem({n, n, n});
    tf32_problem({tokens, 3 * width, width});
    tf32_problem({width, width, tokens, layout::tn});
}

}  // namespace bench
