// SPDX-License-Identifier: MIT
/// \file
/// Ranks with a GPU each, over NCCL: link with halftone::nccl.
///
///     ht::mpi_session session{argc, argv};
///     ht::mpi_communicator host{session};                      // or the communicator of run_ranks
///     ht::cuda gpu{{.device = host.rank() % gpus}};
///     ht::nccl_communicator comm{gpu, host};
///     ht::all_reduce<ht::bfloat16>(gpu, comm, "h.0", gradients);
///
/// Bytes in the GPU's memory travel on a stream of the communicator's own, after what the context's stream had been given
/// when the call began; wait() makes the context's stream wait, not the host. Values in host memory travel by `host`, the
/// communicator that NCCL begins with, which also compares the calls of the ranks and names those that do not come: the
/// host waits in wait() until all ranks have begun.
///
/// A thread looks at NCCL eight times in a deadline. If a rank or a link fails, or the bytes of a call that the GPU has begun
/// do not come within the deadline, it aborts NCCL's communicator, so that no kernel hangs, and all later calls throw
/// communication_error.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#if !__has_include(<nccl.h>)
#error "halftone: ranks/nccl.cuh: <nccl.h> is not found; link with halftone::nccl (CMake), or name its folder with -I"
#endif
#include <nccl.h>

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/ranks/call.hpp>
#include <halftone/ranks/communicator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// NCCL's communicator and stream, the calls that are under way, and the thread that looks at them.
class nccl_engine {
  public:
    using clock = std::chrono::steady_clock;

    /// A call that is under way: between two points of the stream.
    struct operation {
        operation(const collective_call& c, int device, cudaStream_t stream) : call(c), ready(device, stream) {}

        collective_call call;
        cuda_event ready;
        std::optional<cuda_event> done;
        std::optional<clock::time_point> begun;  ///< as the thread has seen it
    };

