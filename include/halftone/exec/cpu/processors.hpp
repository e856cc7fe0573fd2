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

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
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

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline thread_id current_thread() {
#if defined(__linux__)
    return static_cast<thread_id>(syscall(SYS_gettid));
#else
    return 0;
#endif
}

inline int process_id() {
#if defined(_WIN32)
    return 0;
#else
    return static_cast<int>(getpid());
#endif
}

inline int current_processor() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

inline std::string first_line(const std::string& path) {
    std::string line;
    if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
        for (int c; (c = std::fgetc(file)) != EOF && c != '\n';) line += static_cast<char>(c);
        std::fclose(file);
    }
    return line;
}

inline double quota_of_groups(const std::string& groups, const std::string& mount) {
    double least = 0;
    const auto take = [&](double quota, double period) {
        if (quota > 0 && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
    };
    const auto take_version_2 = [&](const std::string& folder) {
        const std::string line = first_line(folder + "/cpu.max");  // "150000 100000", or "max 100000"
        const std::size_t space = line.find(' ');
        if (space != std::string::npos) take(std::atof(line.c_str()), std::atof(line.c_str() + space));
    };
    const auto take_version_1 = [&](const std::string& folder) {
        take(std::atof(first_line(folder + "/cpu.cfs_quota_us").c_str()),  // or -1
             std::atof(first_line(folder + "/cpu.cfs_period_us").c_str()));
    };
    const auto each_above = [](std::string path, const auto& visit) {
        while (!path.empty() && path != "/") {
            visit(path);
            path.resize(path.find_last_of('/'));
        }
        visit(std::string());
    };
    std::FILE* const file = std::fopen(groups.c_str(), "r");
    if (file == nullptr) return 0;
    char line[4096];
    while (std::fgets(line, sizeof line, file) != nullptr) {  // "0::/path", or "4:cpu,cpuacct:/path"
        const std::string text = std::string(line).substr(0, std::string(line).find('\n'));
        const std::size_t first = text.find(':'), second = text.find(':', first + 1);
        if (second == std::string::npos || text.compare(second + 1, 1, "/") != 0) continue;
        const std::string path = text.substr(second + 1);
        std::string names(1, ',');
        names.append(text, first + 1, second - first - 1).push_back(',');
        if (names == ",,") {
            each_above(path, [&](const std::string& group) {
                take_version_2(mount + group);
                take_version_2(mount + "/unified" + group);
            });
        } else if (names.find(",cpu,") != std::string::npos) {
            each_above(path, [&](const std::string& group) { take_version_1(mount + "/cpu" + group); });
        }
    }
    std::fclose(file);
    return least;
}

inline int usable_processors() {
    int count = processor_set::of_this_thread().count();
    if (count == 0) count = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
    // A quota of 1.5 processors makes a second thread worthwhile: rounded up.
    const double quota = quota_of_groups("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < count) count = static_cast<int>(quota) + (quota > static_cast<int>(quota) ? 1 : 0);
#endif
    return std::max(count, 1);
}

#endif

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
