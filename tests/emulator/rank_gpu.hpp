// SPDX-License-Identifier: MIT
/// \file
/// Ranks with an emulated GPU each, behind a communicator that treats the memory of a GPU as NCCL may: bytes are read at the last
/// moment before the sender's wait is over, and arrive at the last moment before the receiver's is, or as soon as anybody waits for
/// anything; until then the receiver's memory is 0xff, a NaN. It can be damaged: a wait that is left out, a collective that does not
/// wait for the work before it, or is left out.
///
///     ht::run_ranks(2, [&](ht::communicator& host) {
///         rank_gpu::device gpu;
///         gpu.memory().work_later(true);                    // the host runs ahead of the GPU
///         rank_gpu::communicator comm(gpu, host);
///         ht::all_reduce<float>(gpu, comm, "x", x);
///     }, {.delivery = ht::delivery::late});
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <emulator/device.hpp>

#include <halftone/ranks/call.hpp>
#include <halftone/ranks/communicator.hpp>

namespace rank_gpu {

namespace ht = halftone;

using device = ht::emulator::device;

/// When bytes arrive.
enum class arrival {
    last_moment,  ///< in the wait for them
    with_others,  ///< in the first wait for anything; what the rank began first arrives first
};

/// What is wrong with a rank's collectives on the memory of GPUs.
enum class harm {
    none,
    wait_left_out,     ///< the wait does nothing: what it would bring never comes
    begins_too_early,  ///< the collective reads and poisons memory at once, before the work that was given to the GPU
    left_out,          ///< the rank does not call it
};
struct damage {
    harm kind = harm::none;
    long call = -1;                             ///< the number of the collective among a rank's
    int rank = -1;                              ///< whose; -1: of all ranks
    std::vector<std::string>* calls = nullptr;  ///< gets the names of rank 0's collectives
};

/// Collectives on the memory of an emulated GPU: they go over a communicator of host threads, out of host memory and into host memory
/// that only waits connect with the GPU's. Nobody else can access that memory at any other moment: it is closed to the host. Values
/// in host memory travel by the host's communicator itself, which also compares the calls of the ranks.
class communicator final : public ht::communicator {
    using call_kind = ht::detail::call_kind;
    /// A call that is under way, in host memory. What it sends has not been read until somebody waits.
    struct call {
        const void* send = nullptr;
        void* receive = nullptr;
        std::vector<std::byte> sent, received;
        bool is_read = false, has_arrived = false;
        ht::detail::collective_call mine{};
        std::vector<ht::detail::collective_call> all{};  ///< of all ranks
        ht::pending compared{}, later{};
    };

  public:
    communicator(device& gpu, ht::communicator& host, arrival when = arrival::last_moment, const damage& with = {})
        : ht::communicator(host.rank(), host.size(), host.options()),
          gpu_(&gpu),
          host_(&host),
          wire_(host.split(0, host.rank())),
          arrival_(when),
          damage_(with) {}
    /// Others may still wait for what this rank sends.
    ~communicator() override {
        try {
            progress();
            for (const auto& c : left_) c->later.wait();
        } catch (const std::exception&) {
        }
    }

    const char* engine() const override { return "emulated"; }
    ht::pending begin_exchange(const char* what, const void* send, void* receive, std::size_t bytes) override {
        if (!gpu_->reaches(receive)) return of_host(host_->begin_exchange(what, send, receive, bytes));
        const std::size_t all = bytes * static_cast<std::size_t>(size());
        return begin({call_kind::exchange, what, bytes}, send, all, receive, all, [=, this](call& c) {
            return wire_->begin_exchange(c.mine.what, c.sent.data(), c.received.data(), bytes);
        });
    }
    ht::pending begin_all_gather(const char* what, const void* mine, void* all, std::size_t bytes) override {
        if (!gpu_->reaches(all)) return of_host(host_->begin_all_gather(what, mine, all, bytes));
        return begin({call_kind::all_gather, what, bytes}, mine, bytes, all, bytes * static_cast<std::size_t>(size()),
                     [=, this](call& c) {
                         return wire_->begin_all_gather(c.mine.what, c.sent.data(), c.received.data(), bytes);
                     });
    }
    ht::pending begin_broadcast(const char* what, void* data, std::size_t bytes, int root) override {
        if (!gpu_->reaches(data)) return of_host(host_->begin_broadcast(what, data, bytes, root));
        const bool sends = rank() == root;
        return begin({call_kind::broadcast, what, bytes, root}, data, sends ? bytes : 0, data, sends ? 0 : bytes,
                     [=, this](call& c) {
                         return wire_->begin_broadcast(c.mine.what, sends ? c.sent.data() : c.received.data(), bytes,
                                                       root);
                     });
    }
    void barrier(const char* what) override {
        progress();
        host_->barrier(what);
    }
    std::unique_ptr<ht::communicator> split(int, int) override { return nullptr; }

  private:
    class collective final : public ht::detail::collective {
      public:
        collective(communicator& on, std::shared_ptr<call> c, bool is_left_out)
            : on_(&on), call_(std::move(c)), is_left_out_(is_left_out) {}
        bool is_done() override { return false; }
        void wait() override {
            if (is_left_out_) return on_->left_.push_back(call_);
            // Both belong to the GPU, whose later work waits; the host does not.
            on_->gpu_->memory().enqueue([on = on_, c = call_] { on->deliver(*c); });
        }

