// SPDX-License-Identifier: MIT
/// \file
/// Times memory-bound operations on the CPU, compared with PyTorch: in GB/s and as a fraction of a copy's rate in the same run.
///
///     bench_memory_bound --json memory_bound.json --torch python3 --filter layer_norm
///
/// Bytes are those that must be read and written once. Large cases alternate between buffers of at least 192 MiB in
/// total, so that none is in a cache when it is used; "cached" cases stay in the L2 and L3 caches. memory_bound/*.hpp
/// has the families of operations, one a file.
#include <memory_bound/choosing.hpp>
#include <memory_bound/convert.hpp>
#include <memory_bound/loss.hpp>
#include <memory_bound/norm.hpp>
#include <memory_bound/pointwise.hpp>
#include <memory_bound/reduction.hpp>

#include <support/program.hpp>

namespace {

namespace ht = halftone;

/// All families of one element type.
template <class T>
void run_type(const bench::memory_bound& b) {
    bench::norms<T>(b);
    bench::softmaxes<T>(b);
    bench::pointwise<T>(b);
    bench::losses<T>(b);
    bench::column_sums<T>(b);
    bench::reductions<T>(b);
    bench::dropouts<T>(b);
    bench::choosing<T>(b);
    bench::rotaries<T>(b);
}

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    CLI::App app{"Times memory-bound operations on the CPU, compared with PyTorch."};
    return bench::run_program("bench_memory_bound", app, o, argc, argv, [&](const bench::session& s) {
        const auto with = [&](const char* policy, const char* dtype) {
            return bench::memory_bound{s.device, s.o, s.report, s.torch, s.peaks, policy, dtype};
        };
        run_type<ht::bfloat16>(with("bf16", "bfloat16"));
        run_type<float>(with("fp32", "float32"));
        run_type<ht::float16>(with("fp16", "float16"));
        bench::conversions(with("", ""));
    });
}
