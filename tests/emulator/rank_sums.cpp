// SPDX-License-Identifier: MIT
/// \file
/// Ranks with an emulated GPU each, behind a communicator that treats the memory of a GPU as NCCL may: bytes are read at the last
/// moment before the sender's wait is over, and arrive at the last moment before the receiver's is. Sums have the bits of ranks on
/// CPUs, and whoever forgets a wait reads NaN or sends what it wrote since.
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/dist/reduce.hpp>
#include <halftone/dist/threads.hpp>
#include <halftone/kernel/device.hpp>

namespace ht = halftone;

namespace {

using emulated_gpu = ht::emulator::device;

/// Collectives on the memory of an emulated GPU: they go over the host's communicator, out of host memory and into host memory
/// that only waits connect with the GPU's. Nobody else can access that memory at any other moment: it is closed to the host.
class gpu_communicator final : public ht::communicator {
    /// A call that is under way, in host memory. What it sends has not been read until somebody waits.
    struct call {
        const void* send;
        std::vector<std::byte> sent, received;
    };

  public:
    gpu_communicator(emulated_gpu& gpu, ht::communicator& host)
        : ht::communicator(host.rank(), host.size(), host.options()), gpu_(&gpu), host_(&host) {}

    const char* engine() const override { return "emulated"; }
    ht::pending begin_exchange(const char* what, const void* send, void* receive, std::size_t bytes) override {
        const std::size_t all = bytes * static_cast<std::size_t>(size());
        gpu_->fill(static_cast<std::uint8_t*>(receive), static_cast<ht::extent>(all), std::uint8_t{0xff});
        return begin(send, all, receive, all,
                     [&](call& c) { return host_->begin_exchange(what, c.sent.data(), c.received.data(), bytes); });
    }
    ht::pending begin_all_gather(const char* what, const void* mine, void* all, std::size_t bytes) override {
        for (int i = 0; i < size(); ++i) {
            std::uint8_t* const piece = static_cast<std::uint8_t*>(all) + static_cast<std::size_t>(i) * bytes;
            if (piece != mine) gpu_->fill(piece, static_cast<ht::extent>(bytes), std::uint8_t{0xff});
        }
        return begin(mine, bytes, all, bytes * static_cast<std::size_t>(size()),
                     [&](call& c) { return host_->begin_all_gather(what, c.sent.data(), c.received.data(), bytes); });
    }
    ht::pending begin_broadcast(const char* what, void* data, std::size_t bytes, int root) override {
        const bool sends = rank() == root;
        return begin(data, sends ? bytes : 0, data, sends ? 0 : bytes, [&](call& c) {
            return host_->begin_broadcast(what, sends ? c.sent.data() : c.received.data(), bytes, root);
        });
    }
    void barrier(const char* what) override { host_->barrier(what); }
    std::unique_ptr<ht::communicator> split(int, int) override { return nullptr; }

  private:
    class collective final : public ht::detail::collective {
      public:
        collective(gpu_communicator& on, std::shared_ptr<call> c, void* receive, ht::pending later)
            : on_(&on), call_(std::move(c)), receive_(receive), later_(std::move(later)) {}
        bool is_done() override { return false; }
        void wait() override {
            on_->take_all();
            later_.wait();
            if (!call_->received.empty())
                on_->gpu_->memory().copy(receive_, call_->received.data(), call_->received.size());
        }

      private:
        gpu_communicator* on_;
        std::shared_ptr<call> call_;
        void* receive_;
        ht::pending later_;
    };

    template <class Begin>
    ht::pending begin(const void* send, std::size_t sent, void* receive, std::size_t received, const Begin& on_host) {
        auto c = std::make_shared<call>();
        c->send = send;
        c->sent.assign(sent, std::byte{0xff});
        c->received.assign(received, std::byte{0xff});
        ht::pending later = on_host(*c);
        calls_.push_back(c);
        return ht::pending(std::make_unique<collective>(*this, c, receive, std::move(later)));
    }
    /// In a wait for anything: other ranks may read what this one sends in all its calls, which it must not have changed.
    void take_all() {
        for (const auto& c : calls_) {
            if (!c->sent.empty()) gpu_->memory().copy(c->sent.data(), c->send, c->sent.size());
        }
        calls_.clear();
    }

    emulated_gpu* gpu_;
    ht::communicator* host_;
    std::vector<std::shared_ptr<call>> calls_;
};

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
std::pair<std::vector<T>, std::vector<T>> sums_on_gpu(ht::communicator& host, int count) {
    emulated_gpu gpu;
    gpu_communicator comm(gpu, host);
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
                    const auto expected = sums_on_cpu<Wire, T>(comm, count), found = sums_on_gpu<Wire, T>(comm, count);
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
                      gpu_communicator comm(gpu, host);
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

}  // namespace
