// SPDX-License-Identifier: MIT
/// \file
/// Sums of ranks with an emulated GPU each, whose communicator reads and writes at the last moment: they have the bits of ranks on
/// CPUs, and whoever forgets a wait reads NaN or sends what it wrote since.
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/rank_gpu.hpp>

#include <halftone/kernel/device.hpp>
#include <halftone/ranks/reduce.hpp>
#include <halftone/ranks/threads.hpp>

namespace emulator_rank_sums_tests {

namespace ht = halftone;

using emulated_gpu = rank_gpu::device;

/// Values in the memory of a rank's GPU.
template <class T>
class gpu_values {
  public:
    gpu_values(emulated_gpu& gpu, const std::vector<T>& values)
        : gpu_(&gpu), memory_(gpu.memory(), values.size() * sizeof(T), ht::memory_kind::other), count_(values.size()) {
        gpu.memory().write(memory_.data(), values.data(), count_ * sizeof(T));
    }
    ht::view<T, 1> view() const {
        return {reinterpret_cast<T*>(memory_.data()), ht::shape{static_cast<ht::extent>(count_)}};
    }
    std::vector<T> read() const {
        std::vector<T> values(count_);
        gpu_->memory().read(values.data(), memory_.data(), count_ * sizeof(T));
        return values;
    }

  private:
    emulated_gpu* gpu_;
    ht::buffer memory_;
    std::size_t count_;
};

template <class T>
std::vector<T> values_of(int rank, int count) {
    std::vector<T> x;
    for (int i = 0; i < count; ++i) x.push_back(static_cast<T>(1.0f / static_cast<float>(3 + i + 7 * rank) - 0.01f));
    return x;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// The sum of all ranks' values, and this rank's piece of it, on a device.
template <class Wire, class T>
std::pair<std::vector<T>, std::vector<T>> sums_on_cpu(ht::communicator& comm, int count) {
    ht::cpu device{{.threads = 1}};
    std::vector<T> all = values_of<T>(comm.rank(), count), values = values_of<T>(comm.rank(), 6 * comm.size()), mine(6);
    ht::all_reduce<Wire>(device, comm, "all", std::span(all));
    ht::reduce_scatter<Wire>(device, comm, "piece", std::span(values), std::span(mine));
    return {all, mine};
}
template <class Wire, class T>
std::pair<std::vector<T>, std::vector<T>> sums_on_gpu(ht::communicator& host, int count, bool works_later) {
    emulated_gpu gpu;
    gpu.memory().work_later(works_later);
    rank_gpu::communicator comm(gpu, host);
    gpu_values<T> all(gpu, values_of<T>(comm.rank(), count)), values(gpu, values_of<T>(comm.rank(), 6 * comm.size())),
        mine(gpu, std::vector<T>(6));
    // Both at once, and waited for in another order.
    auto sum = ht::begin_all_reduce<Wire>(gpu, comm, "all", all.view());
    sum.gather();
    auto piece = ht::begin_reduce_scatter<Wire>(gpu, comm, "piece", values.view(), mine.view());
    piece.wait();
    sum.wait();
    return {all.read(), mine.read()};
}
template <class Wire, class T>
void have_the_bits_of_cpus() {
    for (int n = 1; n <= 4; ++n) {
        CAPTURE(n);
        std::mutex mutex;
        int wrong = 0;
        for (const int count : {24, 37}) {
            ht::run_ranks(
                n,
                [&](ht::communicator& comm) {
                    const auto expected = sums_on_cpu<Wire, T>(comm, count), found = sums_on_gpu<Wire, T>(comm, count, count == 37);
                    const std::lock_guard lock(mutex);
                    wrong += same_bits(expected.first, found.first) && same_bits(expected.second, found.second) ? 0 : 1;
                },
                {.delivery = ht::delivery::late});
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("emulated GPUs: sums of ranks have the bits of CPUs, though their bytes move at the last moment") {
    have_the_bits_of_cpus<float, float>();
    have_the_bits_of_cpus<ht::bfloat16, float>();
    have_the_bits_of_cpus<float, ht::float16>();
}

TEST_CASE("emulated GPUs: who does not wait reads NaN, and sends what it has written since") {
    bool is_nan = false, is_damaged = false, is_right = false;
    ht::run_ranks(2,
                  [&](ht::communicator& host) {
                      emulated_gpu gpu;
                      rank_gpu::communicator comm(gpu, host);
                      const std::vector<float> ones(4, 1.0f);
                      gpu_values<float> sent(gpu, ones), received(gpu, ones);
                      ht::pending later = comm.begin_exchange("x", sent.view().data(), received.view().data(), 8);
                      if (comm.rank() == 0) is_nan = std::isnan(received.read()[3]);
                      later.wait();
                      if (comm.rank() == 0 && received.read() != ones) is_nan = false;

                      // Where the values themselves travel they must stay; where rounded ones do they need not.
                      gpu_values<float> values(gpu, ones), mine(gpu, {0, 0});
                      auto sum = ht::begin_reduce_scatter<float>(gpu, comm, "values", values.view(), mine.view());
                      gpu.fill(values.view().data(), 4, 5.0f);
                      sum.wait();
                      if (comm.rank() == 0) is_damaged = mine.read()[0] == 10;
                      gpu_values<float> rounded(gpu, ones);
                      auto again =
                          ht::begin_reduce_scatter<ht::bfloat16>(gpu, comm, "rounded", rounded.view(), mine.view());
                      gpu.fill(rounded.view().data(), 4, 5.0f);
                      again.wait();
                      if (comm.rank() == 0) is_right = mine.read() == std::vector<float>{2, 2};
                  },
                  {.delivery = ht::delivery::late});
    CHECK(is_nan);
    CHECK(is_damaged);
    CHECK(is_right);
}

}  // namespace emulator_rank_sums_tests