    nccl_engine(cuda& gpu, communicator& host) : device_(gpu.device()), deadline_(host.options().deadline) {
        ncclUniqueId id{};
        if (host.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
        host.broadcast("nccl: unique id", &id, sizeof id, 0);
        const current_device here(device_);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        check(ncclCommInitRankConfig(&comm_, host.size(), id, host.rank(), &config), "ncclCommInitRankConfig");
        try {
            settle("ncclCommInitRankConfig");
            cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        } catch (...) {
            ncclCommAbort(comm_);
            throw;
        }
        thread_ = std::thread([this] { watch(); });
    }
    nccl_engine(const nccl_engine&) = delete;
    nccl_engine& operator=(const nccl_engine&) = delete;
    ~nccl_engine() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
        }
        changed_.notify_all();
        thread_.join();
        const current_device here(device_);
        if (comm_ != nullptr) {
            try {
                check(ncclCommFinalize(comm_), "ncclCommFinalize");
                settle("ncclCommFinalize");
                ncclCommDestroy(comm_);
            } catch (const error&) {
                ncclCommAbort(comm_);
            }
        }
        cudaStreamDestroy(stream_);
    }

    /// Enqueues issue(comm, stream) behind the context's work so far.
    template <class Issue>
    std::shared_ptr<operation> begin(cuda& gpu, const collective_call& call, const Issue& issue) {
        const std::lock_guard lock(mutex_);
        if (!failure_.empty()) throw communication_error(failure_);
        const current_device here(device_);
        const cuda_event before = gpu.record();
        cuda_check(cudaStreamWaitEvent(stream_, before.get(), 0), "cudaStreamWaitEvent");
        auto op = std::make_shared<operation>(call, device_, stream_);
        check(ncclGroupStart(), "ncclGroupStart");
        const ncclResult_t issued = issue(comm_, stream_);
        const ncclResult_t ended = ncclGroupEnd();
        check(issued, name(call.kind));
        check(ended, "ncclGroupEnd");
        settle(name(call.kind));
        op->done.emplace(device_, stream_);
        under_way_.push_back(op);
        return op;
    }
    void expect_alive() {
        const std::lock_guard lock(mutex_);
        if (!failure_.empty()) throw communication_error(failure_);
    }
    /// Aborts NCCL's communicator: its kernels end, wherever they are. `mutex_` is free.
    void abort(const std::string& why) {
        const std::lock_guard lock(mutex_);
        abort_here(why);
    }

  private:
    void check(ncclResult_t result, const char* call) const {
        if (result == ncclSuccess || result == ncclInProgress) return;
        const char* const why = comm_ == nullptr ? "" : ncclGetLastError(comm_);
        fail<communication_error>("communicator: NCCL: ", call, " gave ", ncclGetErrorString(result),
                                  why[0] == '\0' ? "" : ": ", why);
    }
    /// Waits until NCCL has done on the host what it was given, at most for the deadline.
    void settle(const char* call) const {
        const auto begin = clock::now();
        for (ncclResult_t state = ncclInProgress;;) {
            check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
            if (state != ncclInProgress) return check(state, call);
            if (clock::now() - begin > deadline_)
                fail<communication_error>("communicator: NCCL: ", call, " has not ended within ", deadline_.count(),
                                          " ms");
            std::this_thread::yield();
        }
    }
    void abort_here(const std::string& why) {
        if (!failure_.empty()) return;
        failure_ = why;
        ncclCommAbort(std::exchange(comm_, nullptr));
        under_way_.clear();
    }
    void watch() {
        const current_device here(device_);
        const auto tick = std::clamp(deadline_ / 8, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
        std::unique_lock lock(mutex_);
        while (!is_over_ && failure_.empty()) {
            try {
                look();
            } catch (const error& e) {
                abort_here(e.what());
            }
            changed_.wait_for(lock, tick);
        }
    }
    void look() {
        ncclResult_t state = ncclSuccess;
        check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
        check(state, "a collective");
        while (!under_way_.empty() && under_way_.front()->done->is_over()) under_way_.pop_front();
        if (under_way_.empty() || !under_way_.front()->ready.is_over()) return;
        operation& op = *under_way_.front();
        if (!op.begun) op.begun = clock::now();
        if (clock::now() - *op.begun > deadline_)
            fail<communication_error>("communicator: NCCL: ", describe(op.call), " has not ended within ",
                                      deadline_.count(),
                                      " ms; all ranks have called it, so a GPU or a link does not answer");
    }

    int device_;
    std::chrono::milliseconds deadline_;
    ncclComm_t comm_ = nullptr;
    cudaStream_t stream_ = nullptr;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<operation>> under_way_;
    std::string failure_;
    bool is_over_ = false;
    std::thread thread_;
};

/// The calls of all ranks, on their way over the host's communicator.
struct nccl_calls {
    nccl_calls(communicator& host, const collective_call& call)
        : mine(call), all(static_cast<std::size_t>(host.size())) {
        later = host.begin_all_gather("nccl: calls", &mine, all.data(), sizeof mine);
    }
    /// Returns when all ranks have begun. Throws communication_error if they call different things.
    void compare() {
        later.wait();
        const std::string difference = describe_difference(all, first_numbers(all.size()));
        if (!difference.empty()) throw communication_error(difference);
    }

    collective_call mine;
    std::vector<collective_call> all;
    pending later;
};

class nccl_collective final : public collective {
  public:
    nccl_collective(cuda& gpu, std::shared_ptr<nccl_engine> engine, std::shared_ptr<nccl_engine::operation> op,
                    std::unique_ptr<nccl_calls> calls)
        : gpu_(&gpu), engine_(std::move(engine)), op_(std::move(op)), calls_(std::move(calls)) {}

    bool is_done() override { return (calls_ == nullptr || calls_->later.is_done()) && op_->done->is_over(); }
    void wait() override {
        try {
            if (calls_ != nullptr) calls_->compare();
        } catch (const communication_error& e) {
            engine_->abort(e.what());
            throw;
        }
        engine_->expect_alive();
        gpu_->wait_for(*op_->done);
    }

