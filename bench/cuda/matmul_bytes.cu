// SPDX-License-Identifier: MIT
/// \file
/// Products of 8-bit operands, as in a linear layer under fp8_hybrid, compared with cuBLASLt as the engine of the same call.
/// On a GPU without 8-bit mma.sync, halftone's are bf16 products of widened operands.
// compile: with --full, sm_89 too, at most 20 kernels.
#include "measure.cuh"

#if defined(BENCH_CUBLASLT)
#include <halftone/exec/cuda/cublaslt.cuh>
#endif

namespace bench {

namespace {

using ht::float8_e4m3;
using ht::float8_e5m2;

/// Compares some elements of c with sums in double.
template <class A, class B, class C>
bool is_right(ht::cuda& gpu, const ht::view<A, 2>& a, const ht::view<B, 2>& b, const ht::view<C, 2>& c) {
    const auto read = [&](const auto& element) {
        std::remove_cvref_t<decltype(element)> value;
        gpu.memory().read(&value, &element, sizeof value);
        return static_cast<double>(static_cast<float>(value));
    };
    const ht::extent m = c.extent_of(0), n = c.extent_of(1), k = a.extent_of(1);
    for (const auto& [i, j] : {std::pair{m - 1, n - 1}, std::pair{m / 3, n / 2}}) {
        double sum = 0, magnitude = 0;
        for (ht::extent p = 0; p < k; ++p) {
            const double term = read(a(i, p)) * read(b(p, j));
            sum += term;
            magnitude += std::fabs(term);
        }
        // The bound: sums in 14 bits, 32 at a time, and the rounding of the result.
        if (!(std::fabs(read(c(i, j)) - sum) <= 35 * 0x1p-13 * magnitude + 0x1p-8 * std::fabs(sum))) return false;
    }
    return true;
}

/// `name`: which of the layer's products it is.
template <class A, class C>
void bench_bytes(const settings& s, const peaks& p, listener& to, const char* name, ht::extent m, ht::extent n,
                 ht::extent k, bool a_transposed, bool b_transposed) {
    ht::cuda gpu;
    const int sets = sets_for(gpu, s, static_cast<double>(m * k + n * k) + sizeof(C) * static_cast<double>(m * n));
    std::vector<ht::tensor<A, 1>> as;
    std::vector<ht::tensor<float8_e4m3, 1>> bs;
    std::vector<ht::tensor<C, 1>> cs;
    for (int i = 0; i < sets; ++i) {
        as.push_back(random_tensor<A, 1>(gpu, {m * k}, static_cast<std::uint32_t>(3 * i)));
        bs.push_back(random_tensor<float8_e4m3, 1>(gpu, {k * n}, static_cast<std::uint32_t>(3 * i + 1)));
        cs.emplace_back(gpu.memory(), ht::shape<1>{m * n});
    }
    const auto a = [&](std::size_t i) {
        return a_transposed ? ht::transpose(ht::view<A, 2>(as[i].data(), {k, m}))
                            : ht::view<A, 2>(as[i].data(), {m, k});
    };
    const auto b = [&](std::size_t i) {
        return b_transposed ? ht::transpose(ht::view<float8_e4m3, 2>(bs[i].data(), {n, k}))
                            : ht::view<float8_e4m3, 2>(bs[i].data(), {k, n});
    };
    const auto c = [&](std::size_t i) { return ht::view<C, 2>(cs[i].data(), {m, n}); };
    const auto multiply = [&](ht::cuda& device, int i) {
        const auto set = static_cast<std::size_t>(i % sets);
        ht::matmul<ht::amp_bf16>(device, a(set), b(set), c(set));
    };
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const std::string shape = std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " " + name;
    row ours = make_row("matmul", shape, "fp8_hybrid", measure(gpu, s, sets, [&](int i) { multiply(gpu, i); }), flops,
                        p.bf16_flops, true);
    if (!is_right(gpu, a(0), b(0), c(0))) ours.engine += ", WRONG";
#if defined(BENCH_CUBLASLT)
    if (s.has_peers() && gpu.architecture().version >= 89) {
        ht::cuda other{{.engine = ht::cublaslt{}, .engine_is_used = ht::engine_use::always}};
        row theirs = make_row("matmul", shape, "fp8_hybrid",
                              measure(other, s, sets, [&](int i) { multiply(other, i); }), flops, p.bf16_flops, true);
        theirs.engine = "by cublaslt";
        theirs.ratio_to.emplace_back("halftone", ours.seconds / theirs.seconds);
        ours.ratio_to.emplace_back("cublaslt", theirs.seconds / ours.seconds);
        to.on_row(theirs);
    }
#endif
    to.on_row(ours);
}

}  // namespace

void bench_matmul_bytes(const settings& s, const peaks& p, listener& to) {
    if (!is_wanted(s, "matmul")) return;
    using ht::bfloat16;
    const auto layer = [&](ht::extent tokens, ht::extent in, ht::extent out) {
        bench_bytes<float8_e4m3, bfloat16>(s, p, to, "forward", tokens, out, in, false, true);
        bench_bytes<float8_e5m2, bfloat16>(s, p, to, "dx", tokens, in, out, false, false);
        bench_bytes<float8_e5m2, bfloat16>(s, p, to, "dw", out, in, tokens, true, false);
    };
    if (s.is_once()) return;
    if (s.is_tiny()) return layer(64, 64, 64);
    if (s.is_thin()) return layer(4096, 4096, 4096);
    if (!s.is_all()) return layer(1024, 768, 768);
    layer(8192, 768, 3072);
    layer(8192, 3072, 768);
    layer(4096, 4096, 4096);
}

}  // namespace bench
