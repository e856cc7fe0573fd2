// SPDX-License-Identifier: MIT
/// \file
/// The context and its memory: transfers, fills, order, limits, what it says of itself.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/cuda.cuh>
#include <halftone/exec/measure.hpp>
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
        for (int i = simt.thread(); i < static_cast<int>(all.count); i += threads)
            simt.store(all, i, static_cast<float>(i));
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

TEST_CASE("cuda: scratch memory of the user's, and not a byte of its own") {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    {
        ht::cuda gpu{stream};
        constexpr ht::extent rows = 300, width = 64;
        const ht::tensor<float, 2> x(gpu.memory(), {rows, width});
        const ht::tensor<float, 1> own(gpu.memory(), {width}), given(gpu.memory(), {width});
        gpu.fill(x.data(), rows * width, 0.5f);
        const auto sums = [&](auto& d, const ht::view<float, 1>& out) {
            ht::kernel::column_sum<std::remove_reference_t<decltype(d)>>::run(d, x.view(), out);
        };
        sums(gpu, own.view());
        const std::size_t bytes = ht::workspace_bytes(gpu, [&](auto& d) { sums(d, given.view()); });
        CHECK(bytes == gpu.scratch().peak());
        CHECK(bytes > 0);

        const ht::tensor<std::byte, 1> memory(gpu.memory(), {static_cast<ht::extent>(bytes)});
        ht::cuda small{stream, std::span<std::byte>(memory.data(), bytes)};
        sums(small, given.view());
        CHECK(small.memory().usage().allocations() == 0);
        std::vector<float> host(2 * width);
        gpu.memory().read(host.data(), own.data(), width * sizeof(float));
        gpu.memory().read(host.data() + width, given.data(), width * sizeof(float));
        for (ht::extent i = 0; i < width; ++i)
            CHECK(host[static_cast<std::size_t>(i)] == host[static_cast<std::size_t>(width + i)]);
        CHECK(host[0] == 150);

        ht::cuda smaller{{.stream = stream, .workspace = std::span<std::byte>(memory.data(), bytes - 64)}};
        CHECK_THROWS_AS(sums(smaller, given.view()), ht::out_of_memory);
        std::vector<std::byte> of_the_host(256);
        CHECK_THROWS_AS((ht::cuda{stream, std::span(of_the_host)}), ht::argument_error);
    }
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("cuda: one stream waits for another, by an event or as it is") {
    ht::cuda first, second;
    constexpr ht::extent n = 1 << 22;
    const ht::tensor<float, 1> x(first.memory(), {n}), y(second.memory(), {n});
    second.wait_for(first);  // x is taken in the order of the first one's work
    std::vector<float> host(n);
    for (int round = 1; round <= 20; ++round) {
        first.fill(x.data(), n, static_cast<float>(round));
        if (round % 2 == 0) {
            second.wait_for(first);
        } else {
            const ht::cuda_event filled = first.record();
            second.wait_for(filled);
        }
        second.copy(y.data(), x.data(), n * sizeof(float));
        const ht::cuda_event copied = second.record();
        first.wait_for(copied);
        second.memory().read(host.data(), y.data(), n * sizeof(float));
        CHECK(copied.is_over());
        CHECK(host[0] == static_cast<float>(round));
        CHECK(host[n - 1] == static_cast<float>(round));
    }
    const ht::cuda_event begin = first.record();
    first.fill(x.data(), n, 0.0f);
    const ht::cuda_event end = first.record();
    const double seconds = ht::seconds_between(begin, end);
    CHECK(seconds > 0);
    CHECK(seconds < 10);
    CHECK(begin.is_over());
}

TEST_CASE("cuda: the thread's present device is as before, and need not be the context's") {
    int count = 0;
    REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
    const auto present = [] {
        int device = -1;
        CHECK(cudaGetDevice(&device) == cudaSuccess);
        return device;
    };
    if (count < 2) MESSAGE("one GPU: contexts of several are not tested here");
    for (const int device : {0, count - 1}) {
        const int other = count - 1 - device;
        REQUIRE(cudaSetDevice(other) == cudaSuccess);
        ht::cuda gpu({.device = device});
        CHECK(gpu.device() == device);
        const ht::tensor<float, 1> x(gpu.memory(), {256});
        std::vector<float> host(256, 1.0f);
        gpu.upload(x.data(), host.data(), 256 * sizeof(float));
        gpu.launch(increment{{x.data(), 256}});
        gpu.launch(wide_shared{{x.data(), 256}});
        gpu.run(twice{x.data()});
        gpu.memory().read(host.data(), x.data(), 256 * sizeof(float));
        CHECK(host[0] == 2 * 24575);
        CHECK(host[255] == 24320);
        CHECK(present() == other);
        // A borrowed stream tells its device itself.
        ht::cuda borrower{gpu.stream()};
        CHECK(borrower.device() == device);
        borrower.wait_for(gpu);
    }
    CHECK(present() == 0);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("cuda: an error that the user left behind is not a launch's") {
    ht::cuda gpu;
    const ht::tensor<float, 1> x(gpu.memory(), {32});
    CHECK(cudaSetDevice(1000) != cudaSuccess);
    CHECK_NOTHROW(gpu.launch(increment{{x.data(), 32}}));
    CHECK_NOTHROW(gpu.fill(x.data(), 32, 1.0f));
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    gpu.synchronize();
}

TEST_CASE("cuda: says what is wrong") {
    CHECK_THROWS_AS(ht::cuda({.device = 1000}), ht::argument_error);
    ht::cuda gpu({.memory_limit = 1 << 20});
    CHECK_THROWS_AS((ht::tensor<float, 1>(gpu.memory(), {1 << 20})), ht::out_of_memory);
    const ht::tensor<float, 1> fits(gpu.memory(), {1 << 10});
    CHECK(gpu.description().substr(0, 6) == "cuda, ");
}

}  // namespace
