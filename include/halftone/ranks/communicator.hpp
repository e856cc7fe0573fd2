// SPDX-License-Identifier: MIT
/// \file
/// Communicators: the ranks of a run, each with a number, and what they do together. One interface for all engines:
/// ranks as threads of one process (ranks/threads.hpp), MPI between processes (ranks/mpi.hpp), and NCCL between GPUs
/// (ranks/nccl.cuh).
///
///     void train(ht::communicator& comm) {
///         std::vector<float> all(static_cast<std::size_t>(comm.size()));
///         const float mine = 1.0f;
///         comm.all_gather("losses", &mine, all.data(), sizeof mine);       // returns when `all` is complete
///         ht::pending later = comm.begin_broadcast("weights", w, bytes, 0);  // begins, and goes on beside the program
///         later.wait();
///     }
///
/// Engines move bytes; they do not add. Sums of several ranks are formed in one order, which depends neither on the
/// engine nor on its topology (ranks/reduce.hpp), so that they have the same bits everywhere.
///
/// Every function is collective: all ranks of a communicator call the same functions in the same order, with the same
/// number of bytes. `what` names the values in messages; a rank that calls something else ends all ranks with a
/// communication_error that names it, and so does a rank that has ended or does not arrive within the deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include <halftone/config.hpp>
#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A rank that has ended, does not answer, or calls something else than the others; the message names it.
struct communication_error : error {
    using error::error;
};

/// How a communicator behaves.
struct communicator_options {
    /// The longest that a rank waits for the others; then all end with a communication_error.
    std::chrono::milliseconds deadline{60'000};
    /// Whether calls are compared among the ranks before any bytes move.
    bool checks_calls = true;
};

namespace detail {

/// A collective that goes on beside the program, of one engine.
class collective {
  public:
    collective() = default;
    collective(const collective&) = delete;
    collective& operator=(const collective&) = delete;
    virtual ~collective() = default;
    virtual bool is_done() = 0;
    /// Throws communication_error.
    virtual void wait() = 0;
};

}  // namespace detail

/// A collective that has begun. Its buffers must stay, and nobody else may write them, until wait() has returned. Without
/// a call of wait() the destructor waits, and drops errors.
class pending {
  public:
    pending() = default;
    explicit pending(std::unique_ptr<detail::collective> work) : work_(std::move(work)) {}
    pending(pending&&) = default;
    pending& operator=(pending&& other) {
        if (this != &other) {
            drop();
            work_ = std::move(other.work_);
        }
        return *this;
    }
    ~pending() { drop(); }

    /// Whether it is complete; true for one that never began.
    bool is_done() const { return !work_ || work_->is_done(); }
    /// Returns when it is complete, on a GPU: makes what the stream does from now on wait. Throws communication_error.
    void wait() {
        if (auto work = std::move(work_)) work->wait();
    }

  private:
    void drop() {
        try {
            wait();
        } catch (const error&) {
        }
    }

    std::unique_ptr<detail::collective> work_;
};

/// The ranks of a run, or some of them. Functions that begin something return at once; what one rank begins first is
/// done first. Not for several threads of a rank at a time.
class communicator {
  public:
    communicator(const communicator&) = delete;
    communicator& operator=(const communicator&) = delete;
    virtual ~communicator() = default;

    /// This rank's number, from 0.
    int rank() const { return rank_; }
    /// The number of ranks.
    int size() const { return size_; }
    const communicator_options& options() const { return options_; }
    /// The engine: "threads", "mpi" or "nccl".
    virtual const char* engine() const = 0;

    /// Piece i of `send`, of `bytes` bytes, goes to rank i; piece i of `receive` comes from rank i.
    virtual pending begin_exchange(const char* what, const void* send, void* receive, std::size_t bytes) = 0;
    /// Piece i of `all`, of `bytes` bytes, comes from rank i; `mine` may be this rank's piece of `all`.
    virtual pending begin_all_gather(const char* what, const void* mine, void* all, std::size_t bytes) = 0;
    /// The bytes of rank `root` replace those of all others.
    virtual pending begin_broadcast(const char* what, void* data, std::size_t bytes, int root) = 0;
    /// Returns when all ranks have called it.
    virtual void barrier(const char* what) = 0;
    /// The communicator of the ranks that give the same color, 0 or more, ordered by key, then by rank here.
    virtual std::unique_ptr<communicator> split(int color, int key) = 0;

    /// begin_exchange, complete when it returns.
    void exchange(const char* what, const void* send, void* receive, std::size_t bytes) {
        begin_exchange(what, send, receive, bytes).wait();
    }
    /// begin_all_gather, complete when it returns.
    void all_gather(const char* what, const void* mine, void* all, std::size_t bytes) {
        begin_all_gather(what, mine, all, bytes).wait();
    }
    /// begin_broadcast, complete when it returns.
    void broadcast(const char* what, void* data, std::size_t bytes, int root) {
        begin_broadcast(what, data, bytes, root).wait();
    }

  protected:
    communicator(int rank, int size, const communicator_options& options)
        : rank_(rank), size_(size), options_(options) {}

  private:
    int rank_, size_;
    communicator_options options_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
