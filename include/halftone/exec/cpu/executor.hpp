// SPDX-License-Identifier: MIT
/// \file
/// Who runs the parallel regions of a context: halftone's own thread pool (thread_pool.hpp), or an executor that the
/// user's program already has.
///
///     struct my_executor : ht::executor { ... };       // forwards to TBB, OpenMP, a game's job system
///     ht::cpu device{{.executor = &mine}};
///
/// A region is work that any of its workers can finish alone: each takes what nobody has begun, until nothing is left.
/// So it needs no worker in particular, and ends without those that come late: on a machine that others share, a
/// thread that the scheduler has put aside for milliseconds holds up nobody, unless it has begun something.
#pragma once

#include <halftone/exec/cpu/region_gate.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

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

    /// The most workers that `run` may use; never changes.
    virtual int concurrency() const = 0;
    /// Calls function(argument, worker) for some of the workers in [0, concurrency()), at least one and each at most
    /// once, concurrently where it can; returns when all calls that it made have returned, and makes none afterwards.
    /// The first call to return has seen to it that all work is begun, so the best executor runs one worker on the
    /// calling thread, and when that returns it calls off the workers that have not started and waits for the others:
    /// a region_gate does both. To call every worker and wait for all is correct, too. Effects before `run` are visible
    /// to the calls, theirs to whoever called `run`. Contexts that share an executor call it from the threads that use
    /// them, perhaps at once.
    virtual void run(task function, void* argument) = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
