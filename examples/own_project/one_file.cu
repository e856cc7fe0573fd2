// SPDX-License-Identifier: MIT
/// \file
/// A complete program with a GPU kernel of its own; nothing to configure and nothing to link:
///
///     nvcc -std=c++20 -arch=native -I../../include one_file.cu -o one_file && ./one_file
#include <cstdio>
#include <span>

#include <halftone/kernel.cuh>

namespace ht = halftone;

int main() try {
    ht::cuda gpu;
    constexpr int n = 1000;
    __nv_bfloat16* data = nullptr;
    if (cudaMallocHost(&data, n * sizeof *data) != cudaSuccess) return 3;
    const std::span<__nv_bfloat16> x(data, n);
    for (int i = 0; i < n; ++i) x[i] = __float2bfloat16(static_cast<float>(i % 8));

    ht::map(gpu, [k = 2.0f](auto v) { return ht::where(v > 3.0f, k * v, -v); }, x, x);
    gpu.synchronize();
    std::printf("%g %g\n", static_cast<double>(__bfloat162float(x[3])),
                static_cast<double>(__bfloat162float(x[4])));  // -3 8
    const bool is_right = __bfloat162float(x[3]) == -3 && __bfloat162float(x[4]) == 8;
    cudaFreeHost(data);
    return is_right ? 0 : 1;
} catch (const ht::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
}
