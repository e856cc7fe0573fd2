// SPDX-License-Identifier: MIT
/// \file
/// How a kernel is timed: many launches in one CUDA graph, alternating between sets of buffers that together are three
/// times as large as the L2 cache; the median of many such graphs.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <halftone/kernel.cuh>
#include <halftone/tensor/tensor.hpp>

#include "bench.hpp"

namespace bench {

namespace ht = halftone;

/// Uniform in [-1, 1], of any type. Random, because products of zeros run faster.
template <class T>
__global__ void fill_uniform(T* x, std::int64_t n, std::uint32_t seed) {
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
        std::uint32_t h =
            static_cast<std::uint32_t>(i) * 2654435761u ^ seed ^ static_cast<std::uint32_t>(i >> 32) * 97u;
        h = (h ^ h >> 16) * 0x7feb352du;
        h = (h ^ h >> 15) * 0x846ca68bu;
        h ^= h >> 16;
        x[i] = T(static_cast<float>(h) * 0x1p-31f - 1.0f);
    }
}

/// Device memory with random contents.
template <class T, int Rank>
ht::tensor<T, Rank> random_tensor(ht::cuda& gpu, const ht::shape<Rank>& shape, std::uint32_t seed) {
    ht::tensor<T, Rank> t(gpu.memory(), shape);
    if (t.size() != 0) fill_uniform<<<1024, 256, 0, gpu.stream()>>>(t.data(), t.size(), seed);
    ht::detail::cuda_check(cudaGetLastError(), "fill_uniform");
    return t;
}

/// One value in device memory.
template <class T>
ht::tensor<T, 1> on_gpu(ht::cuda& gpu, const T& value) {
    ht::tensor<T, 1> t(gpu.memory(), {1});
    gpu.memory().write(t.data(), &value, sizeof value);
    return t;
}

/// "8192x768".
template <int Rank>
std::string text_of(const ht::shape<Rank>& shape) {
    std::string text = std::to_string(shape[0]);
    for (int i = 1; i < Rank; ++i) text.append("x").append(std::to_string(shape[i]));
    return text;
}

/// The number of sets of buffers, of which one takes `bytes`: at least one, at most as many as fit into 8 GiB; two for
/// tiny shapes.
inline int sets_for(const ht::cuda& gpu, const settings& s, double bytes) {
    if (s.is_tiny()) return 2;
    if (s.is_once()) return 1;
    const double wanted = std::ceil(3.0 * gpu.properties().l2CacheSize / bytes),
                 room = std::floor(8.0 * (1 << 30) / bytes);
    return static_cast<int>(std::max(1.0, std::min(wanted, room)));
}

struct timing {
    double median = 0, p10 = 0, p90 = 0;  ///< seconds of one call
};

/// Times call(i) for i = 0, 1, ...; it must only launch work on the device's stream.
inline timing measure(ht::cuda& gpu, const settings& s, int sets, const std::function<void(int)>& call) {
    using ht::detail::cuda_check;
    const cudaStream_t stream = gpu.stream();
    cudaEvent_t begin, end;
    cuda_check(cudaEventCreate(&begin), "cudaEventCreate");
    cuda_check(cudaEventCreate(&end), "cudaEventCreate");
    const auto seconds_of = [&](const auto& work) {
        cuda_check(cudaEventRecord(begin, stream), "cudaEventRecord");
        work();
        cuda_check(cudaEventRecord(end, stream), "cudaEventRecord");
        cuda_check(cudaEventSynchronize(end), "cudaEventSynchronize");
        float ms = 0;
        cuda_check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        return static_cast<double>(ms) / 1000;
    };
    if (s.is_once()) {
        const double seconds = seconds_of([&] { call(0); });
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
        return {seconds, seconds, seconds};
    }
    // Every set once, so that modules are loaded and workspaces have their size.
    for (int i = 0; i < sets; ++i) call(i);
    gpu.synchronize();
    const double once = seconds_of([&] { call(0); });
    const int calls = static_cast<int>(std::clamp(0.003 / std::max(once, 1e-7), 1.0, 500.0) + sets - 1) / sets * sets;

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < calls; ++i) call(i);
    cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cuda_check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    const auto run = [&] { cuda_check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch"); };
    seconds_of(run);
    std::vector<double> samples;
    double spent = 0;
    while (samples.size() < 10 || (spent < s.seconds_each && samples.size() < 200)) {
        const double seconds = seconds_of(run);
        spent += seconds;
        samples.push_back(seconds / calls);
        if (spent > 10 * s.seconds_each && samples.size() >= 3) break;
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::sort(samples.begin(), samples.end());
    const auto at = [&](double share) {
        return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1))];
    };
    return {at(0.5), at(0.1), at(0.9)};
}

inline bool is_wanted(const settings& s, const std::string& kernel) {
    return s.filters.empty() || std::any_of(s.filters.begin(), s.filters.end(), [&](const std::string& f) {
               return kernel.find(f) != std::string::npos;
           });
}

/// The row of a kernel that does `work` (operations or bytes) in a call.
inline row make_row(const std::string& kernel, const std::string& shape, const std::string& policy, const timing& t,
                    double work, double peak, bool in_flops) {
    row r{kernel, shape, policy, "halftone", t.median, t.p10, t.p90};
    r.rate = work / t.median / (in_flops ? 1e12 : 1e9);
    r.unit = in_flops ? "TFLOP/s" : "GB/s";
    r.percent_of_peak = peak > 0 ? 100 * work / t.median / peak : 0;
    return r;
}

}  // namespace bench
