// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in processors.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/processors.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE thread_id current_thread() {
#if defined(__linux__)
    return static_cast<thread_id>(syscall(SYS_gettid));
#else
    return 0;
#endif
}

HALFTONE_OUT_OF_LINE int process_id() {
#if defined(_WIN32)
    return 0;
#else
    return static_cast<int>(getpid());
#endif
}

HALFTONE_OUT_OF_LINE int current_processor() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

HALFTONE_OUT_OF_LINE std::string first_line(const std::string& path) {
    std::string line;
    if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
        for (int c; (c = std::fgetc(file)) != EOF && c != '\n';) line += static_cast<char>(c);
        std::fclose(file);
    }
    return line;
}

HALFTONE_OUT_OF_LINE double quota_of_groups(const std::string& groups, const std::string& mount) {
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

HALFTONE_OUT_OF_LINE int usable_processors() {
    int count = processor_set::of_this_thread().count();
    if (count == 0) count = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
    // A quota of 1.5 processors makes a second thread worthwhile: rounded up.
    const double quota = quota_of_groups("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < count) count = static_cast<int>(quota) + (quota > static_cast<int>(quota) ? 1 : 0);
#endif
    return std::max(count, 1);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
