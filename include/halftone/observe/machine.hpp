// SPDX-License-Identifier: MIT
/// \file
/// What the machine tells about itself, for summaries.
///
///     std::cout << ht::cpu_model() << '\n';            // "AMD EPYC 9554 64-Core Processor"
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include <halftone/config.hpp>

#if !defined(_WIN32)
#include <sys/utsname.h>
#include <unistd.h>
#endif

namespace halftone::inline HALFTONE_ABI {

/// The processor's name; its architecture where the system does not tell the name.
inline std::string cpu_model() {
#if defined(_WIN32)
    return "unknown";
#else
    std::ifstream information("/proc/cpuinfo");
    for (std::string line; std::getline(information, line);) {
        if (line.rfind("model name", 0) != 0) continue;
        const std::size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
        if (begin != std::string::npos) return line.substr(begin);
    }
    utsname system{};
    return uname(&system) == 0 ? system.machine : "unknown";
#endif
}

/// Bytes of memory that this machine has; 0 where the system does not tell.
inline std::uint64_t physical_memory() {
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size) : 0;
#else
    return 0;
#endif
}

}  // namespace halftone::inline HALFTONE_ABI
