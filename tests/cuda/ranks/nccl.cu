// SPDX-License-Identifier: MIT
/// \file
/// Ranks over NCCL, one for each GPU: the bytes of collectives, sums with the bits of ranks as threads on CPUs, and calls that differ.
// compile: read, at most 40 kernels.
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel.cuh>

#if __has_include(<nccl.h>)
#include <halftone/ranks/nccl.cuh>
#include <halftone/ranks/reduce.hpp>
#include <halftone/ranks/threads.hpp>

namespace {

namespace ht = halftone;

int nccl_ranks() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
    return count < 4 ? count : 4;
}
std::vector<float> nccl_values(int rank, int count) {
    std::vector<float> x;
    for (int i = 0; i < count; ++i) x.push_back(1.0f / static_cast<float>(3 + i + 7 * rank) - 0.01f);
    return x;
}

TEST_CASE("nccl: sums have the bits of ranks as threads") {
    const int n = nccl_ranks();
    constexpr int count = 1'001;
    if (n == 0) return;
    std::vector<float> expected;
    ht::run_ranks(n, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        std::vector<float> x = nccl_values(comm.rank(), count);
        ht::all_reduce<ht::bfloat16>(device, comm, "x", std::span(x));
        ht::all_reduce<float>(device, comm, "x", std::span(x));
        if (comm.rank() == 0) expected = x;
    });
    std::mutex mutex;
    ht::run_ranks(n, [&](ht::communicator& host) {
        ht::cuda gpu{{.device = host.rank()}};
        ht::nccl_communicator comm{gpu, host};
        ht::buffer memory(gpu.memory(), count * sizeof(float), ht::memory_kind::other);
        const ht::view<float, 1> x(reinterpret_cast<float*>(memory.data()), ht::shape{count});
        std::vector<float> values = nccl_values(host.rank(), count);
        gpu.memory().write(x.data(), values.data(), count * sizeof(float));
        ht::all_reduce<ht::bfloat16>(gpu, comm, "x", x);
        ht::all_reduce<float>(gpu, comm, "x", x);
        gpu.memory().read(values.data(), x.data(), count * sizeof(float));
        const int sum = ht::all_reduce_sum(comm, "a value of the host", host.rank() + 1);
        comm.broadcast("x", x.data(), count * sizeof(float), n - 1);
        const auto alone = comm.split(host.rank(), 0);
        alone->barrier("alone");
        const std::lock_guard lock(mutex);
        CHECK(std::memcmp(values.data(), expected.data(), count * sizeof(float)) == 0);
        CHECK(sum == n * (n + 1) / 2);
        CHECK(std::string(comm.engine()) == "nccl");
    });
}

TEST_CASE("nccl: calls that differ are named, and no kernel hangs") {
    const int n = nccl_ranks();
    if (n < 2) return;
    try {
        ht::run_ranks(n, [&](ht::communicator& host) {
            ht::cuda gpu{{.device = host.rank()}};
            ht::nccl_communicator comm{gpu, host};
            ht::buffer memory(gpu.memory(), 4096, ht::memory_kind::other);
            comm.broadcast("x", memory.data(), host.rank() == 1 ? 8 : 16, 0);
        });
        FAIL("nothing was thrown");
    } catch (const ht::communication_error& e) {
        CHECK(std::string(e.what()).find("rank 1 calls broadcast \"x\" of 8 bytes from rank 0") != std::string::npos);
    }
}

}  // namespace
#endif
