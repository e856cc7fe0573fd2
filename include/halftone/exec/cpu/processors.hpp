// SPDX-License-Identifier: MIT
/// \file
/// The processors that this process may use, by its affinity mask and its container's CPU quota: often not all of the
/// machine's.
///
///     const int threads = usable_processors();         // what cpu_options::threads = 0 means
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <halftone/config.hpp>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#endif
#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

using thread_id = int;

/// The system's id of this thread; 0 if it has none.
thread_id current_thread();
/// The id of this process, which changes after fork(); 0 if it has none.
int process_id();
/// The number of the processor that this thread runs on; -1 if the system does not report it.
int current_processor();

/// A set of processors by number; always empty on systems without thread affinity.
class processor_set {
  public:
#if defined(__linux__)
    processor_set() { CPU_ZERO(&set_); }
    /// Adds the processors that a thread may use.
    void add_processors_of(thread_id thread) {
        cpu_set_t usable;
        if (thread != 0 && sched_getaffinity(thread, sizeof usable, &usable) == 0) CPU_OR(&set_, &set_, &usable);
    }
    static processor_set of_this_thread() {
        processor_set set;
        set.add_processors_of(current_thread());
        return set;
    }
    void remove(int processor) {
        if (processor >= 0) CPU_CLR(static_cast<std::size_t>(processor), &set_);
    }
    int count() const { return CPU_COUNT(&set_); }
    /// Moves this thread to one of these processors, without binding it there.
    bool move_there() const {
        cpu_set_t usable;
        return count() != 0 && sched_getaffinity(0, sizeof usable, &usable) == 0 &&
               sched_setaffinity(0, sizeof set_, &set_) == 0 && sched_setaffinity(0, sizeof usable, &usable) == 0;
    }

  private:
    cpu_set_t set_;
#else
    void add_processors_of(thread_id) {}
    static processor_set of_this_thread() { return {}; }
    void remove(int) {}
    int count() const { return 0; }
    bool move_there() const { return false; }
#endif
};

/// The first line of a file; empty if there is none.
std::string first_line(const std::string& path);

/// The CPU quota of this process's control groups (version 2 or 1), in processors; 0: no limit. A group is limited by
/// the groups above it, too, of which a container sees only some. `groups` is /proc/self/cgroup, `mount` is
/// /sys/fs/cgroup.
double quota_of_groups(const std::string& groups, const std::string& mount);

/// The number of processors that this process may use, at least 1.
int usable_processors();

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/processors.body.hpp>
#endif
