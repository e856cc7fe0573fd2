// SPDX-License-Identifier: MIT
/// \file
/// The interface by which a context runs its parallel regions: on halftone's own thread pool (thread_pool.hpp), or on
/// an executor that the user's program provides.
///
///     struct my_executor : ht::executor { ... };       // forwards to TBB, OpenMP, a game's job system
///     ht::cpu device{{.executor = &mine}};
///
/// A region is a list of work items that any worker can take: each worker takes the next item until none is left. So a
/// region needs no particular worker and does not wait for workers that start late. On a shared machine, a thread that
/// the scheduler has suspended for milliseconds delays the region only if it was suspended within an item.
#pragma once

#include <halftone/exec/cpu/region_gate.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Runs a function on several threads at once.
class executor {
  public:
    using task = void (*)(void* argument, int worker) noexcept;

    executor() = default;
    executor(const executor&) = delete;
    executor& operator=(const executor&) = delete;
    virtual ~executor() = default;

    /// The largest number of workers that `run` uses; constant for the executor's lifetime.
    virtual int concurrency() const = 0;
    /// Calls function(argument, worker) for some of the workers in [0, concurrency()), at least one and each at most
    /// once, concurrently if possible. Returns when all calls that it made have returned, and makes none afterwards.
    /// When the first call returns, all work items have been taken. So the best executor runs one worker on the calling
    /// thread, and when that returns cancels the workers that have not started and waits for the others; a region_gate
    /// does both. Calling every worker and waiting for all is correct, too. Effects before `run` are visible to the
    /// calls, and effects of the calls to the caller after `run`. Contexts that share an executor may call it from
    /// several threads at once.
    virtual void run(task function, void* argument) = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