      private:
        communicator* on_;
        std::shared_ptr<call> call_;
        bool is_left_out_;
    };
    /// A collective on host memory. While the host waits, its GPU goes on, and may be waited for by others.
    class host_collective final : public ht::detail::collective {
      public:
        host_collective(communicator& on, ht::pending later) : on_(&on), later_(std::move(later)) {}
        bool is_done() override { return later_.is_done(); }
        void wait() override {
            on_->progress();
            later_.wait();
        }

      private:
        communicator* on_;
        ht::pending later_;
    };

    ht::pending of_host(ht::pending later) {
        return ht::pending(std::make_unique<host_collective>(*this, std::move(later)));
    }

    /// `receive` is poisoned, but for what is sent from within.
    template <class Begin>
    ht::pending begin(const ht::detail::collective_call& mine, const void* send, std::size_t sent, void* receive,
                      std::size_t received, const Begin& on_wire) {
        const bool is_harmed = count_++ == damage_.call && (damage_.rank == -1 || damage_.rank == rank());
        if (rank() == 0 && damage_.calls != nullptr) damage_.calls->push_back(mine.what);
        if (is_harmed && damage_.kind == harm::left_out) return {};
        auto c = std::make_shared<call>();
        c->send = send, c->receive = receive;
        c->sent.assign(sent, std::byte{0xff}), c->received.assign(received, std::byte{0xff});
        c->mine = mine, c->all.resize(static_cast<std::size_t>(size()));
        c->compared = host_->begin_all_gather("emulated: calls", &c->mine, c->all.data(), sizeof c->mine);
        const auto poison = [this, receive, received, send, sent] {
            std::vector<std::byte> bytes(received, std::byte{0xff});
            const std::ptrdiff_t own = static_cast<const std::byte*>(send) - static_cast<std::byte*>(receive);
            if (sent != 0 && own >= 0 &&
                own + static_cast<std::ptrdiff_t>(sent) <= static_cast<std::ptrdiff_t>(received))
                gpu_->memory().copy(bytes.data() + own, send, sent);
            gpu_->memory().copy(receive, bytes.data(), received);
        };
        if (is_harmed && damage_.kind == harm::begins_too_early) {
            now([&] { read(*c), poison(); });
        } else {
            gpu_->memory().enqueue(poison);
        }
        gpu_->memory().enqueue([this, c, on_wire] {
            c->later = on_wire(*c);
            under_way_.push_back(c);
            if (arrival_ == arrival::with_others) arriving_.push_back(c);
        });
        return ht::pending(std::make_unique<collective>(*this, c, is_harmed && damage_.kind == harm::wait_left_out));
    }
    /// Calls f, which accesses the GPU's memory, before the work in its queue.
    template <class F>
    void now(const F& f) {
        const bool works_later = gpu_->memory().is_late();
        gpu_->memory().work_later(false);
        f();
        gpu_->memory().work_later(works_later);
    }
    /// Memory that has been freed meanwhile, because a wait was left out, is 0xff.
    void read(call& c) {
        if (std::exchange(c.is_read, true) || c.sent.empty() || !gpu_->reaches(c.send)) return;
        gpu_->memory().copy(c.sent.data(), c.send, c.sent.size());
    }
    /// In a wait for anything: other ranks may read what this one sends in all its calls, which it must not have changed.
    void read_all() {
        for (const auto& c : under_way_) read(*c);
        under_way_.clear();
    }
    void deliver(call& c) {
        read_all();
        for (const auto& other : std::exchange(arriving_, {})) arrive(*other);
        arrive(c);
    }
    void arrive(call& c) {
        if (std::exchange(c.has_arrived, true)) return;
        c.compared.wait();
        const std::string difference = ht::detail::describe_difference(c.all, ht::detail::first_numbers(c.all.size()));
        if (!difference.empty()) throw ht::communication_error(difference);
        c.later.wait();
        if (!c.received.empty()) gpu_->memory().copy(c.receive, c.received.data(), c.received.size());
    }
    /// The GPU does all that it was given.
    void progress() {
        gpu_->memory().finish();
        read_all();
    }

    device* gpu_;
    ht::communicator* host_;
    std::unique_ptr<ht::communicator> wire_;  // of the same ranks: what GPUs do is ordered only among itself
    arrival arrival_;
    damage damage_;
    long count_ = 0;
    std::vector<std::shared_ptr<call>> under_way_, arriving_, left_;
};

/// What a rank computes on, and by what its bytes travel; as tests/ranks/rank_loop.hpp takes it.
struct machine {
    using device_type = rank_gpu::device;
    struct options {
        bool works_later = false;  ///< whether the host runs ahead of the GPU
        rank_gpu::arrival arrival = arrival::last_moment;
        rank_gpu::damage damage{};
    };

    machine(ht::communicator& host, const options& how)
        // Other files look for races in kernels.
        : device({.seed = static_cast<std::uint64_t>(host.rank() + 1), .check = ht::emulator::checking::values_only}),
          comm(device, host, how.arrival, how.damage) {
        device.memory().work_later(how.works_later);
    }
    rank_gpu::device device;
    communicator comm;
};

}  // namespace rank_gpu
