// SPDX-License-Identifier: MIT
/// \file
/// The context and its memory: transfers, fills, order, limits, what it says of itself.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/cuda.cuh>
#include <halftone/tensor/tensor.hpp>

namespace {

namespace ht = halftone;

/// out[i] = in[i] + 1, by blocks of one warp.
struct increment {
    static constexpr int threads = 32;
    static constexpr ht::simt::word shared_bytes = 0;
    ht::simt::global_span<float> x;

    ht::simt::grid_shape grid() const { return ht::simt::blocks_for(x.count, threads); }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const ht::extent i = static_cast<ht::extent>(simt.block().x) * threads + simt.thread();
        if (i < x.count) simt.store(x, i, simt.load(x, i) + 1);
    }
};

/// More shared memory than a launch has without asking.
struct wide_shared {
    static constexpr int threads = 256;
    static constexpr ht::simt::word shared_bytes = 96 * 1024;
    ht::simt::global_span<float> out;

    ht::simt::grid_shape grid() const { return {1, 1, 1}; }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const ht::simt::shared_span<float> all{0, shared_bytes / 4};
        for (int i = simt.thread(); i < static_cast<int>(all.count); i += threads) simt.store(all, i, static_cast<float>(i));
        simt.barrier();
        simt.store(out, simt.thread(), simt.load(all, all.count - 1 - simt.thread()));
    }
};

struct twice {
    float* x;
    HALFTONE_HD void operator()() const { *x *= 2; }
};

TEST_CASE("cuda: transfers, fills, kernels and functions are in order with one stream") {
    ht::cuda gpu;
    const ht::extent n = 1000;
    const ht::tensor<float, 1> x(gpu.memory(), {n}), y(gpu.memory(), {n});
    std::vector<float> host(n, 7.0f);
    gpu.fill(x.data(), n, 3.0f);
    gpu.launch(increment{{x.data(), n - 1}});
    gpu.run(twice{x.data()});
    gpu.copy(y.data(), x.data(), n * sizeof(float));
    gpu.memory().clear(x.data(), n * sizeof(float));
    gpu.memory().read(host.data(), y.data(), n * sizeof(float));
    CHECK(host[0] == 8);
    CHECK(host[1] == 4);
    CHECK(host[998] == 4);
    CHECK(host[999] == 3);
    gpu.memory().read(host.data(), x.data(), n * sizeof(float));
    CHECK(host[500] == 0);
    host[3] = 5;
    gpu.memory().write(x.data(), host.data(), n * sizeof(float));
    gpu.launch(increment{{x.data() + 3, 1}});
    gpu.memory().read(host.data(), x.data(), n * sizeof(float));
    CHECK(host[3] == 6);
    gpu.launch(increment{{x.data(), 0}});  // an empty grid is no error
    gpu.synchronize();
}

TEST_CASE("cuda: a block may have more than 48 KiB of shared memory") {
    ht::cuda gpu;
    const ht::tensor<float, 1> out(gpu.memory(), {256});
    std::vector<float> host(256);
    for (int time = 0; time < 2; ++time) gpu.launch(wide_shared{{out.data(), 256}});
    gpu.memory().read(host.data(), out.data(), 256 * sizeof(float));
    CHECK(host[0] == 24575);
    CHECK(host[255] == 24320);
}

TEST_CASE("cuda: a borrowed stream is the user's; what is out of order waits") {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    float* x = nullptr;
    REQUIRE(cudaMalloc(&x, sizeof(float)) == cudaSuccess);
    {
        ht::cuda gpu{stream};
        CHECK(gpu.stream() == stream);
        gpu.fill(x, 1, 2.5f);
    }
    float host = 0;
    REQUIRE(cudaMemcpyAsync(&host, x, sizeof host, cudaMemcpyDefault, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(host == 2.5f);
    CHECK(cudaFree(x) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("cuda: says what is wrong") {
    CHECK_THROWS_AS(ht::cuda({.device = 1000}), ht::argument_error);
    ht::cuda gpu({.memory_limit = 1 << 20});
    CHECK_THROWS_AS((ht::tensor<float, 1>(gpu.memory(), {1 << 20})), ht::out_of_memory);
    const ht::tensor<float, 1> fits(gpu.memory(), {1 << 10});
    CHECK(gpu.description().substr(0, 6) == "cuda, ");
}

}  // namespace
