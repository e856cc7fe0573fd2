// SPDX-License-Identifier: MIT
/// \file
/// Mistakes that the PTX machine must report: each kernel has one mistake, with which it may still appear to work on a GPU. A test
/// fails if the mistake is not reported.
#include <cuda_runtime.h>

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace {

__device__ int sink;

__global__ void no_barrier(int* out) {
    __shared__ int line[64];
    line[threadIdx.x] = static_cast<int>(threadIdx.x);
    out[threadIdx.x] = line[63 - threadIdx.x];
}
__global__ void no_barrier_for_a_pointer(int* out, int elsewhere) {
    __shared__ int line[64];
    int* const p = elsewhere != 0 ? out : line;  // the compiler cannot know that it is shared memory
    p[threadIdx.x] = static_cast<int>(threadIdx.x);
    out[threadIdx.x] = p[63 - threadIdx.x];
}
__global__ void no_barrier_before_the_next_turn(int* out) {
    __shared__ int line[64];
    for (int turn = 0; turn < 2; ++turn) {
        line[threadIdx.x] = static_cast<int>(threadIdx.x) + turn;
        __syncthreads();
        out[threadIdx.x] = line[63 - threadIdx.x];
    }
}
__global__ void no_barrier_in_the_warp(int* out) {
    __shared__ int line[32];
    line[threadIdx.x % 32] = static_cast<int>(threadIdx.x);
    out[threadIdx.x] = line[31 - threadIdx.x % 32];
}
__global__ void copy_without_a_wait(int* out, const int* in) {
    __shared__ alignas(16) int line[64];
    if (threadIdx.x < 16) {
        const auto to = static_cast<unsigned>(__cvta_generic_to_shared(line + 4 * threadIdx.x));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + 4 * threadIdx.x) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    __syncthreads();
    out[threadIdx.x] = line[threadIdx.x];
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}
__global__ void barriers_in_two_branches(int* out) {
    __shared__ int line[64];
    line[threadIdx.x] = 1;
    if (threadIdx.x < 40) {
        __syncthreads();
        out[threadIdx.x] = line[63 - threadIdx.x];
    } else {
        out[threadIdx.x] = 2;
        __syncthreads();
    }
}
__global__ void shuffle_from_nobody(int* out) {
    if (threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, static_cast<int>(threadIdx.x), 16);
}
__global__ void beyond_the_end(int* out) { out[threadIdx.x + 1] = 1; }
__global__ void beyond_shared_memory(int* out) {
    extern __shared__ int line[];
    line[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = line[threadIdx.x + 1];
}
__global__ void misaligned(int* out) {
    const char* const odd = reinterpret_cast<const char*>(out) + 2;
    out[threadIdx.x] = *reinterpret_cast<const volatile int*>(odd);
}
__global__ void no_mistake(int* out, const int* in) {
    __shared__ int line[64];
    line[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = line[63 - threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) atomicAdd(&sink, 1);
}

struct memory {
    int *out = nullptr, *in = nullptr;
    memory() {
        REQUIRE(cudaMalloc(&out, 64 * sizeof(int)) == cudaSuccess);
        REQUIRE(cudaMalloc(&in, 64 * sizeof(int)) == cudaSuccess);
        REQUIRE(cudaMemset(in, 0, 64 * sizeof(int)) == cudaSuccess);
    }
    ~memory() {
        cudaDeviceReset();  // clears the error of a failed kernel
        cudaFree(out), cudaFree(in);
    }
    memory(const memory&) = delete;
    memory& operator=(const memory&) = delete;
};

TEST_CASE("the machine for PTX finds each deliberate mistake") {
    const auto fails = [](const auto& launch) {
        const memory m;
        launch(m);
        return cudaDeviceSynchronize() != cudaSuccess;
    };
    CHECK_FALSE(fails([](const memory& m) { no_mistake<<<2, 64>>>(m.out, m.in); }));
    CHECK(fails([](const memory& m) { no_barrier<<<1, 64>>>(m.out); }));
    CHECK(fails([](const memory& m) { no_barrier_for_a_pointer<<<1, 64>>>(m.out, 0); }));
    CHECK(fails([](const memory& m) { no_barrier_before_the_next_turn<<<1, 64>>>(m.out); }));
    CHECK(fails([](const memory& m) { no_barrier_in_the_warp<<<1, 32>>>(m.out); }));
    CHECK(fails([](const memory& m) { copy_without_a_wait<<<1, 64>>>(m.out, m.in); }));
    CHECK(fails([](const memory& m) { barriers_in_two_branches<<<1, 64>>>(m.out); }));
    CHECK(fails([](const memory& m) { shuffle_from_nobody<<<1, 32>>>(m.out); }));
    CHECK(fails([](const memory& m) { beyond_the_end<<<1, 64>>>(m.out); }));
    CHECK(fails([](const memory& m) { beyond_shared_memory<<<1, 64, 64 * sizeof(int)>>>(m.out); }));
    CHECK(fails([](const memory& m) { misaligned<<<1, 32>>>(m.out); }));
}

TEST_CASE("the machine for PTX: a stream runs its work only when something waits for it") {
    const memory m;
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    int* host = nullptr;
    REQUIRE(cudaMallocHost(&host, 64 * sizeof(int)) == cudaSuccess);
    host[63] = -1;
    no_mistake<<<1, 64, 0, stream>>>(m.out, m.in);
    REQUIRE(cudaMemcpyAsync(host, m.out, 64 * sizeof(int), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(host[63] == -1);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(host[63] == 0);
    cudaStreamDestroy(stream), cudaFreeHost(host);
}

TEST_CASE("the machine for PTX refuses launches that a GPU refuses") {
    const memory m;
    no_mistake<<<1, 2048>>>(m.out, m.in);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    beyond_shared_memory<<<1, 64, 100 * 1024>>>(m.out);  // more than it requested
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

}  // namespace
