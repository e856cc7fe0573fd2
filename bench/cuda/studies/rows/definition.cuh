// SPDX-License-Identifier: MIT
/// \file
/// The plain definitions, in double, and how many elements of a result differ from them by more than their rounding.
#pragma once

#include <halftone/kernel.cuh>

namespace study {

namespace ht = halftone;
using bf16 = ht::bfloat16;
using ht::extent;

inline constexpr int definition_threads = 256;

__device__ inline double block_sum(double mine) {
    __shared__ double sums[definition_threads];
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = definition_threads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    const double sum = sums[0];
    __syncthreads();
    return sum;
}
/// The sum of term(j) for j < count, over the block.
template <class Term>
__device__ double sum_over(extent count, const Term& term) {
    double sum = 0;
    for (extent j = threadIdx.x; j < count; j += definition_threads) sum += term(j);
    return block_sum(sum);
}

__global__ void define_layer_norm(const bf16* x, const float* gain, const float* bias, float* y, float* mean,
                                  float* rstd, extent width) {
    const extent first = static_cast<extent>(blockIdx.x) * width;
    const auto value = [&](extent j) { return static_cast<double>(static_cast<float>(x[first + j])); };
    const double m = sum_over(width, value) / static_cast<double>(width);
    const double squares = sum_over(width, [&](extent j) { return (value(j) - m) * (value(j) - m); });
    const double r = 1 / sqrt(squares / static_cast<double>(width) + 1e-5);
    for (extent j = threadIdx.x; j < width; j += definition_threads)
        y[first + j] = static_cast<float>((value(j) - m) * r * gain[j] + bias[j]);
    if (threadIdx.x != 0) return;
    mean[blockIdx.x] = static_cast<float>(m);
    rstd[blockIdx.x] = static_cast<float>(r);
}

__global__ void define_layer_norm_dx(const bf16* x, const bf16* dy, const float* gain, const float* mean,
                                     const float* rstd, float* dx, extent width) {
    const extent first = static_cast<extent>(blockIdx.x) * width;
    const double m = mean[blockIdx.x], r = rstd[blockIdx.x];
    const auto xhat = [&](extent j) { return (static_cast<double>(static_cast<float>(x[first + j])) - m) * r; };
    const auto weighted = [&](extent j) { return static_cast<double>(static_cast<float>(dy[first + j])) * gain[j]; };
    const double sum = sum_over(width, weighted) / static_cast<double>(width);
    const double along = sum_over(width, [&](extent j) { return weighted(j) * xhat(j); }) / static_cast<double>(width);
    for (extent j = threadIdx.x; j < width; j += definition_threads)
        dx[first + j] = static_cast<float>(r * (weighted(j) - sum - xhat(j) * along));
}

/// A column a block.
__global__ void define_layer_norm_sums(const bf16* x, const bf16* dy, const float* mean, const float* rstd,
                                       float* dgain, float* dbias, extent rows, extent width) {
    const extent j = blockIdx.x;
    const auto slope = [&](extent i) { return static_cast<double>(static_cast<float>(dy[i * width + j])); };
    const double along = sum_over(rows, [&](extent i) {
        return slope(i) * (static_cast<double>(static_cast<float>(x[i * width + j])) - mean[i]) * rstd[i];
    });
    const double sum = sum_over(rows, slope);
    if (threadIdx.x != 0) return;
    dgain[j] = static_cast<float>(along);
    dbias[j] = static_cast<float>(sum);
}

__global__ void define_softmax(const bf16* x, float* y, extent width) {
    const extent first = static_cast<extent>(blockIdx.x) * width;
    const auto power = [&](extent j) { return exp(static_cast<double>(static_cast<float>(x[first + j]))); };
    const double sum = sum_over(width, power);
    for (extent j = threadIdx.x; j < width; j += definition_threads) y[first + j] = static_cast<float>(power(j) / sum);
}

__global__ void define_softmax_dx(const bf16* y, const bf16* dy, float* dx, extent width) {
    const extent first = static_cast<extent>(blockIdx.x) * width;
    const auto value = [&](extent j) { return static_cast<double>(static_cast<float>(y[first + j])); };
    const auto slope = [&](extent j) { return static_cast<double>(static_cast<float>(dy[first + j])); };
    const double sum = sum_over(width, [&](extent j) { return value(j) * slope(j); });
    for (extent j = threadIdx.x; j < width; j += definition_threads)
        dx[first + j] = static_cast<float>(value(j) * (slope(j) - sum));
}

template <class T>
__global__ void count_wrong(const T* got, const float* want, extent count, float relative, float absolute,
                            unsigned* wrong) {
    const extent stride = static_cast<extent>(gridDim.x) * definition_threads;
    for (extent i = static_cast<extent>(blockIdx.x) * definition_threads + threadIdx.x; i < count; i += stride) {
        const float bound = relative * fabsf(want[i]) + absolute;
        if (!(fabsf(static_cast<float>(got[i]) - want[i]) <= bound)) atomicAdd(wrong, 1u);
    }
}

/// How many elements are farther from the definition than relative |want| + absolute.
template <class T>
unsigned wrong_of(ht::cuda& gpu, const T* got, const float* want, extent count, float relative, float absolute) {
    const ht::tensor<unsigned, 1> wrong(gpu.memory(), {1});
    gpu.fill(wrong.data(), 1, 0u);
    count_wrong<<<1024, definition_threads, 0, gpu.stream()>>>(got, want, count, relative, absolute, wrong.data());
    gpu.synchronize();
    unsigned found = 0;
    gpu.memory().read(&found, wrong.data(), sizeof found);
    return found;
}

}  // namespace study
