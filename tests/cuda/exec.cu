// SPDX-License-Identifier: MIT
/// \file
/// The context and its memory: transfers, fills, order, limits, and its description.
// compile: at most 10 kernels.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/cuda.cuh>
#include <halftone/data/data_loader.hpp>
#include <halftone/exec/measure.hpp>
#include <halftone/memory/arena.hpp>
#include <halftone/tensor/tensor.hpp>

/// Of tests/ptx, which takes the place of the runtime where there is no GPU: how often a call was made that takes long.
extern "C" int halftone_ptx_calls(const char* name) __attribute__((weak));

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

TEST_CASE("cuda: a borrowed stream is in order with the user's work, and is not destroyed") {
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

TEST_CASE("cuda: stream 0 is the default stream, in order with the program's own work on it") {
    constexpr ht::extent n = 1 << 20;
    float* x = nullptr;
    REQUIRE(cudaMalloc(&x, n * sizeof(float)) == cudaSuccess);
    std::vector<float> host(n);
    const auto in_order = [&](auto& gpu, cudaStream_t before, cudaStream_t after) {
        REQUIRE(cudaMemsetAsync(x, 0, n * sizeof(float), before) == cudaSuccess);
        for (int time = 0; time < 3; ++time) gpu.launch(increment{{x, n}});
        REQUIRE(cudaMemcpyAsync(host.data(), x, n * sizeof(float), cudaMemcpyDefault, after) == cudaSuccess);
        REQUIRE(cudaStreamSynchronize(after) == cudaSuccess);
        for (const float each : host) {
            if (each != 3) FAIL(each);
        }
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    };
    // A blocking stream, the default kind: it and the default stream wait for each other.
    cudaStream_t blocking = nullptr;
    REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
    for (const cudaStream_t stream : {cudaStream_t{}, cudaStreamLegacy}) {
        ht::cuda gpu{stream};
        in_order(gpu, stream, stream);
        in_order(gpu, blocking, blocking);
        in_order(gpu, blocking, stream);
        ht::cuda by_option{{.stream = stream}};
        in_order(by_option, stream, stream);
        const ht::tensor<std::byte, 1> memory(gpu.memory(), {4096});
        ht::cuda sparing{stream, std::span<std::byte>(memory.data(), 4096)};
        in_order(sparing, stream, blocking);
    }
    ht::cuda own{ht::own_stream}, like_it, other_option{{.device = 0}};
    for (const ht::cuda* each : {&own, &like_it, &other_option}) {
        CHECK(each->stream() != nullptr);
        CHECK(each->stream() != cudaStreamLegacy);
    }
    CHECK(own.stream() != like_it.stream());
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaFree(x) == cudaSuccess);
    CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

/// What the program captures on a stream, done so many times.
void capture_and_launch(cudaStream_t stream, int times, const auto& f) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    f();
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    for (int i = 0; i < times; ++i) CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("cuda: the program captures a borrowed stream") {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    {
        ht::cuda gpu{stream};
        constexpr ht::extent rows = 300, width = 64;
        const ht::tensor<float, 2> x(gpu.memory(), {rows, width});
        const ht::tensor<float, 1> sums(gpu.memory(), {width});
        gpu.fill(x.data(), rows * width, 0.0f);
        const auto sum = [&](auto& d) {
            ht::kernel::column_sum<std::remove_reference_t<decltype(d)>>::run(d, x.view(), sums.view(),
                                                                              ht::write_mode::overwrite);
        };
        std::vector<float> host(width);
        const ht::cuda_graph own = gpu.capture([&] { gpu.fill(sums.data(), width, 2.0f); });

        // A context without scratch memory cannot take it now; nor may it wait, or take what is on the host.
        auto given_back = std::make_unique<ht::tensor<float, 1>>(gpu.memory(), ht::shape<1>{1024});
        const std::size_t held = gpu.memory().usage().held();
        capture_and_launch(stream, 5, [&] {
            gpu.launch(increment{{x.data(), rows * width}});
            CHECK_THROWS_WITH_AS(sum(gpu),
                                 doctest::Contains("bytes are requested for workspace, while the program captures the "
                                                   "stream, and a graph would own them"),
                                 ht::capture_error);
            CHECK_THROWS_AS((ht::tensor<float, 1>(gpu.memory(), {16})), ht::capture_error);
            CHECK_THROWS_WITH_AS(gpu.synchronize(), doctest::Contains("captured stream: "), ht::capture_error);
            CHECK_THROWS_AS(gpu.upload(sums.data(), host.data(), sizeof(float)), ht::capture_error);
            CHECK_THROWS_AS(gpu.memory().read(host.data(), sums.data(), sizeof(float)), ht::capture_error);
            CHECK_THROWS_AS(gpu.memory().write(sums.data(), host.data(), sizeof(float)), ht::capture_error);
            CHECK_THROWS_AS(static_cast<void>(gpu.capture([] {})), ht::capture_error);
            CHECK_THROWS_AS(gpu.replay(own), ht::capture_error);
            given_back.reset();  // its memory goes back once the capture is over
            ht::cuda for_one_call{stream};
            for_one_call.run(twice{sums.data()});
        });
        CHECK(gpu.memory().usage().held() < held);
        gpu.memory().read(host.data(), x.data(), width * sizeof(float));
        CHECK(host[0] == 5);

        // Allowed: a context that has done the same work before, or was given memory.
        sum(gpu);
        capture_and_launch(stream, 2, [&] {
            gpu.launch(increment{{x.data(), rows * width}});
            sum(gpu);
        });
        gpu.memory().read(host.data(), sums.data(), width * sizeof(float));
        CHECK(host[7] == 7 * rows);
        const std::size_t bytes = ht::workspace_bytes(gpu, sum);
        const ht::tensor<std::byte, 1> memory(gpu.memory(), {static_cast<ht::extent>(bytes)});
        capture_and_launch(stream, 1, [&] {
            ht::cuda for_one_call{stream, std::span<std::byte>(memory.data(), bytes)};
            for_one_call.launch(increment{{x.data(), rows * width}});
            sum(for_one_call);
        });
        gpu.memory().read(host.data(), sums.data(), width * sizeof(float));
        CHECK(host[63] == 8 * rows);
    }
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("cuda: memory given back while the program captures the stream returns to the context afterwards") {
    ht::cuda gpu;
    const auto used = [&] {
        std::uint64_t bytes = 0;
        REQUIRE(cudaMemPoolGetAttribute(gpu.memory().pool(), cudaMemPoolAttrUsedMemCurrent, &bytes) == cudaSuccess);
        return bytes;
    };
    auto x = std::make_unique<ht::tensor<float, 1>>(gpu.memory(), ht::shape<1>{1 << 20});
    const ht::tensor<float, 1> y(gpu.memory(), {32});
    gpu.fill(x->data(), 1 << 20, 1.0f);
    gpu.synchronize();
    CHECK(used() >= 4 << 20);
    capture_and_launch(gpu.stream(), 1, [&] {
        gpu.copy(y.data(), x->data(), 32 * sizeof(float));
        x.reset();
    });
    CHECK(used() >= 4 << 20);  // the launch was of memory that was still there
    std::vector<float> host(32);
    gpu.memory().read(host.data(), y.data(), 32 * sizeof(float));
    CHECK(host[31] == 1);
    const ht::tensor<float, 1> next(gpu.memory(), {32});
    gpu.synchronize();
    CHECK(used() < 4 << 20);
}

TEST_CASE("cuda: the default stream is not captured, nor used while a stream is that it waits for") {
    ht::cuda gpu{cudaStream_t{}};
    CHECK_THROWS_WITH_AS(static_cast<void>(gpu.capture([] {})), doctest::Contains("ht::own_stream"), ht::capture_error);
    cudaStream_t blocking = nullptr;
    REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
    const ht::tensor<float, 1> x(gpu.memory(), {32});
    gpu.fill(x.data(), 32, 1.0f);
    gpu.synchronize();
    {
        ht::cuda borrower{blocking};
        capture_and_launch(blocking, 2, [&] {
            borrower.launch(increment{{x.data(), 32}});
            CHECK_THROWS_WITH_AS((ht::tensor<float, 1>(gpu.memory(), {32})), doctest::Contains("the default stream"),
                                 ht::capture_error);
            CHECK_THROWS_AS(gpu.synchronize(), ht::capture_error);
        });
    }
    std::vector<float> host(32);
    gpu.memory().read(host.data(), x.data(), 32 * sizeof(float));
    CHECK(host[31] == 3);
    CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE("cuda: memory that was given back stays in a context's own pool; the GPU's pools are as they were") {
    const auto attribute = [](cudaMemPool_t pool, cudaMemPoolAttr which) {
        std::uint64_t value = 0;
        REQUIRE(cudaMemPoolGetAttribute(pool, which, &value) == cudaSuccess);
        return value;
    };
    cudaMemPool_t of_gpu = nullptr;
    REQUIRE(cudaDeviceGetDefaultMemPool(&of_gpu, 0) == cudaSuccess);
    const std::uint64_t before = attribute(of_gpu, cudaMemPoolAttrReleaseThreshold);
    constexpr std::uint64_t bytes = std::uint64_t{64} << 20;
    const auto use = [&](ht::cuda& gpu) {
        const ht::tensor<std::byte, 1> x(gpu.memory(), {static_cast<ht::extent>(bytes)});
        gpu.memory().clear(x.data(), bytes);
    };
    ht::cuda gpu, frugal{{.pool_keeps = 0}};
    CHECK(gpu.memory().pool() == nullptr);  // no pool was requested
    for (ht::cuda* const each : {&gpu, &frugal}) {
        use(*each);
        each->synchronize();
        each->synchronize();
        CHECK(each->memory().pool() != of_gpu);
        CHECK(attribute(each->memory().pool(), cudaMemPoolAttrUsedMemCurrent) == 0);
    }
    CHECK(attribute(gpu.memory().pool(), cudaMemPoolAttrReservedMemCurrent) >= bytes);
    CHECK(attribute(frugal.memory().pool(), cudaMemPoolAttrReservedMemCurrent) < bytes);
    CHECK(attribute(of_gpu, cudaMemPoolAttrReleaseThreshold) == before);

    // Contexts for single calls share the memory that they are given.
    const ht::cuda_pool shared(0);
    ht::cuda on_default{cudaStream_t{}};
    CHECK(on_default.memory().pool() == nullptr);  // the GPU's present one
    for (int call = 0; call < 2; ++call) {
        ht::cuda for_one_call{{.stream = gpu.stream(), .pool = shared.get()}};
        use(for_one_call);
        for_one_call.synchronize();
        CHECK(for_one_call.memory().pool() == shared.get());
        CHECK(attribute(shared.get(), cudaMemPoolAttrReservedMemCurrent) >= bytes);
    }
}

TEST_CASE("cuda: a context for one call makes few CUDA calls") {
    if (halftone_ptx_calls == nullptr) return;  // on a GPU calls are not counted
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    float* x = nullptr;
    REQUIRE(cudaMalloc(&x, 32 * sizeof(float)) == cudaSuccess);
    const int properties = halftone_ptx_calls("cudaGetDeviceProperties"),
              pools = halftone_ptx_calls("cudaMemPoolCreate");
    for (int call = 0; call < 3; ++call) {
        ht::cuda gpu{stream};
        gpu.launch(increment{{x, 32}});
        CHECK(gpu.architecture().version >= 80);
        CHECK(gpu.architecture().shared_bytes >= 99 * 1024);
        ht::cuda of_its_own;
        of_its_own.fill(x, 32, 0.0f);
    }
    CHECK(halftone_ptx_calls("cudaGetDeviceProperties") == properties);
    CHECK(halftone_ptx_calls("cudaMemPoolCreate") == pools);
    ht::cuda gpu{stream};
    CHECK(gpu.properties().multiProcessorCount == gpu.architecture().multiprocessors);
    CHECK(gpu.properties().major * 10 + gpu.properties().minor == gpu.architecture().version);
    CHECK(gpu.description().size() > 6);
    CHECK(halftone_ptx_calls("cudaGetDeviceProperties") == properties + 1);
    CHECK(cudaFree(x) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("cuda: a context with the user's scratch memory allocates nothing") {
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

TEST_CASE("cuda: one stream waits for another, by an event or directly") {
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

TEST_CASE("cuda: the thread's current device is unchanged, and need not be the context's") {
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
        // The device of a borrowed stream is read from the stream.
        ht::cuda borrower{gpu.stream()};
        CHECK(borrower.device() == device);
        borrower.wait_for(gpu);
    }
    CHECK(present() == 0);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("cuda: an earlier error of the user's is not reported as a launch's") {
    ht::cuda gpu;
    const ht::tensor<float, 1> x(gpu.memory(), {32});
    CHECK(cudaSetDevice(1000) != cudaSuccess);
    CHECK_NOTHROW(gpu.launch(increment{{x.data(), 32}}));
    CHECK_NOTHROW(gpu.fill(x.data(), 32, 1.0f));
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    gpu.synchronize();
}

TEST_CASE("cuda: a growable arena has pages of the GPU's memory, which are returned and come again") {
    ht::cuda gpu{{.arenas = ht::arena_kind::growable}};
    const std::size_t page = gpu.memory().page_bytes();
    if (page == 0) return;  // a GPU without CUDA's virtual memory calls
    {
        ht::arena space(gpu.memory(), ht::memory_kind::activation);
        std::byte* const first = space.allocate(page / 2);
        CHECK(space.reserved() == page);
        std::byte* const second = space.allocate(3 * page);
        CHECK(second == first + page / 2);
        CHECK(space.reserved() == 4 * page);
        CHECK(gpu.reaches(second + 2 * page));
        // Across the border between the first page and those that came later.
        constexpr ht::extent n = 1000;
        auto* const across = reinterpret_cast<float*>(first + page) - n / 2;
        gpu.fill(across, n, 1.0f);
        gpu.launch(increment{{across, n}});
        std::vector<float> host(n);
        gpu.memory().read(host.data(), across, n * sizeof(float));
        CHECK(host == std::vector<float>(n, 2.0f));
        // All but the first page goes back, and comes again at the same place.
        gpu.fill(reinterpret_cast<float*>(first), n, 3.0f);
        space.deallocate(second, 3 * page);
        gpu.memory().release_cached();
        CHECK(space.reserved() == page);
        CHECK(gpu.memory().usage().held() == page);
        gpu.memory().read(host.data(), first, n * sizeof(float));
        CHECK(host == std::vector<float>(n, 3.0f));
        CHECK(space.allocate(5 * page) == second);
        gpu.fill(reinterpret_cast<float*>(second + 4 * page), n, 4.0f);
        gpu.memory().read(host.data(), second + 4 * page, n * sizeof(float));
        CHECK(host == std::vector<float>(n, 4.0f));
        space.deallocate(second, 5 * page);
        space.deallocate(first, page / 2);
    }
    CHECK(gpu.memory().usage().held() == 0);
    // Beyond the limit there is the one error, as without ranges.
    ht::cuda small{{.memory_limit = 2 * page, .arenas = ht::arena_kind::growable}};
    ht::arena space(small.memory(), ht::memory_kind::activation);
    CHECK_THROWS_AS(space.allocate(3 * page), ht::out_of_memory);
    std::byte* const fits = space.allocate(2 * page);
    space.deallocate(fits, 2 * page);
}

TEST_CASE("cuda: errors name their cause") {
    CHECK_THROWS_AS(ht::cuda({.device = 1000}), ht::argument_error);
    ht::cuda gpu({.memory_limit = 1 << 20});
    CHECK_THROWS_AS((ht::tensor<float, 1>(gpu.memory(), {1 << 20})), ht::out_of_memory);
    const ht::tensor<float, 1> fits(gpu.memory(), {1 << 10});
    CHECK(gpu.description().substr(0, 6) == "cuda, ");
}

/// Numbers of rows, on the host or on the GPU.
struct number_batch {
    ht::const_view<std::int32_t, 1> values;
    template <class Function>
    number_batch with_views(const Function& f) const {
        return {f(values)};
    }
};
struct collate_numbers {
    number_batch operator()(std::span<const std::int32_t> rows, ht::batch_memory& memory) const {
        const auto values = memory.make<std::int32_t>(ht::shape<1>{static_cast<ht::extent>(rows.size())});
        std::copy(rows.begin(), rows.end(), values.data());
        return {values};
    }
};

TEST_CASE("cuda: a data loader's batches are copied from pinned memory, which is not overwritten before") {
    std::vector<std::int32_t> rows(96);
    std::iota(rows.begin(), rows.end(), 0);
    for (const int workers : {0, 1, 3}) {
        ht::cuda gpu;
        const ht::tensor<std::int32_t, 2> seen{gpu.memory(), {32, 6}};
        std::vector<std::int32_t> want;
        {
            ht::data_loader loader{gpu, rows, {.batch_size = 6, .num_workers = workers, .seed = 3}, collate_numbers{}};
            ht::data_loader plain{rows, {.batch_size = 6, .seed = 3}, collate_numbers{}};
            // The host launches all steps; each reads its batch when the GPU comes to it.
            for (ht::extent step = 0; step < 32; ++step) {
                const number_batch* batch = loader.next();
                if (batch == nullptr) batch = loader.next();
                REQUIRE(gpu.reaches(batch->values.data()));
                gpu.copy(seen.data() + step * 6, batch->values.data(), 6 * sizeof(std::int32_t));
                const number_batch* same = plain.next();
                if (same == nullptr) same = plain.next();
                want.insert(want.end(), same->values.data(), same->values.data() + 6);
            }
        }
        std::vector<std::int32_t> got(32 * 6);
        gpu.memory().read(got.data(), seen.data(), got.size() * sizeof got[0]);
        CHECK(got == want);
    }
}

}  // namespace