  private:
    cuda* gpu_;
    std::shared_ptr<nccl_engine> engine_;
    std::shared_ptr<nccl_engine::operation> op_;
    std::unique_ptr<nccl_calls> calls_;
};

}  // namespace detail

/// Ranks with a GPU each. Buffers are in the memory of the context's GPU, or in host memory: then they travel by the host's
/// communicator. The context and that communicator must outlive it.
class nccl_communicator final : public communicator {
  public:
    /// `host`: of the same ranks; all of them call it, each with a GPU of its own. Throws communication_error.
    nccl_communicator(cuda& gpu, communicator& host)
        : communicator(host.rank(), host.size(), host.options()),
          gpu_(&gpu),
          host_(&host),
          engine_(std::make_shared<detail::nccl_engine>(gpu, host)) {}

    const char* engine() const override { return "nccl"; }
    pending begin_exchange(const char* what, const void* send, void* receive, std::size_t bytes) override {
        if (!is_on_gpu(receive, bytes)) return host_->begin_exchange(what, send, receive, bytes);
        return begin({detail::call_kind::exchange, what, bytes}, [=, this](ncclComm_t comm, cudaStream_t stream) {
            ncclResult_t result = ncclSuccess;
            for (int i = 0; i < size(); ++i) {
                const std::size_t offset = static_cast<std::size_t>(i) * bytes;
                keep(result, ncclSend(static_cast<const std::byte*>(send) + offset, bytes, ncclInt8, i, comm, stream));
                keep(result, ncclRecv(static_cast<std::byte*>(receive) + offset, bytes, ncclInt8, i, comm, stream));
            }
            return result;
        });
    }
    pending begin_all_gather(const char* what, const void* mine, void* all, std::size_t bytes) override {
        if (!is_on_gpu(all, bytes)) return host_->begin_all_gather(what, mine, all, bytes);
        return begin({detail::call_kind::all_gather, what, bytes}, [=](ncclComm_t comm, cudaStream_t stream) {
            return ncclAllGather(mine, all, bytes, ncclInt8, comm, stream);
        });
    }
    pending begin_broadcast(const char* what, void* data, std::size_t bytes, int root) override {
        detail::expect_root(root, size());
        if (!is_on_gpu(data, bytes)) return host_->begin_broadcast(what, data, bytes, root);
        return begin({detail::call_kind::broadcast, what, bytes, root}, [=](ncclComm_t comm, cudaStream_t stream) {
            return ncclBroadcast(data, data, bytes, ncclInt8, root, comm, stream);
        });
    }
    /// Waits until the host's thread of each rank has come here; a GPU's work may still go on.
    void barrier(const char* what) override { host_->barrier(what); }
    std::unique_ptr<communicator> split(int color, int key) override {
        std::unique_ptr<communicator> part = host_->split(color, key);
        auto made = std::make_unique<nccl_communicator>(*gpu_, *part);
        made->own_host_ = std::move(part);
        return made;
    }

  private:
    static void keep(ncclResult_t& first, ncclResult_t result) {
        if (first == ncclSuccess || first == ncclInProgress) first = result;
    }
    bool is_on_gpu(const void* p, std::size_t bytes) const { return bytes != 0 && gpu_->reaches(p); }
    template <class Issue>
    pending begin(const detail::collective_call& call, const Issue& issue) {
        std::unique_ptr<detail::nccl_calls> calls;
        if (options().checks_calls) calls = std::make_unique<detail::nccl_calls>(*host_, call);
        auto op = engine_->begin(*gpu_, call, issue);
        return pending(std::make_unique<detail::nccl_collective>(*gpu_, engine_, std::move(op), std::move(calls)));
    }

    std::unique_ptr<communicator> own_host_;  // of a split; destroyed after the engine
    cuda* gpu_;
    communicator* host_;
    std::shared_ptr<detail::nccl_engine> engine_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
